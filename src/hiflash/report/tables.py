"""Results as tables for the terminal, and as rows for JSON and CSV."""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from hiflash.report.methods import CENTRALIZED, label
from hiflash.report.summary import MEASURES, Result, at_target, by_method, common_target, known
from hiflash.report.units import UNKNOWN, count, duration, percent, size
from hiflash.store.files import replacing

__all__ = ["compare_table", "plain_rows", "run_table", "write_csv"]

_HEADS: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "communications": ("comms", count),
    "client_steps": ("client\nsteps", count),
    "virtual_s": ("virtual\ntime", duration),
    "wan_bytes": ("WAN", size),
    "total_cost": ("cost", count),
}


def run_table(result: Result) -> Table:
    """Return a summary of one run in two columns."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"{label(result['method'])} on {result['data']}, {result['partition']}, seed {result['seed']}",
        title_style="bold",
        show_header=False,
        pad_edge=False,
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    staleness = result["staleness"]
    reached = [
        f"{percent(float(target)).replace('.0%', '%')} after {count(state['communications'])}"
        for target, state in sorted(result["targets"].items(), key=lambda item: float(item[0]))
        if state is not None
    ]
    steps = f"{count(result['client_steps'])} ({count(result['wasted_client_steps'])} wasted)"
    for name, value in (
        ("accuracy", f"{percent(result['accuracy'])} (best {percent(result['best_accuracy'])})"),
        ("communications", count(result["communications"])),
        ("client steps", steps),
        ("virtual time", duration(result["virtual_s"])),
        ("bytes", f"WAN {size(result['wan_bytes'])}, LAN {size(result['lan_bytes'])}"),
        ("cost", count(result["total_cost"])),
        ("staleness", f"mean {count(staleness['mean'])}, max {count(staleness['max'])}"),
        ("targets", ", ".join(reached) + " communications" if reached else "none reached"),
        ("stopped", result["stop_reason"]),
        ("digest", result["digest"][:12]),
    ):
        # Text, because a name or a reason is shown as it is and not read as markup.
        table.add_row(name, Text(value))
    return table


def compare_table(results: Sequence[Result]) -> Table:
    """Return a row per method with what it took to reach the target; the best of each column is bold.

    Only methods whose every seed reached the target compete: a mean over the lucky ones is no mean to win by.
    """
    rows = plain_rows(results)
    target = common_target(results)
    goal = "at the end" if target is None else f"to {percent(target).replace('.0%', '%')} accuracy"
    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"Mean over seeds, {goal}",
        title_style="bold",
        pad_edge=False,
        collapse_padding=True,  # all the columns in 80 characters
    )
    for head in ("method", "accuracy", *(head for head, _ in _HEADS.values()), "reached"):
        table.add_column(head, justify="left" if head == "method" else "right", vertical="top", no_wrap=True)
    rivals = [row for row in rows if row["method"] != CENTRALIZED]
    finishers = [row for row in rivals if row["reached"] == row["seeds"]]
    top = max(_present(rivals, "accuracy_mean"), default=None)
    least = {name: min(_present(finishers, f"{name}_mean"), default=None) for name in MEASURES}
    for row in rows:
        contends = len(rivals) > 1 and row in rivals
        cells = [_cell(_spread(row), contends and row["accuracy_mean"] == top)]
        for name, (_, write) in _HEADS.items():
            # The reference sends nothing, so a zero there would say that it was cheap.
            value = None if row["method"] == CENTRALIZED else row[f"{name}_mean"]
            cells.append(_cell(write(value), contends and row in finishers and value == least[name]))
        table.add_row(Text(label(row["method"])), *cells, f"{row['reached']}/{row['seeds']}")
    return table


def plain_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return a flat row of numbers per method: `<name>_mean`, `<name>_std` (of the sample), `<name>_n`.

    `accuracy` is the final one of every seed; the rest is taken at the target, where a seed reached it.
    """
    target = common_target(results)
    rows = []
    for method, cells in by_method(results).items():
        reached = [state for state in (at_target(cell, target) for cell in cells) if state is not None]
        row: dict[str, Any] = {
            "method": method,
            "target": target,
            "seeds": len(cells),
            "reached": len(reached),
        }
        row |= _statistics("accuracy", [cell["accuracy"] for cell in cells])
        for name in MEASURES:
            row |= _statistics(name, [state[name] for state in reached])
        rows.append(row)
    return rows


def write_csv(results: Sequence[Result], path: Path) -> None:
    """Write a row per cell: its scalars, its staleness and every target's measures (empty: not reached)."""
    rows = [_flat(result) for result in results]
    columns = dict.fromkeys(name for row in rows for name in row)
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _statistics(name: str, values: Iterable[float | None]) -> dict[str, float | int | None]:
    numbers = [float(value) for value in values if value is not None and known(value)]
    return {
        f"{name}_mean": fmean(numbers) if numbers else None,
        f"{name}_std": stdev(numbers) if len(numbers) > 1 else None,
        f"{name}_n": len(numbers),
    }


def _present(rows: Iterable[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]


def _spread(row: dict[str, Any]) -> str:
    mean, spread = row["accuracy_mean"], row["accuracy_std"]
    if mean is None or spread is None:
        return percent(mean)
    return f"{percent(mean)} ± {100 * spread:.1f}"


def _cell(text: str, best: bool) -> Text:
    return Text(text, style="bold" if best and text != UNKNOWN else "")


def _flat(result: Result) -> dict[str, Any]:
    row = {
        name: value for name, value in result.items() if value is None or isinstance(value, str | int | float)
    }
    row |= {f"staleness_{name}": result["staleness"][name] for name in ("mean", "max")}
    for kind, prefix in (("targets", "target"), ("targets_stable", "stable_target")):
        for target, state in result[kind].items():
            row |= {f"{prefix}_{target}_{name}": state[name] if state else None for name in MEASURES}
    return row
