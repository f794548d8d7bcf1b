"""What made the runs of a study, in words: versions, and the kind of machine."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hiflash.report.page.blocks import Block, Items, Words

__all__ = ["maker_blocks", "maker_words"]

NAMES = {"hiflash": "HiFlash", "python": "Python"}
MACHINE = ("system", "machine", "cores")
TITLE = "Versions and machines of the runs"
MOST_RUNS = 6
"""Runs that are named in a line; more are counted."""

Made = Sequence[Mapping[str, Any]]


def maker_blocks(made: Mapping[str, Made]) -> list[Block]:
    """Return what made each run, given by its name; runs from before versions were kept have none."""
    groups: dict[str, list[str]] = {}
    for run, makers in made.items():
        groups.setdefault(json.dumps(list(makers), sort_keys=True), []).append(run)
    if len(groups) == 1:
        return [Words(f"{TITLE}: {_words(next(iter(made.values())))}.")]
    lines = [f"{_words(made[runs[0]])}: {_listed(runs)}" for runs in groups.values()]
    return [Items(TITLE, lines)]


def _words(makers: Made) -> str:
    return ", then, resumed, ".join(map(maker_words, makers)) or "not recorded"


def maker_words(maker: Mapping[str, Any] | Made) -> str:
    """Return versions and machine in words; of several makers each.

    >>> one = {"hiflash": "1", "system": "Linux", "machine": "arm64", "cores": 1}
    >>> maker_words([one, {}])
    'HiFlash 1 on Linux arm64 with 1 core; and with versions that were not recorded'
    """
    if not isinstance(maker, Mapping):
        return "; and with ".join(map(maker_words, maker or [{}]))
    if not maker:
        return "versions that were not recorded"
    versions = [f"{NAMES.get(name, name)} {value}" for name, value in maker.items() if name not in MACHINE]
    system, machine, cores = (maker.get(name) for name in MACHINE)
    return f"{', '.join(versions)} on {system} {machine} with {_cores(cores)}"


def _cores(count: object) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def _listed(runs: Sequence[str]) -> str:
    more = len(runs) - MOST_RUNS
    return ", ".join(runs[:MOST_RUNS]) + (f" and {more} more" if more > 0 else "")
