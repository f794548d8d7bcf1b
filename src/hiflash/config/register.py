"""Users' own parts and methods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hiflash.config.keys import Section, allowed, field_of
from hiflash.config.parts import keys_of
from hiflash.config.tree import Config, describe_keys
from hiflash.core.registry import Key, Part
from hiflash.errors import ConfigError
from hiflash.methods.kinds import KINDS, Kind
from hiflash.methods.recipes import METHODS, Recipe
from hiflash.methods.registry import add_name, add_part, undone_on_error

__all__ = ["register", "register_method"]


def register(kind: str, part: Part, *, replace: bool = False) -> None:
    """Let settings choose a part of your own by its name, and give the configuration the part's keys.

    `kind` is one of those in docs/plugins.md, for example "threshold": then `cloud.threshold` may be the name
    of the part. `replace` allows a name that you registered before.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of part {kind!r}; there are {', '.join(KINDS)}")
    if not isinstance(part, Part):
        raise ConfigError(f"the {kind} that you register must be a hiflash.Part, got {type(part).__name__}")
    row = KINDS[kind]
    _check_keys(row, part)
    with undone_on_error():
        add_part(row, part, replace=replace)
        try:
            keys_of(row)
        except ValueError as error:
            raise ConfigError(str(error)) from None


def register_method(name: str, about: str, settings: Mapping[str, Any], *, replace: bool = False) -> None:
    """Let `method = name` stand for these settings; wrong settings raise an error at once.

    `replace` allows a name that you registered before.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError(f"the method {name} needs settings by key, got {type(settings).__name__}")
    with undone_on_error():
        add_name(METHODS, "method", name, Recipe(about, dict(settings)), replace=replace)
        Config(method=name)


def _check_keys(kind: Kind, part: Part) -> None:
    """Raise if a part declares a key badly, or one that exists already."""
    before = kind.parts.get(part.name)
    mine = {key.name for key in before.keys} if before else set()
    taken = {key for key, *_ in describe_keys() if key.partition(".")[2] not in mine}
    for key in part.keys:
        what = f"the {kind.word} {part.name}"
        if not isinstance(key, Key):
            raise ConfigError(f"a key of {what} must be a hiflash.Key, got {type(key).__name__}")
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", key.name) or hasattr(Section, key.name):
            raise ConfigError(
                f"{what} declares the key {key.name!r}; use lower-case letters, digits and _, and no word "
                "of pydantic"
            )
        for section in kind.sections:
            if f"{section}.{key.name}" in taken:
                raise ConfigError(
                    f"{what} declares the key {section}.{key.name}, which exists already; "
                    "choose another name, or name it in reads if you mean that key"
                )
        _check_values(what, key)


def _check_values(what: str, key: Key) -> None:
    """Raise unless the allowed values of a key can be said in words, and its default is one of them."""
    try:
        field = field_of(key)
        words = allowed(field)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{what}: the key {key.name} needs bounds (low or above, high or below) for a number, and "
            "`words` or `allowed` for a text"
        ) from None
    try:
        TypeAdapter(field.rebuild_annotation(), config={"strict": True}).validate_python(key.default)
    except ValidationError:
        raise ConfigError(
            f"{what}: the default of the key {key.name} must be {words}, got {key.default!r}"
        ) from None
