"""Nodes that lie in ways that a certificate does not forbid: they harm themselves, and nobody else."""

import asyncio
import math

import numpy as np
import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.errors import DamageError, RunError
from hiflash.messages import Ask, ClientUpdate, Estimates, Grant, Received, Round, Upload
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.calls import CallError, Peer
from hiflash.serve.cluster import Cluster, EdgeTerms
from hiflash.serve.journal import Input, SqliteJournal
from hiflash.serve.models import model_bytes
from hiflash.serve.scale import scale_of
from hiflash.serve.wire import MOST_NAMES, PROTOCOL, Asking, Malformed, Measured, Wire
from serve.inside import Inside, tiny_config
from serve.test_kernel import SIZE, WIRE, ask, make_live


def upload(edge, lease, rounds, metrics=None):
    last = Upload(edge, lease, np.zeros(SIZE, np.float32), 5, None, 0.0)
    body = WIRE.work(last, model_bytes(np.ones(SIZE, np.float32)), rounds, Asking(1), metrics)
    return Input("upload", edge, body)


@pytest.mark.parametrize(
    "round_",
    [
        Measured(2**32 - 1, 1, 3, 0.0, 0.0),
        Measured(1, 2, 3, 0.0, 0.0),
        Measured(1, 1, 2**53, 0.0, 0.0),
        Measured(1, 1, 3, 0.0, 0.0, counted=(2,)),  # a client of another edge
    ],
    ids=["asked", "delivered", "steps", "counted"],
)
def test_a_round_that_a_cluster_cannot_have_had_is_refused_and_costs_nothing(round_):
    live = make_live()
    (grant,) = live.apply(ask(0, 1), 1.0)
    with pytest.raises(Malformed):
        live.apply(upload(0, grant.lease_id, [round_]), 2.0)
    with pytest.raises(Malformed):
        live.apply(upload(0, grant.lease_id, [Measured(1, 1, 3, 0.0, 0.0)] * 2), 2.0)
    assert (live.ledger.client_steps, live.ledger.communications) == (0, 0)
    assert grant.lease_id in live.cloud.leases


def test_new_names_of_metrics_do_not_fill_the_books():
    live = make_live(math.inf)
    for number in range(1, 6):
        (grant,) = live.apply(ask(0, number), float(number))
        names = {f"m{number}-{place}": 1.0 for place in range(MOST_NAMES)}
        live.apply(upload(0, grant.lease_id, [], names), float(number))
    assert live.version == 5
    assert len(live.ledger.told) == MOST_NAMES


def test_one_edge_does_not_decide_what_time_is_measured_in():
    honest = pb.CheckIn(costs=pb.Costs(compute_s=1, send_s=2, down_s=0.5, train_s=4, up_s=0.5), rounds=2)
    for lie in (math.inf, math.nan, 1e300, 0.0):
        liar = pb.CheckIn(costs=pb.Costs(compute_s=lie, send_s=lie, train_s=lie), rounds=1)
        scale = scale_of([honest, liar, honest])
        assert all(0 < value < 100 for value in scale), (lie, scale)


@pytest.mark.parametrize("compute_s", [1.7e308, math.inf, math.nan, -1.0])
def test_a_client_cannot_make_the_costs_of_its_edge_impossible(compute_s):
    async def main():
        cluster = Cluster(EdgeTerms(0, "c", "s"), Wire(3))
        cluster.expected = frozenset({0})
        said = pb.Hello(
            protocol=PROTOCOL, node=0, config_digest="c", spec_digest="s", examples=5, compute_s=compute_s
        )
        await cluster.serve("Hello", Peer("client", 0), said.SerializeToString())
        assert cluster.members[0].compute_s == 0.0

    asyncio.run(main())


def test_a_newer_call_for_a_task_ends_an_older_one():
    async def main():
        cluster = Cluster(EdgeTerms(0, "c", "s"), Wire(3))
        cluster.expected = frozenset({0})
        said = pb.Hello(protocol=PROTOCOL, node=0, config_digest="c", spec_digest="s", examples=5)
        await cluster.serve("Hello", Peer("client", 0), said.SerializeToString())
        fetch = pb.Fetch(node=0, wait_s=30.0).SerializeToString()
        older = asyncio.create_task(cluster.serve("Fetch", Peer("client", 0), fetch))
        await asyncio.sleep(0)
        newer = asyncio.create_task(cluster.serve("Fetch", Peer("client", 0), fetch))
        await asyncio.sleep(0)
        cluster.tell()
        await asyncio.wait_for(older, 1.0)
        assert not newer.done()
        newer.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("extra", [{"x": np.ones(2, np.float32)}, {"change": np.ones(5, np.float32)}])
def test_arrays_that_the_algorithm_does_not_have_make_one_update_unusable_and_not_the_edge(extra):
    def usable(arrays):
        return set(arrays) == {"change"} and arrays["change"].shape == (2,)

    rules = EdgeRules((1,), 0, quorum=0.5, usable=usable)
    workloads = {client: Workload(10, 1, 0.1, 1.0, 100) for client in (0, 1)}

    def combine(updates, quorum, base):
        return updates[0].weights, [update.client for update in updates]

    edge = Edge(0, (0, 1), workloads, rules, Estimates(1, 1, 1, 1, 1), combine)
    (asked,) = edge.handle(Ask(0.0))
    grant = Grant(0, asked.request_id, 1, 0, 1.0, np.zeros(2, np.float32), 0.0)
    (opened,) = edge.handle(Received(grant, 0.0, 0.0))
    assert isinstance(opened, Round)
    good = {"change": np.ones(2, np.float32)}
    model = np.ones(2, np.float32)
    assert edge.handle(ClientUpdate(0, 1, 0, model, 10, 0.5, 0.1, 1.0, 1.0, extra)) == []
    assert 0 not in edge.updates
    edge.handle(ClientUpdate(1, 1, 0, model, 10, 0.5, 0.1, 1.0, 1.0, good))
    assert 1 in edge.updates


def test_a_node_with_another_configuration_is_told_and_ends(tmp_path):
    inside = Inside(tiny_config(**{"serve.start_s": 2.0}), tmp_path)
    other = Inside(tiny_config(seed=5), tmp_path / "other")
    from hiflash.serve import nodes

    real, tried = nodes.run_client, []

    async def one_is_wrong(deployment, number, place, stop, **more):
        if number == 0:
            try:
                await real(other.deployment, number, place, stop, **more)
            except RunError as error:
                tried.append(str(error))
            return True
        return await real(deployment, number, place, stop, **more)

    import serve.inside as module

    module.run_client = one_is_wrong
    try:
        inside.run()
    finally:
        module.run_client = real
    assert len(tried) == 1
    assert "has configuration" in tried[0]
    assert "give all nodes the same configuration" in tried[0]


def test_what_a_client_kept_of_another_run_does_not_count(tmp_path):
    """The memory of a client is in a folder that a user may use again."""
    settings = {"method": "hierfavg", "cloud.participants": 2}
    first = Inside(tiny_config(**settings), tmp_path)
    simulated = first.simulated().digest
    assert first.run().digest == simulated
    again = Inside(tiny_config(**settings), tmp_path / "again")
    again.folder = first.folder  # the same memories, another state
    assert again.run().digest == simulated


def test_damage_of_a_journal_is_called_damage(tmp_path):
    path = tmp_path / "journal.sqlite"
    SqliteJournal(path).close()
    content = bytearray(path.read_bytes())
    content[:100] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(DamageError, match="damaged"):
        SqliteJournal(path)


def test_a_number_outside_of_the_federation_cannot_start_a_run(tmp_path):
    from serve.test_security import attacked

    async def main():
        async with attacked(tmp_path) as there:
            service = there.service
            for method, body in (("CheckIn", there.ask(77, 1)), ("Hello", there.hello(77))):
                with pytest.raises(CallError, match="not part of this federation"):
                    await service.serve(method, Peer("edge", 77), body)
            assert service.live.scale is None

    asyncio.run(main())
