"""Whoever is not let in, lies about who it is, or sends rubbish: refused, counted, and the cloud goes on."""

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import numpy as np
import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

from hiflash.messages import CheckIn, EdgeCosts, Upload
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.authority import make_throwaway_federation
from hiflash.serve.calls import CallError
from hiflash.serve.credentials import Credentials
from hiflash.serve.grpc_transport import GrpcCaller, start_server
from hiflash.serve.identity import Identity
from hiflash.serve.models import model_bytes
from hiflash.serve.state import StateFolder
from hiflash.serve.wire import PROTOCOL, Asking
from hiflash.weights import digest
from serve.inside import Inside, tiny_config

COSTS = EdgeCosts(1.0, 1.0, 0.1, 0.1, 0.1)
CLOUD = Identity("tiny", "cloud", 0)


class Attacked:
    """A cloud with two edges, of which edge 0 holds a lease."""

    def __init__(self, inside, service, address):
        self.inside, self.service, self.address = inside, service, address
        self.wire = inside.deployment.wire
        self.size = self.wire.size

    def credentials(self, who):
        return Credentials.load(self.inside.certs, who)

    async def call(self, me, method, body, *, most=None, to=CLOUD):
        caller = GrpcCaller(self.address, me, to, most or self.wire.most_bytes)
        try:
            return await caller.call(method, body, timeout_s=5.0)
        finally:
            await caller.close()

    def hello(self, node, **changes):
        config, spec = self.inside.deployment.digests
        said = {"protocol": PROTOCOL, "node": node, "config_digest": config, "spec_digest": spec}
        return pb.Hello(**{**said, **changes}).SerializeToString()

    def ask(self, node, request_id):
        return self.wire.ask(CheckIn(node, request_id, COSTS, 0.0), Asking(1), 1.0)

    def upload(self, node, lease_id, weights, examples=10):
        last = Upload(node, lease_id, weights, examples, None, 0.0)
        return self.wire.work(last, model_bytes(weights), [], Asking(1))


@asynccontextmanager
async def attacked(folder, **settings):
    inside = Inside(tiny_config(**{"serve.start_edges": 1, **settings}), folder)
    store = StateFolder.open(inside.state, inside.config.to_toml(), "all")
    live = inside.deployment.live(store.folder.log)
    service = inside.deployment.cloud(live, store)
    credentials = Credentials.load(inside.certs, "cloud")
    most = inside.deployment.wire.most_bytes
    server, port = await start_server(service, "127.0.0.1:0", credentials, most)
    running = asyncio.create_task(service.run())
    try:
        yield Attacked(inside, service, f"127.0.0.1:{port}")
    finally:
        running.cancel()
        await server.stop(0)
        store.close()
        inside.deployment.federation.close()


async def leased(there):
    """Return the lease that edge 0 gets."""
    me = there.credentials("edge/0")
    await there.call(me, "Hello", there.hello(0))
    answer = pb.Answer.FromString(await there.call(me, "CheckIn", there.ask(0, 1)))
    return answer.grant.lease_id


async def refused(there, code, me, method, body, **more):
    with pytest.raises(CallError) as caught:
        await there.call(me, method, body, **more)
    assert caught.value.code == code, caught.value


async def still_works(there, lease_id):
    """Assert that the lease of edge 0 is still usable, and that its upload is applied once."""
    me, before = there.credentials("edge/0"), there.service.live.version
    weights = there.service.live.weights + np.float32(0.1)
    for _ in range(2):
        body = await there.call(me, "Upload", there.upload(0, lease_id, weights))
        assert pb.Answer.FromString(body).verdict.status == "applied"
    assert there.service.live.version == before + 1


def test_strangers_and_liars_are_refused_counted_and_change_nothing(tmp_path):
    make_throwaway_federation(tmp_path / "others", "tiny", edges=2, clients=1)

    async def main():
        async with attacked(tmp_path) as there:
            lease_id = await leased(there)
            live, service = there.service.live, there.service
            before = digest(live.weights)
            edge0, edge1, client = (there.credentials(who) for who in ("edge/0", "edge/1", "client/0"))
            foreign = Credentials.load(tmp_path / "others", "edge/0")
            weights = live.weights + np.float32(1)

            # Nobody who cannot prove who it is reaches the service.
            pretender = dataclasses.replace(foreign, ca=edge0.ca)
            no_certificate = Identity("tiny", "edge", 0)  # plaintext
            for stranger in (foreign, pretender, no_certificate):
                await refused(there, "unavailable", stranger, "Upload", there.upload(0, lease_id, weights))
            assert not service.refused

            # A known node that does what its role may not, or speaks for another.
            await refused(there, "denied", client, "Upload", there.upload(0, lease_id, weights))
            await refused(there, "denied", client, "CheckIn", there.ask(0, 7))
            await refused(there, "denied", edge1, "Place", pb.Place(node=0).SerializeToString())
            await refused(there, "denied", edge0, "Nothing", b"")
            await refused(there, "denied", edge1, "Upload", there.upload(0, lease_id, weights))
            await refused(there, "denied", edge1, "CheckIn", there.ask(0, 9))
            await refused(there, "denied", edge1, "Hello", there.hello(0))
            assert service.refused["denied"] == 7

            # Another edge's lease under one's own name: a verdict, and the lease stays usable.
            body = await there.call(edge1, "Upload", there.upload(1, lease_id, weights))
            verdict = pb.Answer.FromString(body).verdict
            assert (verdict.status, verdict.reason) == ("rejected", "no such lease")

            # Other terms.
            for change in ({"protocol": 99}, {"config_digest": "x"}, {"spec_digest": "x"}):
                await refused(there, "mismatch", edge1, "Hello", there.hello(1, **change))
            assert service.refused["mismatch"] == 3

            # Rubbish.
            good = there.upload(0, lease_id, weights)
            stream = np.random.default_rng(0)
            for rubbish in (good[:-3], good[: len(good) // 2], stream.bytes(200), stream.bytes(2_000)):
                await refused(there, "invalid", edge0, "Upload", rubbish)
            short = there.upload(0, lease_id, weights[:-1])
            await refused(there, "invalid", edge0, "Upload", short)
            huge = bytes(4 * there.wire.most_bytes)
            await refused(there, "invalid", edge0, "Upload", huge, most=100 * there.wire.most_bytes)
            assert service.refused["invalid"] >= 5  # gRPC itself refuses the last one

            assert digest(live.weights) == before
            assert live.ledger.communications == 0
            await still_works(there, lease_id)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("weights", "examples", "reason"),
    [
        (lambda size: np.full(size, np.nan, np.float32), 10, "not finite"),
        (lambda size: np.full(size, np.inf, np.float32), 10, "not finite"),
        (lambda size: np.zeros(size, np.float32), 0, "examples"),
        (lambda size: np.zeros(size, np.float32), 10**15, "examples"),
    ],
)
def test_an_edge_that_sends_nonsense_is_told_why_and_the_model_stays(weights, examples, reason, tmp_path):
    async def main():
        async with attacked(tmp_path) as there:
            lease_id = await leased(there)
            before = digest(there.service.live.weights)
            body = there.upload(0, lease_id, weights(there.size), examples)
            answer = pb.Answer.FromString(await there.call(there.credentials("edge/0"), "Upload", body))
            assert (answer.verdict.status, answer.verdict.reason) == ("rejected", reason)
            assert digest(there.service.live.weights) == before
            assert there.service.live.ledger.rejections[reason] == 1

    asyncio.run(main())


def test_a_node_that_calls_too_often_is_held_back_and_others_are_not(tmp_path):
    async def main():
        async with attacked(tmp_path, **{"serve.rate": 5.0, "serve.burst": 5.0}) as there:
            lease_id = await leased(there)
            edge1 = there.credentials("edge/1")
            caller = GrpcCaller(there.address, edge1, CLOUD, there.wire.most_bytes)
            beat = pb.Beat(node=1, address="").SerializeToString()
            errors = []
            for _ in range(20):
                try:
                    await caller.call("Beat", beat, timeout_s=5.0)
                except CallError as error:
                    errors.append(error)
            await caller.close()
            assert {error.code for error in errors} == {"busy"}
            assert min(error.retry_after_s for error in errors) > 0
            assert there.service.refused["busy"] == len(errors) >= 10
            await still_works(there, lease_id)

    asyncio.run(main())


def test_what_clients_send_is_neither_in_the_state_folder_nor_in_the_rows_of_events(tmp_path):
    """Plant a marker in the update of one client, and look for its bytes everywhere (R21)."""
    inside = Inside(tiny_config(**{"serve.keep_client_updates": False}), tmp_path)
    seen: list[bytes] = []
    from hiflash.serve import nodes

    class Spying(nodes.LocalTraining):
        def _work(self, job, own):
            worked = super()._work(job, own)
            seen.append(worked.weights.tobytes()[:64])
            return worked

    real, nodes.LocalTraining = nodes.LocalTraining, Spying
    try:
        inside.run()
    finally:
        nodes.LocalTraining = real
    assert len(seen) > 10
    kept = [path.read_bytes() for path in inside.state.rglob("*") if path.is_file()]
    assert kept
    for marker in seen:
        assert not any(marker in content for content in kept)
    keys = list(inside.certs.glob("*.key"))
    assert keys
    assert all(path.stat().st_mode & 0o077 == 0 for path in keys)
