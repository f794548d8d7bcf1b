"""Measures a finished run edge by edge: accuracy on the edge's labels, grants and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.errors import DamageError, ProtocolError
from hiflash.messages import Weights
from hiflash.sim.federation import Federation, build
from hiflash.sim.result import Result
from hiflash.store.checksums import check_file, json_sha256
from hiflash.store.files import write_atomic
from hiflash.study.cells import Cell
from hiflash.weights import digest, from_bytes

__all__ = ["edge_accuracy", "measure_edges", "turned_away"]

FILE = "edges.json"
AGAIN = "remove its folder and run it again"


def measure_edges(
    cells: Sequence[Cell], results: Sequence[Result], progress: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """Return the contents of `edges.json` for every cell, in the order of the cells.

    A missing file is computed once from the saved model and events of the run. Damaged runs raise an error
    after all others are measured.
    """
    damaged: list[str] = []
    measured: dict[str, dict[str, Any]] = {}
    waiting: dict[str, list[tuple[Cell, Result]]] = {}
    for cell, result in zip(cells, results, strict=True):
        there = _read(result)
        if there is None:
            waiting.setdefault(_federation_of(cell), []).append((cell, result))
        else:
            measured[cell.name] = there
    for group in waiting.values():
        # Measuring needs no thresholds, so the agent of the run may be gone.
        federation = build(group[0][0].config.with_random_thresholds())
        try:
            durations = _durations(federation)
            for cell, result in group:
                try:
                    measured[cell.name] = _measure(federation, result, durations)
                except DamageError as error:
                    damaged.append(f"{cell.name}: {error}")
                if progress is not None:
                    progress(len(measured))
        finally:
            federation.close()
    if damaged:
        raise DamageError("\n".join(damaged))
    return [measured[cell.name] for cell in cells]


def edge_accuracy(
    recall: Sequence[float], labels: np.ndarray, clusters: Sequence[Sequence[int]]
) -> list[float]:
    """Return the accuracy on each edge's label mix: the sum over classes of LD^m(c) times the recall of c.

    Edges without samples are left out.
    """
    mixes = [labels[list(cluster)].sum(axis=0) for cluster in clusters]
    return [float(mix @ np.asarray(recall) / mix.sum()) for mix in mixes if mix.sum()]


def turned_away(events: Path, edges: int) -> dict[str, list[int]]:
    """Return the counts of grants, refusals by the policy, and waits of each edge."""
    counts = {name: [0] * edges for name in ("granted", "refused", "waited")}
    with events.open(encoding="utf-8") as lines:
        for line in lines:
            if '"event":"grant"' in line or '"event":"refuse"' in line:  # most lines are about rounds
                row = json.loads(line)
                counts["granted" if row["event"] == "grant" else row["reason"]][row["edge"]] += 1
    return counts


def _read(result: Result) -> dict[str, Any] | None:
    """Return the saved measures of this run; None if they are missing, damaged or of another run."""
    if result.path is None or not (result.path / FILE).is_file():
        return None
    try:
        known = json.loads((result.path / FILE).read_bytes())
    except ValueError:
        return None
    if not isinstance(known, dict) or known.pop("sha256", None) != json_sha256(known):
        return None
    return known if known.get("digest") == result.digest else None


def _federation_of(cell: Cell) -> str:
    """Return a key for the federation of a cell: all settings except the cloud's."""
    settings: Mapping[str, Any] = cell.config.decisive()
    return json.dumps({key: value for key, value in settings.items() if not key.startswith("cloud.")})


def _durations(federation: Federation) -> list[float]:
    """Return the seconds that a lease of each edge takes at mean resources."""
    engine: Any = federation.engine(lambda now, kind, row: None)
    return [edge.estimates.costs(edge.rounds).duration_s for edge in engine.edges]


def _measure(federation: Federation, result: Result, durations: Sequence[float]) -> dict[str, Any]:
    if result.path is None:
        raise ValueError("a run that was not saved has no model to measure")
    weights = _saved_model(result.path, result.digest, federation)
    events = result.path / "events.jsonl"
    check_file(result.path, events.name, AGAIN)
    try:
        counts = turned_away(events, len(durations))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DamageError(f"{events} is damaged ({error}); {AGAIN}") from error
    people = federation.population
    if people.labels is None:
        raise ValueError("without labels an edge has no label mix")
    measured = {
        "digest": result.digest,
        "edge_accuracy": edge_accuracy(federation.recall(weights), people.labels, people.edge_clusters),
        "duration_s": list(durations),
        **counts,
    }
    content = {**measured, "sha256": json_sha256(measured)}
    write_atomic(result.path / FILE, json.dumps(content) + "\n")
    return measured


def _saved_model(folder: Path, expected: str, federation: Federation) -> Weights:
    """Return the model that a run ended with."""
    file = folder / "model.safetensors"
    try:
        weights = from_bytes(file.read_bytes(), federation.start.spec)
        if digest(weights) != expected:
            raise ProtocolError("its digest does not match")  # noqa: TRY301  # said below
    except (OSError, ProtocolError) as error:
        raise DamageError(f"{file} is damaged ({error}); {AGAIN}") from error
    return weights
