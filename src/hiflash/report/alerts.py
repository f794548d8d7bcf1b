"""Warnings of runs as lines of text: why a run did not learn, and which run it was."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from hiflash.report.methods import label
from hiflash.report.summary import Result, is_reference, name_of
from hiflash.report.sweep import leaves, shown

__all__ = ["alert", "alerts_of", "compare_alerts", "sweep_alerts"]

MOST = 20
"""Number of lines under a table; the JSON files have all warnings."""


def alerts_of(numbers: Mapping[str, Any]) -> list[str]:
    """Return the warnings of a result or a progress report; most have none, and old ones have no such key."""
    return [str(warning) for warning in numbers.get("warnings") or ()]


def alert(warning: str, run: str = "") -> Text:
    """Return a warning as a line that names the run, if there is more than one."""
    return Text(f"warning: {run}: {warning}" if run else f"warning: {warning}", style="yellow")


def compare_alerts(results: Sequence[Result]) -> list[Text]:
    """Return the warnings of a comparison, for the end of its tables."""
    return _lines((_place(result), result) for result in results)


def sweep_alerts(results: Sequence[Result]) -> list[Text]:
    """Return the warnings of a sweep, for the end of its tables."""
    return _lines((_point(result["point"]), result) for result in results)


def _place(result: Result) -> str:
    name = label(name_of(result))
    return name if is_reference(result) else f"{name}, {result['partition']}"


def _point(point: Mapping[str, Any]) -> str:
    pairs = zip(leaves(list(point)), point.values(), strict=True)
    return ", ".join(f"{name} {shown(value)}" for name, value in pairs)


def _lines(placed: Iterable[tuple[str, Result]]) -> list[Text]:
    """Return a line per warning; seeds with the same warning share one."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for place, result in placed:
        for warning in alerts_of(result):
            seeds.setdefault((place, warning), []).append(str(result["seed"]))
    lines = [
        alert(warning, f"{place}, seed{'s' * (len(numbers) > 1)} {', '.join(numbers)}")
        for (place, warning), numbers in seeds.items()
    ]
    more = len(lines) - MOST
    return lines if more <= 0 else [*lines[:MOST], alert(f"{more} more, see `warnings` in the JSON file")]
