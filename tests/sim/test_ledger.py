from __future__ import annotations

import numpy as np
import pytest

from hiflash.core.compression import Payloads
from hiflash.messages import Grant, Verdict
from hiflash.sim.ledger import Ledger, Prices
from hiflash.sim.world import RoundTiming, Timeline


def ledger(**changes: object) -> Ledger:
    kinds = {name: bool(changes.pop(name, False)) for name in ("flat", "synchronous")}
    prices = Prices(**{"unit_s": (2.0, 4.0), "slot_s": 0.5, **changes})  # type: ignore[arg-type]
    return Ledger(2, Payloads.of(1000), prices, **kinds)


def two_rounds(granted_at: float = 1.0) -> Timeline:
    """Return a lease granted at 1.0 that runs for two rounds of a second each and arrives at 3.6."""
    rounds = tuple(
        RoundTiming(ends_at=granted_at + 0.3 + index + 1, clients=(4, 7), reporting=(4, 7),
                    compute_s=(0.5, 1.0), send_s=(0.25, 0.75), total_compute_s=1.5, total_send_s=1.0,
                    reported_compute_s=1.5, reported_send_s=1.0)
        for index in range(2)
    )  # fmt: skip
    return Timeline(granted_at, granted_at + 0.3, rounds, up_s=0.3)


def grant(lease_id: int = 1, edge: int = 0, threshold: float = 3) -> Grant:
    return Grant(edge, 1, lease_id, 0, threshold, np.zeros(1, np.float32), 1.0)


def verdict(status: str, reason: str = "", staleness: int = 0) -> Verdict:
    return Verdict(0, 1, status, staleness, 1, reason, 3.6)


def run_lease(books: Ledger, rounds: int = 2) -> None:
    timeline = two_rounds()
    books.granted(grant(), timeline.arrives_at, timeline.total_compute_s, 2)
    for timing in timeline.rounds[:rounds]:
        books.round_done(1, 6, timing)


def test_an_applied_upload_counts_once_in_every_book() -> None:
    books = ledger()
    run_lease(books)
    books.arrived(verdict("applied", staleness=2), {})
    assert (books.communications, books.client_uploads, books.client_steps) == (1, 4, 12)
    assert books.wasted_client_steps == 0
    assert (books.wan_bytes_down, books.wan_bytes_up) == (1000, 1000)
    assert (books.lan_bytes_down, books.lan_bytes_up) == (4000, 4000)
    assert books.figures()["staleness"] == {"mean": 2.0, "max": 2, "histogram": {"2": 1}}
    assert (books.grants, books.applied, books.thresholds) == ([1, 0], [1, 0], {"3": 1})
    assert books.open == {}


def test_costs_are_spread_over_the_slots_of_a_lease_and_sending_is_charged_at_its_end() -> None:
    books = ledger()
    run_lease(books)
    # Computing: 2 rounds * (0.5 + 1.0) = 3 s in units of 2 s: 1.5. It runs in slots 2 (1.0) to 7 (3.6): six.
    # At 2.4, in slot 4, three of six slots are charged, and slots 0 to 4 have begun.
    costs = books.costs(2.4)
    assert costs == {"compute_cost": pytest.approx(0.75), "send_cost": 0.0, "total_cost": pytest.approx(5.75)}
    books.arrived(verdict("applied"), {})
    # Sending: 2 rounds * (0.25 + 0.75) = 2 s in units of 4 s: 0.5. At 3.6, slots 0 to 7 have begun.
    assert books.costs(3.6) == {
        "compute_cost": pytest.approx(1.5),
        "send_cost": pytest.approx(0.5),
        "total_cost": pytest.approx(10.0),
    }


def test_weights_scale_computing_and_sending_but_not_time() -> None:
    books = ledger(compute_weight=10.0, send_weight=100.0)
    run_lease(books)
    books.arrived(verdict("applied"), {})
    assert books.costs(3.6)["total_cost"] == pytest.approx(10 * 1.5 + 100 * 0.5 + 8)


def test_a_discarded_upload_is_a_communication_whose_steps_are_wasted() -> None:
    books = ledger()
    run_lease(books)
    books.arrived(verdict("rejected", "stale", 4), {})
    assert (books.communications, books.discarded, books.rejected) == (1, 1, 0)
    assert (books.client_steps, books.wasted_client_steps) == (12, 12)
    assert books.applied == [0, 0]


def test_a_cancelled_lease_pays_for_the_rounds_it_did_and_is_no_communication() -> None:
    books = ledger()
    run_lease(books, rounds=1)
    books.settle(1, applied=False, now=2.0)
    assert (books.communications, books.wan_bytes_up) == (0, 0)
    assert (books.client_steps, books.wasted_client_steps) == (6, 6)
    assert (books.compute_cost, books.send_cost) == (0.75, 0.25)


def test_a_buffered_upload_is_settled_when_its_round_is() -> None:
    books = ledger(synchronous=True)
    run_lease(books)
    books.arrived(verdict("buffered"), {})
    assert books.communications == 1
    assert books.costs(3.6)["compute_cost"] == 1.5
    assert books.applied == [0, 0]
    assert books.thresholds == {}
    books.settle(1, applied=True, now=2.0)
    assert books.applied == [1, 0]
    assert books.costs(3.6)["compute_cost"] == 1.5


def test_a_flat_client_uses_the_wan_alone() -> None:
    books = ledger(flat=True)
    run_lease(books, rounds=1)
    assert books.lan_bytes == 0


def test_a_boundary_belongs_to_the_slot_that_it_begins() -> None:
    books = ledger(slot_s=0.05)
    assert [books.slot(index * 0.05) for index in range(2000)] == list(range(2000))
    assert books.slot(0.0499) == 0


def test_the_books_survive_being_saved() -> None:
    books, copy = ledger(), ledger()
    run_lease(books)
    copy.restore(books.snapshot())
    for each in (books, copy):
        each.arrived(verdict("applied", staleness=1), {})
    assert copy.figures() == books.figures()
    assert copy.totals(4.0) == books.totals(4.0)


def test_updates_that_do_not_count_are_counted_by_their_reason() -> None:
    books = ledger()
    run_lease(books)
    books.arrived(verdict("rejected", "not finite"), {})
    assert books.figures()["rejections"] == {"not finite": 1}
    other = ledger()
    other.restore(books.snapshot())
    assert other.rejections["norm"] == 0  # still a counter
