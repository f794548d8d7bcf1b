"""The datasets known by name: lists, finds, checks and loads them."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, NamedTuple

from ..core.registry import Part, by_name
from ..errors import DataError
from .cifar10 import CIFAR10
from .dataset import Dataset
from .femnist import FEMNIST
from .files import Found, Source, places
from .flights import FLIGHTS
from .mnist import MNIST, MNIST5K
from .shakespeare import SETTINGS as SHAKESPEARE_SETTINGS
from .shakespeare import SHAKESPEARE

__all__ = [
    "DATASETS",
    "CheckRow",
    "DatasetRow",
    "check",
    "describe",
    "in_package",
    "known",
    "list_datasets",
    "load",
]

_SOURCES = {
    source.name: source
    for source in (
        *(MNIST5K, MNIST, CIFAR10, FEMNIST),
        *(source for source, _ in FLIGHTS.values()),
        SHAKESPEARE,
    )
}
_loaded: dict[tuple[object, ...], Dataset] = {}


class DatasetRow(NamedTuple):
    """One dataset as `hiflash data list` shows it; `path` is None unless all its files were found.

    The samples and classes of a plugin's dataset are None: only loading it would tell them.
    """

    name: str
    samples: str | None
    classes: int | None
    path: Path | None
    note: str


class CheckRow(NamedTuple):
    """One file as `hiflash data check` shows it."""

    file: Path
    ok: bool
    message: str


def known() -> list[str]:
    """Return the names that `load` accepts, the default first."""
    return list(_SOURCES)


def describe(name: str) -> str:
    """Return one line on a dataset: samples (train + test), classes if any, and a note on its files."""
    source = _source(name)
    classes = f", {source.classes} classes" if source.classes else ""
    return f"{source.samples} samples{classes}; {source.note}"


def in_package(name: str) -> bool:
    """Return whether the files of a dataset come with an installed package."""
    return _source(name).package is not None


def load(name: str, directory: str | Path | None = None) -> Dataset:
    """Return a dataset by name, verified by checksum, from `directory` or one of the usual places.

    The usual places are HIFLASH_DATA, `./data` and `~/.cache/hiflash`. A second call in one process returns
    the same arrays as long as the files have not changed.
    """
    source = _source(name)
    _, found = _locate(source, directory)
    stamps = ((path, path.stat()) for path in found.files.values())
    key = (name, *((path.resolve(), stat.st_mtime_ns, stat.st_size) for path, stat in stamps))
    if key not in _loaded:
        _loaded[key] = source.assemble({label: source.read(path) for label, path in found.files.items()})
    return _loaded[key]


def list_datasets(directory: str | Path | None = None) -> list[DatasetRow]:
    """Return a row for every known dataset, with the folder in which it was found."""
    rows = []
    for source in _SOURCES.values():
        path = next((place for place, found in _look(source, directory) if not found.missing), None)
        rows.append(DatasetRow(source.name, source.samples, source.classes, path, source.note))
    others = [part for name, part in DATASETS.items() if name not in _SOURCES]
    return rows + [DatasetRow(part.name, None, None, None, part.about) for part in others]


def check(name: str, directory: str | Path | None = None) -> list[CheckRow]:
    """Return for every file of a dataset whether it can be read and has the right checksum."""
    source = _source(name)
    _, found = _locate(source, directory)
    rows = []
    for path in found.files.values():
        try:
            source.read(path)
        except DataError as error:
            rows.append(CheckRow(path, False, str(error)))
        else:
            rows.append(CheckRow(path, True, "ok"))
    return rows


def _source(name: str) -> Source:
    if name not in _SOURCES:
        close = difflib.get_close_matches(name.lower().replace("-", ""), list(_SOURCES), 1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise DataError(
            f"unknown dataset '{name}'.{hint} Known: {', '.join(_SOURCES)}. "
            "For your own data use hiflash.Dataset.from_arrays."
        )
    return _SOURCES[name]


def _look(source: Source, directory: str | Path | None) -> list[tuple[Path, Found]]:
    return [(place, source.find(place)) for place in places(source, directory)]


def _locate(source: Source, directory: str | Path | None) -> tuple[Path, Found]:
    looked = _look(source, directory)
    for place, found in looked:
        if not found.missing:
            return place, found
    lines = [f"  {place.absolute()}: {_absence(place, found)}" for place, found in looked]
    where = "\n".join(["Looked at:", *lines]) if lines else f"The package {source.package} is not installed."
    raise DataError(f"dataset '{source.name}' was not found. {where}\n{source.way_out}")


def _absence(place: Path, found: Found) -> str:
    if not place.is_dir():
        return "no such folder"
    # A folder with some of the files is nearly right: say exactly what it lacks.
    return f"lacks {', '.join(found.missing)}" if found.files else "none of its files"


def _part(source: Source, model: str, settings: dict[str, Any] | None = None) -> Part:
    """Return a dataset as a part, with its usual model and the settings that it brings."""

    def make(config: Any) -> Dataset:
        return load(source.name, config.data.dir or None)

    return Part(source.name, describe(source.name), make, model=model, settings=settings or {})


DATASETS = by_name(
    _part(MNIST5K, "lenet"),
    _part(MNIST, "lenet"),
    _part(
        CIFAR10,
        "resnet",
        {"client.batch": 50, "client.lr": 0.1, "cloud.threshold_max": 4, "data.augment": True},
    ),
    _part(FEMNIST, "femnist_cnn", {"data.partition": "writer"}),
    *(_part(source, "mlp", settings) for source, settings in FLIGHTS.values()),
    _part(SHAKESPEARE, "char_lstm", SHAKESPEARE_SETTINGS),
)
