"""The simulated world: how long rounds take while resources fluctuate."""

from __future__ import annotations

import numpy as np

from hiflash.core.aggregation import combine_clients
from hiflash.core.compression import Payloads
from hiflash.core.edge import Edge, EdgeRules, Workload
from hiflash.sim.world import Timeline, World


def world() -> World:
    return World(
        compute_s=np.array([0.125, 0.25]),
        send_s=np.array([0.5, 0.25]),
        cost_unit_s=(1.0, 1.0),
        clusters=[[0, 1]],
        links=None,
        payloads=Payloads.of(1024),
        seed=0,
        fluctuation=(0.9, 0.3),
    )


def edge_of(made: World) -> Edge:
    workloads = [Workload(10, 1, 0.1, 1.0, 1)] * 2
    return Edge(0, (0, 1), workloads, EdgeRules((1,), seed=0), made.estimates(0, None), combine_clients)


def test_rounds_of_one_second_are_alike_and_those_of_the_next_are_not() -> None:
    made = world()
    edge = edge_of(made)

    def lasts_s(now: float) -> float:
        return made.timeline(edge, 1, now).arrives_at - now

    assert abs(lasts_s(3.0) - lasts_s(3.75)) < 1e-12
    assert abs(lasts_s(3.0) - lasts_s(4.0)) > 1e-3


def test_what_a_round_takes_does_not_depend_on_what_was_asked_before() -> None:
    asked = world()
    edge = edge_of(asked)
    seen: list[Timeline] = [asked.timeline(edge, 1, now) for now in (3.0, 3.5, 4.0, 4.5)]
    assert seen[1] == world().timeline(edge, 1, 3.5)
    assert seen[3] == world().timeline(edge, 1, 4.5)


def test_an_edge_declares_the_work_of_the_share_that_takes_part() -> None:
    """0.5 of 2 clients is 1: half of 0.125 + 0.25 s of computing and of 0.5 + 0.25 s of sending."""
    declared = world().estimates(0, 0.5)
    assert (declared.compute_s, declared.send_s) == (0.1875, 0.375)
    assert world().estimates(0, 0.6) == world().estimates(0, None)  # rounded up to both
    assert world().estimates(0, 1) == declared
