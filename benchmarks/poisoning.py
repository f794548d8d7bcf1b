"""Accuracy of each rule under each attack, as in docs/robustness.md: `python -m benchmarks.poisoning`."""

from __future__ import annotations

from typing import Any

import hiflash

__all__ = ["main", "table"]

FLAT: dict[str, Any] = {
    "method": "fedavg",
    "federation": {"clients": 10, "edges": 1},
    "data": {"partition": "iid"},
    "client": {"lr": 0.05},
    "stop": {"target": "none", "communications": 1000, "client_steps": 3000},
    "evaluate": {"every": 100},
}
HIERARCHICAL: dict[str, Any] = {
    "method": "hifl",
    "cloud": {"mixing": "delta", "alpha": 1.0, "threshold": 2},
    "stop": {"target": "none", "communications": 150, "client_steps": 9000},
    "evaluate": {"every": 50},
}
ATTACKS: dict[str, dict[str, Any]] = {
    "none": {},
    "sign_flip": {"kind": "sign_flip", "share": 0.2, "scale": 10.0},
    "noise": {"kind": "noise", "share": 0.2, "scale": 1.0},
    "label_flip": {"kind": "label_flip", "share": 0.2},
}
RULES: dict[str, dict[str, Any]] = {
    "mean": {},
    "median": {"aggregate": "median"},
    "trimmed mean, 2 of 10 a side": {"aggregate": "trimmed_mean", "trim": 0.2},
    "Krum, f = 2": {"aggregate": "krum", "byzantine": 2},
    "multi-Krum, f = 2, best 6": {"aggregate": "krum", "byzantine": 2, "krum_keep": 6},
    "norm clipping at 0.5": {"aggregate": "norm_clip", "clip_norm": 0.5},
}


def table(common: dict[str, Any], where: str, attacks: list[str], rules: list[str]) -> list[str]:
    """Return the rows of a table; `where` the rules are applied is `edge` or `cloud`."""
    rows = [f"| Rule | {' | '.join(attacks)} |", f"| --- |{' --- |' * len(attacks)}"]
    for rule in rules:
        section = {**common.get(where, {}), **RULES[rule]}
        results = [hiflash.run(**{**common, where: section}, attack=ATTACKS[attack]) for attack in attacks]
        rows.append(f"| {rule} | {' | '.join(f'{result.accuracy:.3f}' for result in results)} |")
    return rows


def main() -> None:
    """Print both tables."""
    print("\n".join(table(FLAT, "cloud", list(ATTACKS), list(RULES))))
    print("\n".join(table(HIERARCHICAL, "edge", ["none", "sign_flip"], list(RULES)[:5])))


if __name__ == "__main__":
    main()
