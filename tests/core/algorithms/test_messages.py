"""Arrays and steps in the messages between clients, edges and cloud."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hiflash.core.aggregation import combine_clients
from hiflash.core.algorithms.fednova import NormalisedMean
from hiflash.core.algorithms.scaffold import Scaffold
from hiflash.core.async_cloud import AsyncCloud
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.core.mixing import Interpolate
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.weighting import Constant
from hiflash.messages import (
    Ask,
    CheckIn,
    ClientUpdate,
    EdgeCosts,
    Estimates,
    Grant,
    Received,
    Round,
    Upload,
    Verdict,
)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def make_edge(**rules: Any) -> Edge:
    """Return an edge with clients 0 and 1 of 10 and 30 samples and 3 steps, and two edge rounds."""
    workloads = [Workload(examples, 3, 0.1, 1.0, 100) for examples in (10, 30)]
    chosen = EdgeRules(edge_rounds=(2,), seed=0, **rules)
    estimates = Estimates(compute_s=1.0, send_s=1.0, round_s=1.0, down_s=1.0, up_s=1.0)
    edge = Edge(
        0, [0, 1], workloads, chosen, estimates, lambda *of: combine_clients(*of, rule=NormalisedMean(1))
    )
    edge.handle(Ask(0.0))
    return edge


def update(client: int, index: int, value: float, steps: float, **extra: np.ndarray) -> ClientUpdate:
    examples = (10, 30)[client]
    return ClientUpdate(client, 1, index, f32(value), examples, 0.0, 0.1, 1.0, steps, extra)


@pytest.mark.parametrize(("gathers", "sent"), [("sum", 1 + 2 + 3 + 4), ("mean", (10 * 3 + 30 * 4) / 40)])
def test_an_edge_hands_on_what_came_with_the_grant_and_gathers_what_clients_send(
    gathers: str, sent: float
) -> None:
    edge = make_edge(gathers=gathers)
    grant = Grant(0, edge.request_id, 1, 0, 5, f32(0), 0.0, {"c": f32(7)})
    (opened,) = edge.handle(Received(grant, None, 0.0))
    assert isinstance(opened, Round)
    assert opened.extra == {"c": 7}
    edge.handle(update(0, 0, 1.0, 1.0, change=f32(1)))
    (second,) = edge.handle(update(1, 0, 3.0, 3.0, change=f32(2)))
    assert isinstance(second, Round)
    # tau = 1/4 + 3/4 * 3 = 2.5; 2.5 (1/4 * 1 / 1 + 3/4 * 3 / 3)
    assert second.model == 2.5
    assert second.extra == {"c": 7}
    edge.handle(update(0, 1, 2.5, 2.0, change=f32(3)))
    (upload,) = edge.handle(update(1, 1, 2.5, 2.0, change=f32(4)))
    assert isinstance(upload, Upload)
    assert upload.extra == {"change": sent}
    assert upload.steps == 2.5 + 2.0


@pytest.mark.parametrize(
    ("steps", "extra"),
    [
        (0.5, {}),
        (math.nan, {}),
        (math.inf, {}),
        (6.5, {}),  # 3 steps amount to at most 1 + 2 + 3
        (3.0, {"change": f32(np.nan)}),
        (3.0, {"change": np.zeros(1)}),
    ],
)
def test_an_edge_ignores_impossible_steps_and_arrays(steps: float, extra: dict[str, np.ndarray]) -> None:
    edge = make_edge()
    edge.handle(Received(Grant(0, edge.request_id, 1, 0, 5, f32(0), 0.0), None, 0.0))
    assert edge.handle(update(0, 0, 1.0, steps, **extra)) == []
    assert edge.updates == {}


def make_cloud() -> AsyncCloud:
    return AsyncCloud(
        f32(0),
        {0: 10},
        mixing=Interpolate(1.0, Constant()),
        policy=FixedThreshold(math.inf),
        seed=0,
        slot_s=1.0,
        slotted=False,
        side=Scaffold().cloud(trained=1, clients=4),
    )


def granted(cloud: AsyncCloud, request: int = 1) -> Grant:
    (grant,) = cloud.handle(CheckIn(0, request, EdgeCosts(1.0, 1.0, 1.0, 1.0, 1.0), 0.0))
    assert isinstance(grant, Grant)
    return grant


@pytest.mark.parametrize(
    ("model", "steps", "change", "reason"),
    [
        (f32(1), 0.0, f32(1), "steps"),
        (f32(1), math.inf, f32(1), "steps"),
        (f32(1), math.nan, f32(1), "steps"),
        (f32(1), 3.0, f32(1, 2), "extra"),
        (f32(1), 3.0, f32(np.inf), "extra"),
        (f32(np.inf), 3.0, f32(1), "not finite"),
    ],
)
def test_a_refused_upload_leaves_the_mean_of_the_states(
    model: np.ndarray, steps: float, change: np.ndarray, reason: str
) -> None:
    cloud = make_cloud()
    upload = Upload(0, granted(cloud).lease_id, model, 10, None, 1.0, steps, {"change": change})
    (verdict,) = cloud.handle(upload)
    assert isinstance(verdict, Verdict)
    assert (verdict.status, verdict.reason) == ("rejected", reason)
    assert granted(cloud, 2).extra["c"] == 0


def test_an_upload_without_arrays_leaves_the_mean_of_the_states() -> None:
    cloud = make_cloud()
    (verdict,) = cloud.handle(Upload(0, granted(cloud).lease_id, f32(1), 10, None, 1.0, 3.0))
    assert isinstance(verdict, Verdict)
    assert verdict.status == "applied"
    assert granted(cloud, 2).extra["c"] == 0


def test_an_upload_that_the_mixing_rule_spoils_is_undone() -> None:
    cloud = make_cloud()
    cloud.mixing.mix = lambda *_: f32(np.inf)  # type: ignore[method-assign]
    upload = Upload(0, granted(cloud).lease_id, f32(1), 10, None, 1.0, 3.0, {"change": f32(8)})
    (verdict,) = cloud.handle(upload)
    assert isinstance(verdict, Verdict)
    assert verdict.reason == "not finite"
    assert granted(cloud, 2).extra["c"] == 0


def test_an_accepted_upload_counts_once_and_a_grant_is_repeated_with_its_array() -> None:
    cloud = make_cloud()
    grant = granted(cloud)
    upload = Upload(0, grant.lease_id, f32(1), 10, None, 1.0, 3.0, {"change": f32(8)})
    for _ in range(2):
        cloud.handle(upload)
    second = granted(cloud, 2)
    assert second.extra["c"] == 2  # 8 over 4 clients
    other = make_cloud()
    other.restore(cloud.snapshot())
    assert granted(other, 2).extra["c"] == 2  # the same request again
