"""Settings as dotted keys: read from TOML, nested for validation, and explained when they are wrong."""

from __future__ import annotations

import difflib
import json
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from hiflash.errors import ConfigError
from hiflash.methods.plugins import load_plugins

__all__ = [
    "explain",
    "flatten",
    "given_settings",
    "hiflash_settings",
    "merged",
    "nest",
    "read_plan",
    "read_settings",
    "read_toml",
]

PLANS = (
    "compare",
    "sweep",
    "evaluate_agent",
    "theory",
)  # sections of a file that list runs, and are not settings of one
MOST_BYTES = 1024 * 1024  # of a file with settings

RENAMED = {"engine": "executor", "parts": "indices"}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file, or raise an error that says where it is wrong."""
    try:
        return tomllib.loads(_content(path).decode())
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; give the path of a TOML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _content(path: Path) -> bytes:
    """Return the bytes of a regular file; a device or a pipe may have no end."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ConfigError(f"{path} is not a file; give the path of a TOML file")
    if about.st_size > MOST_BYTES:
        raise ConfigError(
            f"{path} has {about.st_size:,} bytes, and a file with settings has at most {MOST_BYTES:,}; "
            "give the path of a TOML file"
        )
    return path.read_bytes()


def read_settings(path: Path | str | None) -> dict[str, Any]:
    """Return the settings of a TOML file as dotted keys; without a file there are none."""
    raw = read_toml(Path(path)) if path else {}
    return flatten({key: value for key, value in raw.items() if key not in PLANS})


def given_settings(path: Path | str | None, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings of a file with others on top as dotted keys, and load the plugins they name."""
    return merged(read_settings(path), flatten(settings or {}))


def hiflash_settings(path: Path | str | None, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings of a file with others on top; the method is hiflash unless they name one."""
    return {"method": "hiflash", **given_settings(path, settings)}


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with later ones on top, and load their plugins; the plugins of all layers add up."""
    settings: dict[str, Any] = {}
    plugins: list[str] = []
    for layer in layers:
        settings |= layer
        named = layer.get("plugins")
        if isinstance(named, list | tuple) and all(isinstance(name, str) for name in named):
            plugins += named
        elif named is not None:  # the check of the key says what is wrong
            return settings
    loaded = load_plugins(plugins)
    return {**settings, "plugins": loaded} if loaded else settings


def read_plan(path: Path | str | None, name: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return the section `name` of a TOML file, which lists runs; empty if it is missing."""
    plan = read_toml(Path(path)).get(name, {}) if path else {}
    if not isinstance(plan, dict):
        raise ConfigError(f"{name} must be a section [{name}], got {_shown(plan)} ({path})")
    for key in plan:
        if key not in keys:
            raise ConfigError(f"unknown key {name}.{key} ({path}); [{name}] may have {', '.join(keys)}")
    return plan


def flatten(raw: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested sections as dotted keys; `wan = "off"` is short for `wan.link = "off"`."""
    flat: dict[str, Any] = {}
    for key, value in raw.items():
        if isinstance(value, BaseModel):
            value = value.model_dump()
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        elif f"{prefix}{key}" == "wan":
            flat["wan.link"] = value
        else:
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys as nested sections."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        place = nested
        *head, name = key.split(".")
        for part in head:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):  # `cloud = 3` beside `cloud.alpha`: the former is the error
                break
            place = inner
        else:
            place[name] = value
    return nested


def explain(
    error: ValidationError, known: Mapping[str, tuple[str, Any]], sources: Mapping[str, str]
) -> list[str]:
    """Return one sentence per wrong key: what is allowed, what it got, where, and the default.

    `known` maps every key to its allowed values and its default, `sources` a key to the origin of its value.
    """
    sections = {key.split(".")[0] for key in known if "." in key}
    problems: dict[str, str] = {}
    for detail in error.errors():
        parts = [str(part) for part in detail["loc"]]
        if not parts:  # raised by the checks across keys
            return str(detail["ctx"]["error"]).splitlines()
        depth = 2 if parts[0] in sections and len(parts) > 1 else 1
        key = ".".join(parts[:depth])
        where = f" ({sources[key]})" if key in sources else ""
        if detail["type"] == "extra_forbidden":
            near = _nearest(key, known)
            hint = f"did you mean {near}?" if near else "`hiflash run --help` lists the keys"
            if key in RENAMED:
                hint = f"it is called {RENAMED[key]} now"
            problems[key] = f"unknown key {key}{where}; {hint}"
        elif key in known:
            allowed, default = known[key]
            got = detail["input"]
            problems.setdefault(
                key,
                f"{key} must be {allowed}, got {_shown(got)}{where}. The default is {json.dumps(default)}.",
            )
        else:
            problems[key] = f"{key} must be a section of keys, got {_shown(detail['input'])}{where}"
    return list(problems.values())


def _nearest(key: str, known: Mapping[str, Any]) -> str | None:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    if close:
        return str(close[0])
    leaves = {name.split(".")[-1]: name for name in known}
    close = difflib.get_close_matches(key.split(".")[-1], leaves, n=1, cutoff=0.8)
    return leaves[close[0]] if close else None


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
