"""Users' own methods: a name for settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hiflash.config.tree import Config
from hiflash.errors import ConfigError
from hiflash.methods.recipes import METHODS, Recipe
from hiflash.methods.registry import add_part

__all__ = ["register_method"]


def register_method(name: str, about: str, settings: Mapping[str, Any]) -> None:
    """Let `method = name` stand for these settings; wrong ones are refused here and now."""
    add_part(METHODS, "method", name, Recipe(about, dict(settings)))
    try:
        Config(method=name)
    except ConfigError:
        del METHODS[name]
        raise
