"""What there is to choose from: methods and datasets, as `hiflash methods` and `hiflash data` show them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hiflash.config.describe import describe_method, describe_parts
from hiflash.data import datasets
from hiflash.data.datasets import CheckRow, DatasetRow
from hiflash.data.fetch import Progress, fetch
from hiflash.methods.plugins import load_plugins
from hiflash.methods.recipes import METHODS
from hiflash.study.arguments import check_arguments

__all__ = ["check_dataset", "fetch_dataset", "list_datasets", "list_methods", "list_parts"]


def list_methods() -> dict[str, dict[str, Any]]:
    """Return a sentence (`about`), the `parts` and the `settings` of every method by name.

    >>> list_methods()["fedprox"]["settings"]["client.mu"]
    0.01
    """
    load_plugins()
    return {
        name: {"about": recipe.about, "parts": describe_method(name), "settings": recipe.settings}
        for name, recipe in METHODS.items()
    }


def list_parts() -> dict[str, dict[str, Any]]:
    """Return every kind of part: the `keys` that choose it, and its `parts` with a sentence and their keys.

    >>> list_parts()["threshold"]["keys"]
    ['cloud.threshold']
    """
    return describe_parts()


def list_datasets(directory: str | Path | None = None) -> list[DatasetRow]:
    """Return a row for every dataset with a name: samples, classes, and the folder in which it was found.

    >>> list_datasets()[0].name
    'mnist5k'
    """
    check_arguments(directory=directory)
    load_plugins()
    return datasets.list_datasets(directory)


def check_dataset(name: str, directory: str | Path | None = None) -> list[CheckRow]:
    """Return for every file of a dataset whether it can be read and has the right checksum.

    >>> all(row.ok for row in check_dataset("mnist5k"))
    True
    """
    check_arguments(dataset=name, directory=directory)
    return datasets.check(name, directory)


def fetch_dataset(
    name: str,
    directory: str | Path | None = None,
    *,
    mirror: str | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Download a dataset into `directory/name` and return its files; complete files are not fetched again.

    `hiflash.fetch_dataset("mnist")` takes it from a public mirror. Without a directory it goes into
    HIFLASH_DATA or, if that is not set, `./data`. `progress` gets the name of a file, its bytes so far, and
    its bytes in all if known.
    """
    check_arguments(dataset=name, directory=directory, mirror=mirror, progress=progress)
    return fetch(name, Path(directory or os.environ.get("HIFLASH_DATA") or "data"), mirror, progress)
