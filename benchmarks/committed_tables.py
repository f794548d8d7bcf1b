"""Reads the measured values of committed result tables (docs/results) from their Markdown."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

__all__ = ["RESULTS", "Measured", "agent_tables", "method_table", "method_tables", "number", "tables"]

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "s": 1.0, "min": 60.0}
COMMS, SECONDS, REACHED = "Communications to 90 %", "Virtual seconds", "Seeds that reached it"
PARTITION = re.compile(r"Non-IID\((\d)\)")


@dataclass(frozen=True)
class Measured:
    """One row of a table: the means over its seeds of what a label took to the target."""

    label: str
    seeds: int
    reached: int
    communications: float | None
    virtual_s: float | None

    @property
    def whole(self) -> bool:
        """Return whether every seed reached the target."""
        return self.reached == self.seeds


def method_tables(path: Path) -> dict[str, list[Measured]]:
    """Return the rows of a page like `methods_mnist.md` by partition."""
    found: dict[str, list[Measured]] = {}
    for heading, rows in tables(path.read_text()).items():
        partition = PARTITION.search(heading)
        if partition is None or not rows or COMMS not in rows[0]:
            continue
        found[f"noniid{partition[1]}"] = [
            _measured(
                row["Method"],
                row[REACHED].split(" of "),
                row[COMMS],
                row[SECONDS],
            )
            for row in rows
        ]
    return found


def agent_tables(path: Path) -> dict[tuple[str, str, str], list[Measured]]:
    """Return the rows of `agent_mnist/table.md` by association, enforcement and dynamics."""
    found = {}
    for heading, rows in tables(path.read_text()).items():
        where, _, what = heading.partition(":")
        if what.strip() != "to 90% accuracy":
            continue
        association, enforce, dynamics = (word.strip() for word in where.split(","))
        kind = "noniid" if association == "Edge-NonIID" else "aware"
        found[kind, enforce, dynamics] = [
            _measured(row["policy"], row["reached"].split("/"), row["comms"], row["virtual time"])
            for row in rows
        ]
    return found


def method_table(cells: Sequence[Mapping[str, Any]], target: float) -> str:
    """Return the table of a page like `methods_mnist.md` from the cells of a `compare.json`."""
    heads = ("Method", COMMS, "Client steps", SECONDS, "WAN MB", REACHED)
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(cell["label"], []).append(cell)
    scales = {"communications": 1, "client_steps": 1, "virtual_s": 1, "wan_bytes": 1e6}
    for label, runs in groups.items():
        states = [run["targets"][str(target)] for run in runs]
        there = [state for state in states if state is not None]
        words = [_range([state[name] / scale for state in there]) for name, scale in scales.items()]
        lines.append(f"| {label} | {' | '.join(words)} | {len(there)} of {len(runs)} |")
    return "\n".join(lines)


def tables(text: str) -> dict[str, list[dict[str, str]]]:
    r"""Return the rows of the first table under every heading of a Markdown page, as columns by name.

    >>> tables("# A\n\n| x | y |\n| --- | --- |\n| 1 | **2** |")
    {'A': [{'x': '1', 'y': '2'}]}
    """
    found: dict[str, list[dict[str, str]]] = {}
    heading, lines = "", list[list[str]]()
    for line in [*text.splitlines(), "#"]:
        if line.startswith("|"):
            lines.append([cell.strip().strip("*") for cell in line.strip().strip("|").split("|")])
            continue
        if lines and heading not in found:
            found[heading] = [dict(zip(lines[0], row, strict=True)) for row in lines[2:]]
        lines = []
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
    return found


def number(text: str) -> float | None:
    """Return the mean in a cell: `2,523 (2,250-2,950)`, `1.20±0.16 k`, `63.2±12.1 s`; None for `-`.

    >>> number("2,523 (2,250-2,950)"), number("1.20±0.16 k"), number("63.2±12.1 s")
    (2523.0, 1200.0, 63.2)
    """
    if text == "-":
        return None
    matched = re.fullmatch(r"([\d.,]+)(?:±[\d.]+)?(?: \([^)]*\))?(?: ([a-zA-Z]+))?", text)
    if matched is None:
        raise ValueError(f"no number in the cell {text!r}")
    return float(matched[1].replace(",", "")) * SCALES[matched[2] or ""]


def main() -> None:
    """Print the table of a comparison: `python -m benchmarks.committed_tables runs/NAME/compare.json`."""
    cells = json.loads(Path(sys.argv[1]).read_text())["cells"]
    print(method_table(cells, 0.9))


def _measured(label: str, share: list[str], communications: str, virtual_s: str) -> Measured:
    return Measured(label, int(share[1]), int(share[0]), number(communications), number(virtual_s))


def _range(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{fmean(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})"


if __name__ == "__main__":
    main()
