"""What made a run: the versions of its software, and the kind of machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hiflash import __version__

__all__ = ["made_by", "makers", "versions_of"]

PACKAGES = ("numpy", "scipy", "torch")


def made_by() -> dict[str, Any]:
    """Return the versions and the kind of machine of this process.

    Results are passed on, so nothing here names the machine, its user or a path.
    """
    return {
        "hiflash": __version__,
        "python": platform.python_version(),
        **versions_of(PACKAGES),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count() or 1,
    }


def makers(before: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has made a run so far, in order: what it went on with before, and this process if new."""
    known, now = list(before), made_by()
    return known if known and known[-1] == now else [*known, now]


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
