"""Parts declare themselves: each kind of part has a table, and the configuration reads it.

A part is whatever a setting chooses by name: a threshold, a mixing rule, a dataset. It declares its own keys,
so a new part needs only one new file. The tables stand beside the code of their parts, and
`hiflash.methods.registry` lists the kinds.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Key", "Part", "by_name", "declared_keys", "discover", "readers"]


@dataclass(frozen=True)
class Key:
    """A configuration key of a part: a whole number, a number, a text or a truth value.

    `low` and `high` bound the value, or the length of a text; a number is greater than `above` and less than
    `below`. `words` are texts that are allowed too, such as "none"; a text with `words` must be one of them.
    `length` makes the key a list of that many numbers. `allowed` describes other texts in words. A key that
    the chosen part does not use is an error, unless the key is allowed `anywhere`.
    """

    name: str
    kind: type[int] | type[float] | type[str] | type[bool]
    default: Any
    about: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    words: tuple[str, ...] = ()
    length: int | None = None
    allowed: str | None = None
    anywhere: bool = False


@dataclass(frozen=True)
class Part:
    """A named part: a sentence about it, a function that makes it, and its keys.

    The first argument of `make` is the configuration. `make` may be a text "module:function", which is
    imported at its first use. `reads` names keys of other parts that this part uses too. `problem` takes a
    configuration with this part and returns an error message, or None.

    Only some kinds use the rest. `number` describes the number that follows the name of a partition
    (`noniid2`). `settings` are what a dataset brings, and `model` is its usual model.
    """

    name: str
    about: str
    make: Callable[..., Any] | str
    keys: tuple[Key, ...] = ()
    reads: tuple[str, ...] = ()
    problem: Callable[..., str | None] | None = None
    number: Key | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None

    def build(self, *arguments: Any) -> Any:
        """Return what `make` makes."""
        make = self.make
        if isinstance(make, str):
            module, _, name = make.partition(":")
            make = getattr(importlib.import_module(module), name)
        return make(*arguments)


def by_name(*parts: Part) -> dict[str, Part]:
    """Return a table of parts by name, in their order."""
    table: dict[str, Part] = {}
    for part in parts:
        if part.name in table:
            raise ValueError(f"{part.name} is declared twice; rename one of them")
        table[part.name] = part
    return table


def discover(package: str) -> dict[str, Part]:
    """Return the parts that the modules of a package declare, by name and in the order of the modules."""
    found: dict[str, Part] = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        for part in getattr(importlib.import_module(module.name), "PARTS", ()):
            if part.name in found:
                raise ValueError(f"{module.name} declares {part.name}, which is declared already; rename it")
            found[part.name] = part
    return found


def declared_keys(parts: Iterable[Part], others: Iterable[str] = ()) -> dict[str, Key]:
    """Return the keys of all parts by name; each has one owner, and other parts may read it.

    Parts may also read the keys that `others` names.
    """
    parts, others = tuple(parts), frozenset(others)
    keys: dict[str, Key] = {}
    for part in parts:
        for key in part.keys:
            if key.name in keys or key.name in others:
                raise ValueError(f"{part.name} declares the key {key.name} again; name it in reads instead")
            keys[key.name] = key
    for part in parts:
        for name in part.reads:
            if name not in keys and name not in others:
                raise ValueError(f"{part.name} reads the key {name}, and no part declares it")
    return keys


def readers(parts: Iterable[Part], key: str) -> tuple[str, ...]:
    """Return the names of the parts that use a key."""
    return tuple(part.name for part in parts if key in part.reads or key in (own.name for own in part.keys))
