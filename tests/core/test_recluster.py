"""Edges and clouds whose clusters change between leases."""

import numpy as np
import pytest

from hiflash.core.aggregation import combine_clients
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.core.selection import UniformSelection
from hiflash.core.sync_cloud import SyncCloud
from hiflash.errors import ProtocolError
from hiflash.messages import (
    Ask,
    Cancel,
    CheckIn,
    ClientUpdate,
    ClusterChange,
    EdgeCosts,
    Estimates,
    Grant,
    Received,
    Recluster,
    Slot,
    Upload,
)

WEIGHTS = np.zeros(2, dtype=np.float32)
COSTS = EdgeCosts(compute_s=1.0, send_s=1.0, down_s=1.0, train_s=8.0, up_s=1.0)


def workload(examples: int = 10) -> Workload:
    return Workload(examples, 3, 0.5, 0.5, 5)


WORKLOADS = {client: workload(40 if client == 5 else 10) for client in range(10)}
MEANS = Estimates(compute_s=10.0, send_s=5.0, round_s=4.0, down_s=1.0, up_s=2.0)


def make(*clients: int) -> Edge:
    return Edge(1, clients, WORKLOADS, EdgeRules((1,), seed=0), MEANS, combine_clients)


def recluster(edge: Edge, leaving=(), entering=None, estimates=MEANS) -> None:
    assert edge.handle(Recluster(tuple(leaving), entering or {}, estimates, 9.0)) == []


def lease(edge: Edge, lease_id: int) -> tuple[dict[int, tuple[int, float]], Upload]:
    """Let an edge have a lease; return each client's first step and learning rate, and the upload."""
    edge.handle(Ask(0.0))
    (opened,) = edge.handle(Received(Grant(1, edge.request_id, lease_id, 0, 5, WEIGHTS, 0.0), None, 0.0))
    effects: list = []
    for task in opened.work:
        examples = edge.workloads[task.client].examples
        effects += edge.handle(ClientUpdate(task.client, lease_id, 0, WEIGHTS, examples, 0.0, 1.0, 1.0))
    return {task.client: (task.first_step, task.lr) for task in opened.work}, effects[0]


def test_a_client_takes_its_steps_to_its_new_edge():
    old, new = make(2, 5), make(7)
    lease(old, 1)
    lease(old, 2)
    assert old.taken[5] == 6  # two tasks of three steps
    recluster(new, entering={5: old.taken[5]})
    recluster(old, leaving=[5])
    tasks, upload = lease(new, 3)
    assert tasks == {5: (6, 0.25), 7: (0, 0.5)}  # 0.5 * 0.5 ** (6 // 5)
    assert upload.examples == 50
    assert lease(old, 4)[0] == {2: (6, 0.25)}
    assert (old.everyone, old.examples, old.steps([2])) == ((2,), 10, 3)


def test_all_clients_of_a_new_cluster_are_counted():
    edge = make(4)
    recluster(edge, entering={9: 0, 1: 0})
    assert edge.everyone == (1, 4, 9)
    assert (edge.examples, edge.steps(edge.everyone)) == (30, 9)


def test_a_restored_edge_has_the_cluster_of_its_snapshot():
    edge, other = make(2, 5), make(2, 5)
    recluster(edge, leaving=[2], entering={7: 12})
    other.restore(edge.snapshot())
    assert (other.everyone, other.examples, other.taken) == ((5, 7), 50, {5: 0, 7: 12})


def test_a_cluster_does_not_change_while_its_edge_has_a_lease():
    edge = make(2, 5)
    edge.handle(Ask(0.0))
    edge.handle(Received(Grant(1, 1, 1, 0, 5, WEIGHTS, 0.0), None, 0.0))
    with pytest.raises(ProtocolError, match="edge 1 has a lease"):
        recluster(edge, leaving=[5])
    assert edge.everyone == (2, 5)


def test_a_new_cluster_is_expected_to_take_its_own_means_and_the_wan_what_was_seen():
    edge = make(2)
    edge.handle(Ask(0.0))
    edge.handle(Received(Grant(1, 1, 1, 0, 5, WEIGHTS, 0.0), 6.0, 6.0))  # down: 1 + 0.2 * 5
    edge.handle(Received(Cancel(1, 1, 7.0), None, 7.0))
    recluster(edge, estimates=Estimates(compute_s=30.0, send_s=20.0, round_s=9.0, down_s=100.0, up_s=100.0))
    assert edge.estimates == Estimates(compute_s=30.0, send_s=20.0, round_s=9.0, down_s=2.0, up_s=2.0)


def cloud() -> SyncCloud:
    return SyncCloud(WEIGHTS, {0: 10, 1: 10, 2: 10}, selection=UniformSelection(3, 0))


def test_an_upload_may_claim_the_samples_of_the_new_cluster_and_no_more():
    for examples, status in ((40, "buffered"), (41, "rejected")):
        changed = cloud()
        changed.handle(ClusterChange(0, 40, 0.0))
        changed.handle(CheckIn(0, 1, COSTS, 0.0))
        (grant,) = changed.handle(Slot(0, 0.0))
        verdict = changed.handle(Upload(0, grant.lease_id, WEIGHTS, examples, None, 1.0))[0]
        assert verdict.status == status


def test_an_edge_without_clients_is_not_drawn_until_it_asks_again():
    empty = cloud()
    for edge in range(3):
        empty.handle(CheckIn(edge, 1, COSTS, 0.0))
    empty.handle(ClusterChange(1, 0, 0.0))
    assert 1 not in empty.costs
    assert [grant.edge for grant in empty.handle(Slot(0, 0.0))] == [0, 2]
    empty.handle(ClusterChange(1, 20, 1.0))
    empty.handle(CheckIn(1, 2, COSTS, 1.0))
    assert sorted(empty.waiting) == [1]


def test_a_restored_cloud_knows_the_changed_clusters():
    changed, other = cloud(), cloud()
    changed.handle(ClusterChange(2, 77, 0.0))
    saved = changed.snapshot()
    changed.handle(ClusterChange(2, 5, 0.0))
    other.restore(saved)
    assert other.examples == {0: 10, 1: 10, 2: 77}


def test_the_cluster_of_a_stranger_is_an_error():
    with pytest.raises(ProtocolError, match="edge 9 is not part of this federation"):
        cloud().handle(ClusterChange(9, 10, 0.0))
