"""One edge that takes ten times as long: its leases do, and nobody else's."""

import pytest

from hiflash.config import Config
from hiflash.sim.federation import build

SMALL = {"federation.clients": 12, "federation.edges": 3, "data.name": "none", "trainer": "none"}


def declared(slow: float) -> list:
    engine = build(Config(method="hifl", **SMALL, **{"resources.slow_edge": slow})).engine(lambda *_: None)
    return [edge.estimates for edge in engine.edges], engine.world.cost_unit_s


def test_edge_zero_takes_so_many_times_as_long():
    (plain, unit), (slowed, same_unit) = declared(1), declared(10)
    assert unit == same_unit  # what a second costs does not change
    for name in ("compute_s", "send_s", "round_s", "down_s", "up_s"):
        assert getattr(slowed[0], name) == pytest.approx(10 * getattr(plain[0], name))
    assert slowed[1:] == plain[1:]
