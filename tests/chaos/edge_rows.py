"""Rows that kill and freeze an edge while the others go on."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from chaos.federation import Federation, configuration
from chaos.processes import wait_until
from chaos.rows import Found
from hiflash.store.run_directory import is_finished

__all__ = ["edge_frozen", "edge_killed", "end_missed"]

BACK_S = 10.0
LEASE_S = 3.0
SLACK_S = 2.0
ENDLESS = 1_000_000  # communications: the row ends the run


def edge_killed(folder: Path, quick: bool) -> Found:
    """SIGKILL an edge in the middle of its work, start it again, and wait for its next applied upload."""
    times = 1 if quick else 5
    config = configuration("hifl", ENDLESS, serve__lease_s=30.0, serve__client_s=10.0)
    took_s = []
    with Federation(folder / "federation", config) as federation:
        federation.start()
        for _ in range(times):
            _wait_for_upload(federation, 0, time.monotonic())
            federation.kill("edge-0")
            killed = time.monotonic()
            federation.start("edge-0")
            took_s.append(_wait_for_upload(federation, 0, killed) - killed)
            _wait_for_upload(federation, 1, time.monotonic())  # the other one works, too
        federation.kill(*federation.names)
        lost, twice = federation.lost(), federation.applied_twice()
    found = Found(
        f"an edge killed {times} x works again after {max(took_s):.1f} s at most",
        {"chaos_edge_back_s": max(took_s)},
        ports=list(federation.ports),
    )
    found.expect(max(took_s) < BACK_S, f"{max(took_s):.1f} s until the killed edge worked again")
    found.expect(not lost, f"acknowledged and lost: {lost[:3]}")
    found.expect(twice == 0, f"{twice} uploads applied twice")
    return found


def edge_frozen(folder: Path, quick: bool) -> Found:
    """SIGSTOP an edge until its lease expires, then let it go on."""
    times = 1 if quick else 3
    config = configuration("hifl", ENDLESS, serve__lease_s=LEASE_S)
    lost_s, back_s, leases = [], [], []
    with Federation(folder / "federation", config) as federation:
        federation.start()
        for _ in range(times):
            _wait_for_upload(federation, 0, time.monotonic())
            frozen, lease, rows = _freeze_with_lease(federation)
            leases.append(lease)
            wait_until(lambda rows=rows: _expired(federation, rows), 60.0, "the lease to expire")  # type: ignore[misc]
            lost_s.append(time.monotonic() - frozen)
            _wait_for_upload(federation, 1, time.monotonic())
            federation.nodes["edge-0"].signal(signal.SIGCONT)
            went_on = time.monotonic()
            back_s.append(_wait_for_upload(federation, 0, went_on) - went_on)
        federation.kill(*federation.names)
        twice, kept = federation.applied_twice(), federation.replayed().cloud.verdicts
    late = [kept[lease].status for lease in leases]
    found = Found(
        f"a frozen edge loses its lease of {LEASE_S:g} s after {max(lost_s):.1f} s, "
        f"works again {max(back_s):.1f} s after it goes on",
        {"chaos_lease_lost_s": max(lost_s), "chaos_lease_s": LEASE_S, "chaos_thawed_back_s": max(back_s)},
        ports=list(federation.ports),
    )
    found.expect(max(lost_s) <= LEASE_S + SLACK_S, f"{max(lost_s):.1f} s until the lease was lost")
    found.expect(min(lost_s) >= LEASE_S / 2, f"a lease was lost after {min(lost_s):.1f} s already")
    found.expect(set(late) == {"rejected"}, f"uploads of expired leases were {late}")
    found.expect(max(back_s) < BACK_S, f"{max(back_s):.1f} s until the frozen edge worked again")
    found.expect(twice == 0, f"{twice} uploads applied twice")
    return found


def end_missed(folder: Path, quick: bool) -> Found:
    """Freeze an edge until the run is over, kill the cloud that waits for it, and let both go on."""
    del quick
    config = configuration("hifl", 40, serve__lease_s=LEASE_S)
    with Federation(folder / "federation", config) as federation:
        federation.start()
        _wait_for_upload(federation, 1, time.monotonic())
        federation.nodes["edge-1"].signal(signal.SIGSTOP)
        wait_until(lambda: is_finished(federation.state), 60.0, "the end of the run")
        federation.kill("cloud")
        federation.start("cloud")
        time.sleep(1.0)
        federation.nodes["edge-1"].signal(signal.SIGCONT)
        begun = time.monotonic()
        federation.nodes["edge-1"].wait(60.0)
        heard_s = time.monotonic() - begun
        result = federation.finish()
        replayed = federation.replayed_digest()
    found = Found(
        f"an edge that missed the end hears of it {heard_s:.1f} s later, from a cloud that was killed since",
        {"chaos_end_heard_s": heard_s},
        ports=list(federation.ports),
    )
    found.expect(heard_s < BACK_S, f"{heard_s:.1f} s until the edge heard of the end")
    found.expect(replayed == result["digest"], "the journal gives another digest")
    return found


def _freeze_with_lease(federation: Federation) -> tuple[float, int, int]:
    """Stop edge 0 while it holds a lease; return when, the lease, and the rows of the journal then."""
    for _ in range(100):
        federation.nodes["edge-0"].signal(signal.SIGSTOP)
        frozen = time.monotonic()
        time.sleep(0.3)  # calls under way arrive
        rows = federation.rows()
        for lease in federation.replayed().cloud.leases.values():
            if lease.edge == 0:
                return frozen, lease.lease_id, rows
        federation.nodes["edge-0"].signal(signal.SIGCONT)
        time.sleep(0.1)
    raise RuntimeError("edge 0 never holds a lease")


def _expired(federation: Federation, rows: int) -> bool:
    return bool(federation.query("SELECT number FROM input WHERE kind = 'expire' AND number > ?", rows))


def _wait_for_upload(federation: Federation, edge: int, after: float) -> float:
    """Return when an edge next hears that its upload was applied."""
    told: list[float | None] = [None]

    def heard() -> bool:
        federation.check_alive()
        told[0] = federation.next_applied(edge, after)
        return told[0] is not None

    wait_until(heard, 60.0, f"an applied upload of edge {edge}")
    return told[0] or 0.0
