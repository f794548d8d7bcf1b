"""A comparison as tables for the terminal: costs at the targets, and totals of whole runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.core.metrics import Metric
from hiflash.report.grid import Grid
from hiflash.report.measures import COSTS, MEASURES
from hiflash.report.methods import label
from hiflash.report.outcome import aim, mark, measure_of, metric_among, show, validated
from hiflash.report.summary import (
    Groups,
    Result,
    all_targets,
    by_partition,
    common_target,
    is_reference,
    over_seeds,
    seed_row,
    statistics,
)
from hiflash.report.units import UNKNOWN, Unit, count, size, spread

__all__ = ["compare_tables"]

Best = dict[str, tuple[float | None, Groups]]
"""The best mean of every column, and the labels that compete for it."""

STOPPED_ON = "all numbers are of the test set; runs stopped on the validation set"
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


def compare_tables(results: Sequence[Result], width: int, *, deviations: bool = False) -> list[Table]:
    """Return the tables of every partition, no wider than the width: at the target, at all targets, totals.

    The best of each column is bold. A label competes only if all its seeds reached the target: otherwise
    its mean is over the lucky seeds alone. `deviations` are for a page with room for them: the terminal's
    first table has only means.
    """
    target, targets = common_target(results), all_targets(results)
    tables: list[Table] = []
    for partition, groups in by_partition(results).items():
        where = f"{next(iter(groups.values()))[0]['data']}, {partition}"
        rivals = {name: cells for name, cells in groups.items() if not is_reference(cells[0])}
        tables += _main(groups, rivals, target, where, deviations=deviations).tables(width)
        if rivals:
            tables += _every(rivals, targets, where).tables(width)
            tables += _whole(rivals, where).tables(width)
    return tables


def _main(groups: Groups, rivals: Groups, target: float | None, where: str, *, deviations: bool) -> Grid:
    metric = metric_among([cell for cells in groups.values() for cell in cells])
    ends = "at the end" if target is None else f"to {aim(target, metric)}"
    rows = {name: seed_row(cells, target) for name, cells in groups.items()}
    best, unit = _best(rows, rivals, metric), measure_of(metric.name, metric).unit
    columns = [(metric.name, [_cell(row, metric.name, unit, best, name) for name, row in rows.items()])]
    for measure in COSTS:
        cells = []
        for name, row in rows.items():
            # The reference sends nothing, and a zero would make it look cheap.
            mean = row[f"{measure}_mean"] if name in rivals else None
            deviation = row[f"{measure}_std"] if deviations else None
            text = spread(mean, deviation, MEASURES[measure].unit)
            cells.append(Text(text, style=_style(mean, measure, best, name)))
        columns.append((MEASURES[measure].head, cells))
    columns.append(("reached", [_share(row) for row in rows.values()]))
    means = over_seeds(groups, "mean±deviation" if deviations else "mean")
    results = [cell for cells in groups.values() for cell in cells]
    caption = STOPPED_ON if validated(results) and target is not None else None
    return Grid(f"{where}: {ends}, {means}", "method", _names(groups), columns, caption)


def _every(rivals: Groups, targets: Sequence[float], where: str) -> Grid:
    """Return the costs at every target that any run reached, with the deviation over seeds."""
    metric = metric_among([cell for cells in rivals.values() for cell in cells])
    rows = {target: {name: seed_row(cells, target) for name, cells in rivals.items()} for target in targets}
    shown = [target for target in targets if any(row["reached"] for row in rows[target].values())]
    never = ", ".join(mark(target, metric) for target in targets if target not in shown)
    notes = [_note(row for target in shown for row in rows[target].values())]
    notes.append(f"nobody reached {never}" if never else None)
    names: list[Text] = []
    cells: dict[float, list[Text]] = {target: [] for target in shown}
    sections = []
    for measure in _SECTIONS if shown else ():
        sections.append(len(names))
        names += [Text(MEASURES[measure].words, style="italic"), *_names(rivals)]
        for target in shown:
            best = _best(rows[target], rivals, metric)
            cells[target].append(Text(""))
            cells[target] += [
                _cell(row, measure, MEASURES[measure].unit, best, name) for name, row in rows[target].items()
            ]
    if any(row["reached"] < row["seeds"] for target in shown for row in rows[target].values()):
        sections.append(len(names))
        names += [Text("seeds that reached it", style="italic"), *_names(rivals)]
        for target in shown:
            cells[target] += [Text(""), *(_share(row) for row in rows[target].values())]
    return Grid(
        f"{where}: to every target, {over_seeds(rivals, 'mean±deviation')}",
        "method",
        names,
        [(mark(target, metric), cells[target]) for target in shown],
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
    columns += _clients(rivals)
    return Grid(f"{where}: whole runs, {over_seeds(rivals)}", "method", _names(rivals), columns)


def _clients(rivals: Groups) -> list[tuple[str, list[Text]]]:
    """Return the metric on the clients' own held-out samples, if any run held some out."""
    cells = [cell for group in rivals.values() for cell in group]
    metric, columns = metric_among(cells), []
    for head, part in (("clients'\n", None), ("own BN\n", "own_batch_norm")):
        for key, words in (("mean", metric.name), ("worst_tenth", "worst tenth")):
            means = [_client_mean(group, part, key) for group in rivals.values()]
            if any(mean is not None for mean in means):
                columns.append((f"{head}{words}", [Text(show(mean, metric)) for mean in means]))
    return columns


def _client_mean(cells: Sequence[Result], part: str | None, key: str) -> float | None:
    told = [cell.get("clients") or {} for cell in cells]
    numbers = [(each if part is None else each.get(part, {})).get(key) for each in told]
    return statistics("x", numbers)["x_mean"]


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


def _best(rows: Mapping[str, Mapping[str, Any]], rivals: Groups, metric: Metric) -> Best:
    """Return the best mean of every column and its competitors; a lone label has none."""
    if len(rivals) < 2:
        return {}
    finishers = {name: rivals[name] for name in rivals if rows[name]["reached"] == rows[name]["seeds"]}
    best: Best = {name: (min(_present(rows, finishers, name), default=None), finishers) for name in COSTS}
    return best | {metric.name: (metric.best(_present(rows, rivals, metric.name)), rivals)}


def _present(rows: Mapping[str, Mapping[str, Any]], names: Iterable[str], measure: str) -> list[float]:
    means = (rows[name][f"{measure}_mean"] for name in names)
    return [mean for mean in means if mean is not None]


def _cell(
    row: Mapping[str, Any],
    measure: str,
    unit: Unit,
    best: Best,
    name: str,
) -> Text:
    mean = row[f"{measure}_mean"]
    partly = measure in COSTS and 0 < row["reached"] < row["seeds"]
    text = spread(mean, row[f"{measure}_std"], unit) + ("*" if partly else "")
    return Text(text, style=_style(mean, measure, best, name))


def _style(mean: float | None, measure: str, best: Best, name: str) -> str:
    value, who = best.get(measure, (None, {}))
    return "bold" if name in who and mean is not None and mean == value else ""
