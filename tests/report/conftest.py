"""Made-up results with the shape that the engine writes."""

from collections.abc import Callable
from typing import Any

import pytest

MakeResult = Callable[..., dict[str, Any]]


@pytest.fixture
def make_result() -> MakeResult:
    """Return a maker of results whose accuracies are evaluated every `every` communications."""
    return _make_result


def _make_result(
    method: str = "hifl",
    seed: int = 0,
    accuracies: tuple[float | None, ...] = (0.2, 0.5, 0.8, 0.91),
    target: float | None = 0.9,
    every: int = 10,
    **more: Any,
) -> dict[str, Any]:
    evaluations: list[dict[str, Any]] = [
        {
            "communications": every * (i + 1),
            "client_steps": 300 * every * (i + 1),
            "virtual_s": 2.5 * every * (i + 1),
            "wan_bytes": 100_000 * every * (i + 1),
            "lan_bytes": 1_000_000 * every * (i + 1),
            "total_cost": 1.5 * every * (i + 1),
            "version": every * (i + 1),
            "accuracy": accuracy,
            "loss": 0.5,
        }
        for i, accuracy in enumerate(accuracies)
    ]
    last = evaluations[-1] if evaluations else dict.fromkeys(_MEASURES, 0) | {"lan_bytes": 0, "version": 0}
    targets = {str(t): _first(evaluations, t) for t in (0.7, 0.9)}
    seen = [a for a in accuracies if a is not None]
    return {
        "name": f"{method} seed {seed}",
        "method": method,
        "data": "mnist5k",
        "partition": "pooled" if method == "centralized" else "noniid2",
        "seed": seed,
        "digest": "0123456789abcdef0123",
        "trainer": "torch",
        "wasted_client_steps": 120,
        "client_uploads": 77,
        "compute_cost": 5.0,
        "send_cost": 4.0,
        "response_latency_ms": 88.0,
        "waiting_ms": 40.0,
        "total_js": 0.5,
        "loss": 0.5,
        "grants_per_edge": [3, 5],
        "applied_per_edge": [2, 5],
        **{f"{net}_bytes_{way}": 1000 for net in ("wan", "lan") for way in ("up", "down")},
        **dict.fromkeys(("refused", "waited", "cancelled", "discarded", "rejected", "abandoned"), 0),
        **{name: last[name] for name in (*_MEASURES, "lan_bytes", "version")},
        "accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(seen, default=None),
        "evaluations": evaluations,
        "targets": targets,
        "targets_stable": dict.fromkeys(targets),
        "staleness": {"mean": 1.25, "max": 4, "histogram": {"0": 3}},
        "thresholds": {"2": 3, "6": 1, "inf": 2},
        "stop_reason": "target 0.9 reached",
        "stop_target": target,
        **more,
    }


_MEASURES = ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost")


def _first(evaluations: list[dict[str, Any]], target: float) -> dict[str, Any] | None:
    reached = (e for e in evaluations if e["accuracy"] is not None and e["accuracy"] >= target)
    return next(({name: e[name] for name in _MEASURES} for e in reached), None)


@pytest.fixture
def with_validation() -> Callable[..., dict[str, Any]]:
    """Return what gives a made-up result a validation set with accuracies of its own."""
    return _with_validation


def _with_validation(result: dict[str, Any], accuracies: tuple[float, ...]) -> dict[str, Any]:
    rows = [
        {**row, "validation_accuracy": accuracy, "validation_loss": 0.4}
        for row, accuracy in zip(result["evaluations"], accuracies, strict=True)
    ]
    on_it = [{**row, "accuracy": row["validation_accuracy"]} for row in rows]
    best = max(rows, key=lambda row: row["validation_accuracy"])
    return {
        **result,
        "evaluations": rows,
        "stop_set": "validation",
        "validation": {
            "share": 0.1,
            "samples": 500,
            "scores": {"accuracy": accuracies[-1], "loss": 0.4},
            "best": best["validation_accuracy"],
            "test_at_best": best["accuracy"],
            "targets": {target: _first(on_it, float(target)) for target in result["targets"]},
        },
    }
