"""Finds the finished runs below some folders, and says which of them belong together."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hiflash.config.settings import flatten
from hiflash.errors import ConfigError, HiFlashError, RunError
from hiflash.report.curves import PANELS, curve
from hiflash.report.page.items import ShownItem, item_blocks, read_item
from hiflash.report.page.png import checked_png
from hiflash.report.page.shown import Kind, ShownRun, ShownStudy
from hiflash.report.summary import seed_row
from hiflash.report.tables import run_table
from hiflash.store.run_directory import check_config
from hiflash.study.paper.items import load_item
from hiflash.study.saved import read_result

__all__ = ["Found", "find_runs"]

STUDIES: dict[str, Kind] = {"compare.json": "comparison", "sweep.json": "sweep"}
GIVEN = "runs"
"""The name of a folder without one."""
FREE = ("seed", "workers", "device", "executor", "checkpoint_s", "plugins", "data.dir")
"""Settings that do not decide a result, and the seed: runs that differ in them alone are repetitions."""


@dataclass(frozen=True)
class Found:
    """The studies below some folders, the paper's items, and a line for everything left out."""

    studies: list[ShownStudy]
    left_out: list[str] = field(default_factory=list)
    items: list[ShownItem] = field(default_factory=list)


def find_runs(folders: Sequence[Path]) -> Found:
    """Return the finished runs below the folders as studies, or raise if a folder has none.

    A comparison or a sweep is one study. Other runs in the same folder with the same data and metric are
    compared too. Damaged and unfinished runs are named in `left_out`.
    """
    problems = [f"{each} is not a folder; give run directories, e.g. runs/demo" for each in _missing(folders)]
    if problems:
        raise ConfigError(problems)
    search = _Search()
    for folder, path in _shown_paths(folders).items():
        before = search.seen
        search.look(folder, path)
        if search.seen == before and not any(_is_below(folder, other) for other in folders):
            raise ConfigError(
                f"{folder} has no runs: neither it nor a folder in it has a result.json; "
                "hiflash run, compare and sweep write them to runs/"
            )
    studies = search.studies()
    if not studies and not search.items:
        raise RunError("\n".join(["no run is left to report:", *search.left_out]))
    return Found(studies, search.left_out, search.items)


class _Search:
    """The runs found so far by the folder that holds them."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.items: list[ShownItem] = []
        self.seen = 0
        self._runs: dict[str, list[ShownRun]] = {}
        self._plans: dict[str, tuple[Kind, str, dict[str, dict[str, Any]]]] = {}
        self._known: set[Path] = set()

    def look(self, folder: Path, path: str, above: str | None = None) -> None:
        """Take the run in a folder, or those in the folders below it."""
        if folder.resolve() in self._known:
            return
        self._known.add(folder.resolve())
        if (folder / "result.json").is_file():
            self.seen += 1
            self._take(folder, path, (path.rpartition("/")[0] or GIVEN) if above is None else above)
            return
        self._plan(folder, path)
        self._item(folder, path)
        before = self.seen
        for name in sorted(os.listdir(folder)):
            below = folder / name
            if below.is_dir() and not name.startswith(".") and not below.is_symlink():
                self.look(below, f"{path}/{name}", path)
        if self.seen == before and (folder / "config.toml").is_file():
            self.seen += 1
            self._unfinished(folder, path)

    def studies(self) -> list[ShownStudy]:
        """Return the runs as studies, folder by folder."""
        found: list[ShownStudy] = []
        for home, runs in self._runs.items():
            if home in self._plans:
                kind, by, tags = self._plans[home]
                order = {name: place for place, name in enumerate(tags)}  # that of the command
                runs = sorted(runs, key=lambda run: order.get(_name(run), len(order)))
                tagged = [replace(run, result={**tags.get(_name(run), {}), **run.result}) for run in runs]
                if kind == "sweep":
                    inside = [run for run in tagged if "point" in run.result]
                    runs = [run for run in tagged if "point" not in run.result]
                    found += [ShownStudy(home, kind, inside, by)] if inside else []
                else:
                    runs = [run if "label" in run.result else _labelled_by_name(run) for run in tagged]
                    found.append(_study(home, runs, kind))
                    continue
            found += [_study(home, loose, "collection") for loose in _comparable(runs)]
        return found

    def _take(self, folder: Path, path: str, home: str) -> None:
        try:
            check_config(folder)
            config = (folder / "config.toml").read_text("utf-8")
            settings = flatten(tomllib.loads(config))
        except (OSError, ValueError, RecursionError) as error:
            self.left_out.append(f"{path}/config.toml cannot be read ({_reason(error)})")
            return
        except HiFlashError as error:
            self.left_out.append(str(error).replace(str(folder), path))
            return
        try:
            result = read_result(folder).to_dict()
            _check_inside(result)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.left_out.append(f"{path}/result.json is damaged ({error!r})")
        except HiFlashError as error:
            self.left_out.append(str(error).replace(str(folder), path))
        else:
            deployed = (folder / "journal.sqlite").exists()
            run = ShownRun(path, result, config, settings, deployed)
            self._runs.setdefault(home, []).append(run)

    def _unfinished(self, folder: Path, path: str) -> None:
        """Name a folder with a configuration and no result; the trainings of an item are shown with it."""
        if (folder / "training.json").is_file():
            if not (folder.parent / "paper.json").is_file():
                self.left_out.append(f"{path} is the training of an agent: its figures are in its folder")
            return
        lacks = "training.json" if (folder / "training.safetensors").is_file() else "result.json"
        self.left_out.append(f"{path} is unfinished: it has no {lacks} yet")

    def _item(self, folder: Path, path: str) -> None:
        """Read an item of the paper, with its figures."""
        if not (folder / "paper.json").is_file():
            return
        self.seen += 1
        try:
            told = json.loads((folder / "paper.json").read_text("utf-8"))
            item = read_item(told, path, self._figures(told, folder, path))
            item_blocks(item, 0)  # raises what the page would raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.left_out.append(f"{path}/paper.json cannot be read ({_reason(error)})")
        else:
            self.items.append(item)

    def _figures(self, told: Mapping[str, Any], folder: Path, path: str) -> dict[str, bytes]:
        """Return the figures of an item by name; one that is damaged is named and left out."""
        found = {}
        try:
            files = load_item(told["item"]).figures_in(folder, told["scale"])
        except ConfigError:  # an item of another version
            return {}
        for file in files:
            name = file.relative_to(folder).as_posix()
            try:
                found[name.removesuffix(".png")] = checked_png(file.read_bytes())
            except (OSError, ValueError) as error:
                self.left_out.append(f"{path}/{name} cannot be shown ({_reason(error)})")
        return found

    def _plan(self, folder: Path, path: str) -> None:
        """Read which labels or points the runs of a comparison or a sweep have."""
        for name, kind in STUDIES.items():
            if not (folder / name).is_file():
                continue
            try:
                told = json.loads((folder / name).read_bytes())
                tags = {str(cell["name"]): _tags(cell) for cell in told["cells"]}
                self._plans[path] = (kind, str(told["by"]) if kind == "sweep" else "", tags)
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                said = f"{path}/{name} cannot be read ({error!r}): its runs are compared by their methods"
                self.left_out.append(said)


def _check_inside(result: Mapping[str, Any]) -> None:
    """Raise what tables and figures would raise: an old run has no checksum that tells of damage."""
    run_table(result)
    seed_row([result], result["stop_target"])
    for measure, _ in PANELS:
        curve(result, measure)


def _reason(error: Exception) -> str:
    """Return the reason of an error without the path of a machine."""
    return str(error.strerror if isinstance(error, OSError) else error)


def _tags(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {key: cell[key] for key in ("label", "point") if key in cell}


def _study(home: str, runs: Sequence[ShownRun], kind: Kind) -> ShownStudy:
    return ShownStudy(runs[0].path, "run", runs) if len(runs) == 1 else ShownStudy(home, kind, runs)


def _comparable(runs: Iterable[ShownRun]) -> list[list[ShownRun]]:
    """Return runs outside of comparisons by data and metric, with labels that tell them apart."""
    groups: dict[tuple[Any, ...], list[ShownRun]] = {}
    for run in runs:
        result = run.result
        trained = result["trainer"] != "none"
        groups.setdefault((result["data"], result["task"], result["metric"], trained), []).append(run)
    return [_with_labels(group) for group in groups.values()]


def _with_labels(runs: Sequence[ShownRun]) -> list[ShownRun]:
    """Label runs by method, or by folder where runs of a method are no repetitions of each other."""
    ways: tuple[Callable[[ShownRun], str], ...] = (
        lambda run: str(run.result["method"]),
        lambda run: re.sub(r"-s\d+$", "", _name(run)),
        lambda run: run.path,
    )
    labels: dict[str, str] = {}
    for method in dict.fromkeys(run.result["method"] for run in runs):
        same = [run for run in runs if run.result["method"] == method]
        way = next(way for way in ways if way is ways[-1] or _only_repetitions(same, way))
        labels |= {run.path: way(run) for run in same}
    if not _only_repetitions(runs, lambda run: labels[run.path]):
        labels = {run.path: run.path for run in runs}
    return [replace(run, result={**run.result, "label": labels[run.path]}) for run in runs]


def _only_repetitions(runs: Iterable[ShownRun], way: Callable[[ShownRun], str]) -> bool:
    """Return whether runs with the same label and partition differ in their seed and in nothing else."""
    seen: dict[tuple[str, str], tuple[str, set[int]]] = {}
    for run in runs:
        key = (way(run), str(run.result["partition"]))
        identity, seeds = seen.setdefault(key, (_identity(run), set()))
        if identity != _identity(run) or run.result["seed"] in seeds:
            return False
        seeds.add(run.result["seed"])
    return True


def _identity(run: ShownRun) -> str:
    kept = {
        key: value for key, value in run.settings.items() if key.partition(".")[0] not in ("serve", "ray")
    }
    decisive = {key: value for key, value in kept.items() if key not in FREE}
    return json.dumps([decisive, run.deployed], sort_keys=True, default=str)


def _labelled_by_name(run: ShownRun) -> ShownRun:
    """Label a run that a comparison has not listed yet by its folder: LABEL-PARTITION-sSEED."""
    name = _name(run).removesuffix(f"-s{run.result['seed']}").removesuffix(f"-{run.result['partition']}")
    return replace(run, result={**run.result, "label": name})


def _name(run: ShownRun) -> str:
    return run.path.rpartition("/")[2]


def _missing(folders: Iterable[Path]) -> list[Path]:
    return [folder for folder in folders if not folder.is_dir()]


def _is_below(folder: Path, other: Path) -> bool:
    return folder != other and other.resolve() in folder.resolve().parents


def _shown_paths(folders: Iterable[Path]) -> dict[Path, str]:
    """Return relative paths as given, and the ends of others: a report has no paths of a machine."""
    shown: dict[Path, str] = {}
    for folder in dict.fromkeys(folders):
        plain = not folder.is_absolute() and ".." not in folder.parts and folder.parts
        parts = folder.parts if plain else folder.resolve().parts[1:] or (GIVEN,)
        # Of two folders with the same name, as many parts as tell them apart.
        ends = ["/".join(parts[-length:]) for length in range(len(parts) if plain else 1, len(parts) + 1)]
        shown[folder] = next((end for end in ends if end not in shown.values()), ends[-1])
    return shown
