"""The paper's accounting: an edge round of computing in every running slot, one of sending at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash.config import Config
from hiflash.core.compression import Payloads
from hiflash.errors import ConfigError, Paused
from hiflash.messages import Grant, Verdict
from hiflash.sim.federation import build
from hiflash.sim.ledger import Ledger, Prices
from hiflash.sim.simulator import Simulator
from hiflash.sim.world import RoundTiming

COMPUTE_S, SEND_S = 1.5, 1.0  # of an edge round, over all its clients


def ledger(**changes: Any) -> Ledger:
    prices = Prices(**{"unit_s": (2.0, 4.0), "slot_s": 0.5, "accounting": "paper", **changes})
    return Ledger(2, Payloads.of(1000), prices, flat=False, synchronous=False)


def begin(books: Ledger, now: float, lease_id: int = 1, edge: int = 0, rounds: int = 2) -> None:
    grant = Grant(edge, 1, lease_id, 0, 3, np.zeros(1, np.float32), now)
    books.granted(grant, now + 2.6, COMPUTE_S * rounds, rounds)


def one_round(books: Ledger, lease_id: int = 1) -> None:
    timing = RoundTiming(2.0, (4, 7), (4, 7), (0.5, 1.0), (0.25, 0.75), COMPUTE_S, SEND_S, COMPUTE_S, SEND_S)
    books.round_done(lease_id, 6, timing)


def end(books: Ledger, now: float, lease_id: int = 1, status: str = "applied") -> None:
    books.arrived(Verdict(0, lease_id, status, 0, 1, "", now), {})


def test_a_running_slot_costs_an_edge_round_and_the_end_one_round_of_sending() -> None:
    books = ledger()
    begin(books, 1.0)
    one_round(books)
    # Computing: 1.5 s a round in units of 2 s, 0.75 a slot. At 2.4, slots 2, 3 and 4 have run: 2.25.
    assert books.costs(2.4) == {"compute_cost": 2.25, "send_cost": 0.0, "total_cost": 7.25}
    one_round(books)
    end(books, 3.6)
    # It ran in slots 2 to 7: 6 * 0.75 = 4.5, for H = 2 as for any H. Sending: 1 s in units of 4 s, once.
    assert books.costs(3.6) == {"compute_cost": 4.5, "send_cost": 0.25, "total_cost": 4.5 + 0.25 + 8}
    assert books.costs(5.1)["compute_cost"] == 4.5  # nothing runs any more


def test_the_number_of_edge_rounds_changes_neither_cost_per_slot_nor_sending() -> None:
    for rounds in (1, 2, 3):
        books = ledger()
        begin(books, 1.0, rounds=rounds)
        for _ in range(rounds):
            one_round(books)
        end(books, 3.6)
        assert books.costs(3.6)["compute_cost"] == pytest.approx(4.5)
        assert books.costs(3.6)["send_cost"] == pytest.approx(0.25)


def test_an_upload_that_is_later_than_expected_is_charged_for_its_slots() -> None:
    books = ledger()
    begin(books, 1.0)  # expected in slot 7
    one_round(books)
    assert books.costs(5.0)["compute_cost"] == 9 * 0.75  # slots 2 to 10
    end(books, 5.0)
    assert books.costs(5.0)["compute_cost"] == 9 * 0.75


def test_an_edge_pays_once_for_a_slot_in_which_two_leases_meet() -> None:
    books = ledger()
    begin(books, 0.0)
    one_round(books)
    end(books, 1.1)  # slots 0 to 2
    begin(books, 1.2, lease_id=2)  # also in slot 2, which is paid for
    one_round(books, 2)
    assert books.costs(1.3)["compute_cost"] == 3 * 0.75
    end(books, 1.6, lease_id=2)  # slot 3
    assert books.costs(1.6)["compute_cost"] == 4 * 0.75
    begin(books, 1.7, lease_id=3, edge=1)  # another edge pays for its own
    assert books.costs(1.7)["compute_cost"] == 5 * 0.75


def test_a_cancelled_lease_pays_for_the_slots_in_which_it_ran() -> None:
    books = ledger()
    begin(books, 1.0)
    one_round(books)
    books.settle(1, applied=False, now=2.4)
    assert books.costs(9.9)["compute_cost"] == 3 * 0.75  # slots 2, 3 and 4
    assert books.costs(9.9)["send_cost"] == 0.25


def test_a_buffered_upload_no_longer_runs() -> None:
    books = ledger()
    begin(books, 1.0)
    one_round(books)
    end(books, 1.4, status="buffered")
    assert books.costs(9.9)["compute_cost"] == 0.75
    books.settle(1, applied=True, now=9.0)
    assert books.costs(9.9)["compute_cost"] == 0.75


def test_books_that_are_saved_know_the_slots_that_are_paid_for() -> None:
    books, copy = ledger(), ledger()
    begin(books, 0.0)
    one_round(books)
    end(books, 1.1)
    copy.restore(books.snapshot())
    begin(copy, 1.2, lease_id=2)
    assert copy.costs(1.3)["compute_cost"] == 3 * 0.75


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "fedat"},
        {"cloud.enforce": "discard", "cloud.threshold": 1},
        {"cloud.enforce": "cancel", "cloud.threshold": 1, "edge.edge_rounds": [3]},
        {"method": "hierfavg", "edge.clients_per_round": "all", "cloud.participants": 10},
        {"method": "fedavg"},
    ],
)
def test_a_whole_run_pays_what_its_log_says(settings: Mapping[str, Any]) -> None:
    """From the log alone: every edge pays its round in each slot between a grant and its end, once."""
    config = Config(**{"trainer": "none", "stop.communications": 120, "cost.accounting": "paper", **settings})
    rows: list[tuple[float, str, Mapping[str, Any]]] = []
    engine = build(config).engine(lambda now, kind, row: rows.append((now, kind, row)))
    assert isinstance(engine, Simulator)
    engine.start()
    while engine.ledger.communications < 120:
        engine.step()
    ends, since, sends = defaultdict(set), {}, 0.0
    world, slot = engine.world, engine.ledger.slot
    for now, kind, row in rows:
        if kind == "grant":
            since[row["edge"]] = slot(now)
        elif kind in ("upload", "cancel"):
            ends[row["edge"]] |= set(range(since.pop(row["edge"]), slot(now) + 1))
            sends += world.estimates(row["edge"], None).send_s
    for edge, first in since.items():
        ends[edge] |= set(range(first, slot(engine.now) + 1))
    compute = sum(len(slots) * world.estimates(edge, None).compute_s for edge, slots in ends.items())
    totals = engine.totals()
    assert totals["compute_cost"] == pytest.approx(compute / world.cost_unit_s[0])
    assert totals["send_cost"] == pytest.approx(sends / world.cost_unit_s[1])
    assert totals["total_cost"] == pytest.approx(
        totals["compute_cost"] + totals["send_cost"] + slot(engine.now) + 1
    )


def test_only_the_costs_differ(run_tiny: Callable[..., hiflash.Result]) -> None:
    one, other = run_tiny(), run_tiny(cost__accounting="paper")
    costs = {"config_digest", "compute_cost", "send_cost", "total_cost", "evaluations", "wall_s"}
    said = [{k: v for k, v in each.to_dict().items() if k not in costs} for each in (one, other)]
    for each in said:
        for name in ("targets", "targets_stable", "targets_interpolated"):
            each[name] = {goal: row and {**row, "total_cost": 0} for goal, row in each[name].items()}
    assert said[0] == said[1]
    assert one.total_cost != other.total_cost


def test_a_resumed_run_pays_the_same(
    run_tiny: Callable[..., Any], resume_tiny: Callable[..., hiflash.Result], tmp_path: Path
) -> None:
    settings = {"cost__accounting": "paper", "cloud__enforce": "cancel", "stop__communications": 40}
    whole = run_tiny(**settings)
    seen = iter(range(10**6))
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "run", pause=lambda: next(seen) > 150, **settings)
    assert resume_tiny(tmp_path / "run").total_cost == whole.total_cost


def test_other_accountings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r'cost\.accounting must be "lease" or "paper", got'):
        Config(**{"cost.accounting": "slot"})
