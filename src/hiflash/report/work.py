"""A comparison without training: what methods spend per client round, as rows and as tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import Grid
from hiflash.report.measures import Measure
from hiflash.report.methods import label
from hiflash.report.summary import Groups, Result, by_partition, over_seeds, statistics
from hiflash.report.units import count, spread

__all__ = ["THOUSAND", "WORK", "is_untrained", "per_client_round", "work_rows", "work_tables"]

WORK = {
    "wan_bytes": Measure("WAN bytes", "bytes", "WAN\nbytes"),
    "lan_bytes": Measure("LAN bytes", "bytes", "LAN\nbytes"),
    "virtual_s": Measure("virtual time", "seconds", "virtual\ntime"),
    "total_cost": Measure("total cost", "count", "total\ncost"),
    "compute_cost": Measure("cost of computing", "count", "computing"),
    "send_cost": Measure("cost of sending", "count", "sending"),
    "communications": Measure("communications", "count", "comms"),
    "client_steps": Measure("client steps", "count", "client\nsteps"),
}
"""What is divided by client rounds, by its name in a result."""

THOUSAND = 1000
"""Client rounds in tables and figures: what one takes is a small number."""
_CAPTION = "nothing was trained; a client round is one local training whose model was uploaded"


def is_untrained(results: Sequence[Result]) -> bool:
    """Return whether no run trained anything, so that there is no accuracy to compare."""
    return bool(results) and all(result["trainer"] == "none" for result in results)


def per_client_round(result: Result, measure: str) -> float | None:
    """Return a measure of a whole run divided by its client rounds, None if it had none."""
    rounds = result["client_uploads"]
    return float(result[measure]) / rounds if rounds else None


def work_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return a flat row per partition and label: client rounds, and each measure per client round.

    `<name>_mean`, `_std` (of the sample), `_min`, `_max` and `_n` are over the seeds.
    """
    return [
        {"partition": part, "label": name, "method": cells[0]["method"], **_row(cells)}
        for part, groups in by_partition(results).items()
        for name, cells in groups.items()
    ]


def work_tables(results: Sequence[Result], width: int) -> list[Table]:
    """Return a table per partition with the measures per client round, the lowest of each column in bold."""
    tables: list[Table] = []
    for part, groups in by_partition(results).items():
        where = f"{next(iter(groups.values()))[0]['data']}, {part}"
        tables += _grid(groups, where).tables(width)
    return tables


def _row(cells: Sequence[Result]) -> dict[str, Any]:
    row: dict[str, Any] = {"seeds": len(cells)}
    row |= statistics("client_rounds", [cell["client_uploads"] for cell in cells])
    for measure in WORK:
        values = [per_client_round(cell, measure) for cell in cells]
        row |= statistics(f"{measure}_per_client_round", values)
    return row


def _grid(groups: Groups, where: str) -> Grid:
    rows = {name: _row(cells) for name, cells in groups.items()}
    columns = [("client\nrounds", [Text(count(row["client_rounds_mean"])) for row in rows.values()])]
    for measure, about in WORK.items():
        values = [row[f"{measure}_per_client_round_mean"] for row in rows.values()]
        steps_alike = measure == "client_steps" and len({f"{value:.6g}" for value in values if value}) == 1
        if any(values) and not steps_alike:
            columns.append((about.head, _cells(rows.values(), measure, values)))
    title = f"{where}: per {THOUSAND:,} client rounds, {over_seeds(groups, 'mean±deviation')}"
    return Grid(title, "method", [Text(label(name)) for name in groups], columns, _CAPTION)


def _cells(rows: Iterable[Mapping[str, Any]], measure: str, values: Sequence[float | None]) -> list[Text]:
    """Return the texts of a column; the lowest is bold if methods differ."""
    known = [value for value in values if value]  # without edges nothing is sent over a LAN
    best = min(known) if len(set(known)) > 1 else None
    texts = []
    for row, value in zip(rows, values, strict=True):
        deviation = row[f"{measure}_per_client_round_std"]
        text = spread(
            THOUSAND * value if value else None,
            None if deviation is None else THOUSAND * deviation,
            WORK[measure].unit,
        )
        texts.append(Text(text, style="bold" if value and value == best else ""))
    return texts
