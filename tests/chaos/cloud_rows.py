"""Rows that kill the cloud: at random instants, and at every named point."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from chaos.federation import ENDS_S, Federation, configuration, simulated_digest
from chaos.processes import in_child
from chaos.rows import Found
from hiflash.store.crash import POINTS
from hiflash.store.run_directory import is_finished

__all__ = ["crash_points", "sigkills"]

KILLS = 25
CRASHED = 86  # the exit code of a crash point
WHILE_STARTING = 0.2  # the share of kills that hit a cloud while it starts
POINT_COMMUNICATIONS = 16
# How often a point is passed before the cloud dies there, where that is not two times: not every commit holds
# an upload, and not every answer a verdict.
COUNTS = {
    **dict.fromkeys(
        ("journal.before", "journal.inserted", "journal.committed", "answer.before"), (5, 6, 7, 9, 12)
    ),
    **dict.fromkeys(("result.written", "result.renamed"), (1,)),
}


def sigkills(folder: Path, quick: bool) -> Found:
    """SIGKILL the cloud again and again while HierFAVG runs."""
    kills = 3 if quick else KILLS
    config = configuration("hierfavg", 12 * kills)
    simulated = in_child(lambda: simulated_digest(config), ENDS_S)
    with Federation(folder / "undisturbed", config) as calm:
        calm.start()
        undisturbed = calm.finish()["digest"]
    with Federation(folder / "killed", config) as rough:
        rough.start()
        made, starting = _kill(rough, kills, np.random.default_rng(25))
        result = rough.finish()
        replayed, lost = rough.replayed_digest(), rough.lost()
    found = Found(
        f"{made} SIGKILLs of the cloud ({starting} while it started), digest {result['digest'][:12]}",
        {"chaos_kills": made, "chaos_kills_while_starting": starting, "chaos_kills_lost": len(lost)},
        ports=[*calm.ports, *rough.ports],
    )
    found.expect(made == kills, f"{made} of {kills} kills before the run was over")
    found.expect(undisturbed == simulated, "the undisturbed run has another digest than the simulator")
    found.expect(result["digest"] == undisturbed, "the killed run has another digest than the undisturbed")
    found.expect(replayed == undisturbed, "the journal gives another digest")
    found.expect(not lost, f"acknowledged and lost: {lost[:3]}")
    return found


def _kill(rough: Federation, kills: int, stream: np.random.Generator) -> tuple[int, int]:
    """Kill the cloud so often; return how often it was, and how often while it started."""
    made = starting = 0
    rough.wait_for_rows(1)
    while made < kills:
        early = stream.random() < WHILE_STARTING
        if early:
            time.sleep(stream.uniform(0.0, 0.2))
        else:
            rough.wait_for_rows(rough.rows() + int(stream.integers(1, 8)))
            time.sleep(stream.uniform(0.0, 0.02))
        if is_finished(rough.state):
            break
        rough.kill("cloud")
        rough.start("cloud")
        made += 1
        starting += early
    return made, starting


def crash_points(folder: Path, quick: bool) -> Found:
    """Let the cloud die at every named point, go on, and look for what it had acknowledged."""
    points = POINTS if not quick else ("journal.committed", "checkpoint.renamed")
    config = configuration("hierfavg", POINT_COMMUNICATIONS, serve__snapshot_rows=10)
    undisturbed = in_child(lambda: simulated_digest(config), ENDS_S)
    found = Found("", {})
    died = told = lost = deaths = 0
    for point in points:
        keep = "snapshot" if point == "snapshot.forgotten" else "all"
        counts = COUNTS.get(point, (2,))[: 1 if quick else None]
        for count in counts:
            kept = config.with_settings({"serve.keep": keep})
            with Federation(folder / f"{point}-{count}", kept) as federation:
                code, answers, gone = _die_at(f"{point}:{count}", federation, undisturbed, found)
            found.ports += federation.ports
            deaths, told, lost = deaths + (code == CRASHED), told + answers, lost + gone
        died += all(f"{point}:" not in missed for missed in found.missed)
    found.line = f"{deaths} deaths at {len(points)} points, {told} acknowledged answers, {lost} lost"
    found.figures = {
        "chaos_crash_points": died,
        "chaos_crash_deaths": deaths,
        "chaos_crash_acknowledged": told,
        "chaos_crash_lost": lost,
    }
    return found


def _die_at(point: str, federation: Federation, undisturbed: str, found: Found) -> tuple[int, int, int]:
    """Run a federation whose cloud dies at a point and goes on; return its code, answers told, and lost."""
    federation.start("cloud", environment={"HIFLASH_CRASH": point})
    federation.start(*federation.names[1:])
    code = federation.nodes["cloud"].wait(ENDS_S)
    federation.start("cloud")
    digest = federation.finish()["digest"]
    lost = federation.lost()
    found.expect(code == CRASHED, f"{point}: the cloud ended with {code}")
    found.expect(digest == undisturbed, f"{point}: another digest than undisturbed")
    found.expect(federation.replayed_digest() == digest, f"{point}: the journal gives another digest")
    found.expect(not lost, f"{point}: acknowledged and lost: {lost[:3]}")
    return code, len(federation.acknowledged()) + len(federation.acknowledged("grant")), len(lost)
