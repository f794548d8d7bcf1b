"""What a finished run did for each edge: accuracy on its label mix, and how often it was turned away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.sim.federation import Federation, build
from hiflash.sim.result import Result
from hiflash.store.files import write_atomic
from hiflash.study.cells import Cell
from hiflash.weights import from_bytes

__all__ = ["edge_accuracy", "measure_edges", "turned_away"]

FILE = "edges.json"


def measure_edges(
    cells: Sequence[Cell], results: Sequence[Result], progress: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """Return what `edges.json` in the folder of every cell holds, in the order of the cells.

    What is not there yet is computed from the saved model and events, once per run.
    """
    measured: dict[str, dict[str, Any]] = {}
    waiting: dict[str, list[tuple[Cell, Result]]] = {}
    for cell, result in zip(cells, results, strict=True):
        there = _read(result)
        if there is None:
            waiting.setdefault(_federation_of(cell), []).append((cell, result))
        else:
            measured[cell.name] = there
    for group in waiting.values():
        # No threshold is asked for: what became of an agent does not matter.
        federation = build(group[0][0].config.with_random_thresholds())
        try:
            durations = _durations(federation)
            for cell, result in group:
                measured[cell.name] = _measure(federation, result, durations)
                if progress is not None:
                    progress(len(measured))
        finally:
            federation.close()
    return [measured[cell.name] for cell in cells]


def edge_accuracy(
    recall: Sequence[float], labels: np.ndarray, clusters: Sequence[Sequence[int]]
) -> list[float]:
    """Return the accuracy on each edge's label mix: the sum over classes of LD^m(c) times the recall of c.

    An edge without samples has none, and is left out.
    """
    mixes = [labels[list(cluster)].sum(axis=0) for cluster in clusters]
    return [float(mix @ np.asarray(recall) / mix.sum()) for mix in mixes if mix.sum()]


def turned_away(events: Path, edges: int) -> dict[str, list[int]]:
    """Return how often each edge was granted, was refused by the policy, and was not admitted."""
    counts = {name: [0] * edges for name in ("granted", "refused", "waited")}
    with events.open(encoding="utf-8") as lines:
        for line in lines:
            if '"event":"grant"' in line or '"event":"refuse"' in line:  # most lines are about rounds
                row = json.loads(line)
                counts["granted" if row["event"] == "grant" else row["reason"]][row["edge"]] += 1
    return counts


def _read(result: Result) -> dict[str, Any] | None:
    """Return what is already known of this very run."""
    if result.path is None or not (result.path / FILE).is_file():
        return None
    known: dict[str, Any] = json.loads((result.path / FILE).read_bytes())
    return known if known.get("digest") == result.digest else None


def _federation_of(cell: Cell) -> str:
    """Return what is equal for cells with the same clients, edges and test set: all but the cloud's rules."""
    settings: Mapping[str, Any] = cell.config.decisive()
    return json.dumps({key: value for key, value in settings.items() if not key.startswith("cloud.")})


def _durations(federation: Federation) -> list[float]:
    """Return the seconds that a lease of each edge takes at mean resources."""
    engine: Any = federation.engine(lambda now, kind, row: None)
    return [edge.estimates.costs(edge.rounds).duration_s for edge in engine.edges]


def _measure(federation: Federation, result: Result, durations: Sequence[float]) -> dict[str, Any]:
    if result.path is None:
        raise ValueError("a run that was not saved has no model to measure")
    weights = from_bytes((result.path / "model.safetensors").read_bytes(), federation.start.spec)
    people = federation.population
    if people.labels is None:
        raise ValueError("without labels an edge has no label mix")
    measured = {
        "digest": result.digest,
        "edge_accuracy": edge_accuracy(federation.recall(weights), people.labels, people.edge_clusters),
        "duration_s": list(durations),
        **turned_away(result.path / "events.jsonl", len(durations)),
    }
    write_atomic(result.path / FILE, json.dumps(measured) + "\n")
    return measured
