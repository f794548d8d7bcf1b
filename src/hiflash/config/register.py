"""Users' own methods: a name for settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hiflash.config.tree import Config
from hiflash.errors import ConfigError
from hiflash.methods.recipes import METHODS, Recipe
from hiflash.methods.registry import add_part

__all__ = ["register_method"]


def register_method(name: str, about: str, settings: Mapping[str, Any], *, replace: bool = False) -> None:
    """Let `method = name` stand for these settings; wrong settings raise an error at once.

    `replace` allows a name that you registered before.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError(f"the method {name} needs settings by key, got {type(settings).__name__}")
    before = METHODS.get(name)
    add_part(METHODS, "method", name, Recipe(about, dict(settings)), replace=replace)
    try:
        Config(method=name)
    except ConfigError:
        if before is None:
            del METHODS[name]
        else:
            METHODS[name] = before
        raise
