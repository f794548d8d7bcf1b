"""A comparison as tables for the terminal: costs at the targets, and totals of whole runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import Grid
from hiflash.report.measures import COSTS, MEASURES
from hiflash.report.methods import label
from hiflash.report.summary import (
    Groups,
    Result,
    all_targets,
    by_partition,
    common_target,
    is_reference,
    seed_row,
    statistics,
)
from hiflash.report.units import UNKNOWN, Unit, count, goal, size, spread

__all__ = ["compare_tables"]

_SECTIONS = ("communications", "client_steps", "virtual_s", "wan_bytes")
# Totals of whole runs; a column with only zeros is left out.
_WHOLE: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "staleness": ("staleness", lambda value: spread(value, None, "count")),
    "client_uploads": ("client\nuploads", count),
    "lan_bytes": ("LAN\nbytes", size),
    "wasted_client_steps": ("wasted\nsteps", count),
    "refused": ("refused", count),
    "waited": ("waited", count),
    "cancelled": ("cancelled", count),
    "discarded": ("discarded", count),
    "rejected": ("rejected", count),
    "abandoned": ("abandoned", count),
    "response_latency_ms": ("latency\nms", count),
    "waiting_ms": ("waiting\nms", count),
    "total_js": ("total\nJS", lambda value: UNKNOWN if value is None else f"{value:.2f}"),
}


def compare_tables(results: Sequence[Result], width: int) -> list[Table]:
    """Return the tables of every partition, no wider than the width: at the target, at all targets, totals.

    The best of each column is bold. A label competes only if all its seeds reached the target: otherwise
    its mean is over the lucky seeds alone.
    """
    target, targets = common_target(results), all_targets(results)
    tables: list[Table] = []
    for partition, groups in by_partition(results).items():
        where = f"{next(iter(groups.values()))[0]['data']}, {partition}"
        rivals = {name: cells for name, cells in groups.items() if not is_reference(cells[0])}
        tables += _main(groups, rivals, target, where).tables(width)
        if rivals:
            tables += _every(rivals, targets, where).tables(width)
            tables += _whole(rivals, where).tables(width)
    return tables


def _main(groups: Groups, rivals: Groups, target: float | None, where: str) -> Grid:
    ends = "at the end" if target is None else f"to {goal(target)} accuracy"
    rows = {name: seed_row(cells, target) for name, cells in groups.items()}
    best = _best(rows, rivals)
    columns = [("accuracy", [_cell(row, "accuracy", "share", best, name) for name, row in rows.items()])]
    for measure in COSTS:
        cells = []
        for name, row in rows.items():
            # The reference sends nothing, and a zero would make it look cheap.
            mean = row[f"{measure}_mean"] if name in rivals else None
            text = spread(mean, None, MEASURES[measure].unit)
            cells.append(Text(text, style=_style(mean, measure, best, name)))
        columns.append((MEASURES[measure].head, cells))
    columns.append(("reached", [_share(row) for row in rows.values()]))
    return Grid(f"{where}: {ends}, mean over seeds", "method", _names(groups), columns)


def _every(rivals: Groups, targets: Sequence[float], where: str) -> Grid:
    """Return the costs at every target that any run reached, with the deviation over seeds."""
    rows = {target: {name: seed_row(cells, target) for name, cells in rivals.items()} for target in targets}
    shown = [target for target in targets if any(row["reached"] for row in rows[target].values())]
    never = ", ".join(goal(target) for target in targets if target not in shown)
    notes = [_note(row for target in shown for row in rows[target].values())]
    notes.append(f"nobody reached {never}" if never else None)
    names: list[Text] = []
    cells: dict[float, list[Text]] = {target: [] for target in shown}
    sections = []
    for measure in _SECTIONS if shown else ():
        sections.append(len(names))
        names += [Text(MEASURES[measure].words, style="italic"), *_names(rivals)]
        for target in shown:
            best = _best(rows[target], rivals)
            cells[target].append(Text(""))
            cells[target] += [
                _cell(row, measure, MEASURES[measure].unit, best, name) for name, row in rows[target].items()
            ]
    if any(row["reached"] < row["seeds"] for target in shown for row in rows[target].values()):
        sections.append(len(names))
        names += [Text("seeds that reached it", style="italic"), *_names(rivals)]
        for target in shown:
            cells[target] += [Text(""), *(_share(row) for row in rows[target].values())]
    several = ", mean±deviation over seeds" if max(map(len, rivals.values())) > 1 else ""
    return Grid(
        f"{where}: to every target{several}",
        "method",
        names,
        [(goal(target), cells[target]) for target in shown],
        "; ".join(filter(None, notes)) or None,
        frozenset(sections),
    )


def _whole(rivals: Groups, where: str) -> Grid:
    """Return the totals of whole runs."""
    means = {key: [_mean(cells, key) for cells in rivals.values()] for key in _WHOLE}
    columns = [
        (_WHOLE[key][0], [Text(_WHOLE[key][1](value)) for value in values])
        for key, values in means.items()
        if any(values)
    ]
    return Grid(f"{where}: whole runs, mean over seeds", "method", _names(rivals), columns)


def _names(groups: Groups) -> list[Text]:
    return [Text(label(name)) for name in groups]


def _share(row: Mapping[str, Any]) -> Text:
    return Text(f"{row['reached']}/{row['seeds']}")


def _note(rows: Iterable[Mapping[str, Any]]) -> str | None:
    partly = any(0 < row["reached"] < row["seeds"] for row in rows)
    return "* mean of the seeds that reached it" if partly else None


def _mean(cells: Sequence[Result], key: str) -> float | None:
    values = [cell[key]["mean"] if key == "staleness" else cell[key] for cell in cells]
    return statistics("x", values)["x_mean"]


def _best(rows: Mapping[str, Mapping[str, Any]], rivals: Groups) -> dict[str, tuple[float, Groups]]:
    """Return the best mean of every column and its competitors; a lone label has none."""
    if len(rivals) < 2:
        return {}
    finishers = {name: rivals[name] for name in rivals if rows[name]["reached"] == rows[name]["seeds"]}
    best = {name: (min(_present(rows, finishers, name), default=-1.0), finishers) for name in COSTS}
    return best | {"accuracy": (max(_present(rows, rivals, "accuracy"), default=-1.0), rivals)}


def _present(rows: Mapping[str, Mapping[str, Any]], names: Iterable[str], measure: str) -> list[float]:
    means = (rows[name][f"{measure}_mean"] for name in names)
    return [mean for mean in means if mean is not None]


def _cell(
    row: Mapping[str, Any], measure: str, unit: Unit, best: Mapping[str, tuple[float, Groups]], name: str
) -> Text:
    mean = row[f"{measure}_mean"]
    partly = measure != "accuracy" and 0 < row["reached"] < row["seeds"]
    text = spread(mean, row[f"{measure}_std"], unit) + ("*" if partly else "")
    return Text(text, style=_style(mean, measure, best, name))


def _style(mean: float | None, measure: str, best: Mapping[str, tuple[float, Groups]], name: str) -> str:
    value, who = best.get(measure, (None, {}))
    return "bold" if name in who and mean is not None and mean == value else ""
