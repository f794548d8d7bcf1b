"""Parts declare themselves: a module of core lists its parts in `PARTS`, and the configuration reads them.

A part is a rule that a setting chooses by name. It declares its own keys, so a new part needs only one new
file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Key", "Part", "declared_keys", "discover", "readers"]


@dataclass(frozen=True)
class Key:
    """A configuration key of a part: a whole number, a number or a text.

    `low` and `high` bound the value, or the length of a text. `allowed` describes valid texts in words;
    numbers need only the bounds. A key that the chosen part does not use is an error, unless the key is
    allowed `anywhere`.
    """

    name: str
    kind: type[int] | type[float] | type[str]
    default: int | float | str
    about: str
    low: float | None = None
    high: float | None = None
    allowed: str | None = None
    anywhere: bool = False


@dataclass(frozen=True)
class Part:
    """A named part: a sentence about it, a function that makes it, and its keys.

    The first argument of `make` is the configuration. `make` may be a text "module:function", which is
    imported at its first use. `reads` names keys of other parts that this part uses too. `problem` takes a
    configuration with this part and returns an error message, or None.
    """

    name: str
    about: str
    make: Callable[..., Any] | str
    keys: tuple[Key, ...] = ()
    reads: tuple[str, ...] = ()
    problem: Callable[[Any], str | None] | None = None

    def build(self, *arguments: Any) -> Any:
        """Return what `make` makes."""
        make = self.make
        if isinstance(make, str):
            module, _, name = make.partition(":")
            make = getattr(importlib.import_module(module), name)
        return make(*arguments)


def discover(package: str) -> dict[str, Part]:
    """Return the parts that the modules of a package declare, by name and in the order of the modules."""
    found: dict[str, Part] = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        for part in getattr(importlib.import_module(module.name), "PARTS", ()):
            if part.name in found:
                raise ValueError(f"{module.name} declares {part.name}, which is declared already; rename it")
            found[part.name] = part
    return found


def declared_keys(parts: Iterable[Part]) -> dict[str, Key]:
    """Return the keys of all parts by name; each has one owner, and others may read it."""
    parts = tuple(parts)
    keys: dict[str, Key] = {}
    for part in parts:
        for key in part.keys:
            if key.name in keys:
                raise ValueError(f"{part.name} declares the key {key.name} again; name it in reads instead")
            keys[key.name] = key
    for part in parts:
        for name in part.reads:
            if name not in keys:
                raise ValueError(f"{part.name} reads the key {name}, and no part declares it")
    return keys


def readers(parts: Iterable[Part], key: str) -> tuple[str, ...]:
    """Return the names of the parts that use a key."""
    return tuple(part.name for part in parts if key in part.reads or key in (own.name for own in part.keys))
