"""Words of the command line: a command's own options, and settings with dots."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from hiflash.errors import ConfigError

__all__ = [
    "agent_setting",
    "methods_options",
    "plugin_option",
    "seeds",
    "settings_options",
    "split",
    "value",
    "values",
    "variants",
]


def settings_options(command: argparse.ArgumentParser) -> None:
    """Add the options of all commands with settings: file, name, folder, JSON and help."""
    command.set_defaults(takes_settings=True)
    command.add_argument("config", nargs="?", help="a TOML file with settings")
    # Instead of argparse's own, because this help lists the settings too, and only it imports them.
    command.add_argument("-h", "--help", action="store_true", dest="help_keys", help="show this help")
    command.add_argument("--name", help="name of the folder the run is saved in")
    command.add_argument("--runs", default="runs", metavar="FOLDER", help="where runs are saved (runs)")
    command.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    plugin_option(command)


def methods_options(command: argparse.ArgumentParser) -> None:
    """Add the options that say which methods a command is about."""
    command.add_argument("--methods", help="names with commas, or all (fedavg,hierfavg,hifl)")
    command.add_argument(
        "--variant",
        action="append",
        metavar="'LABEL=METHOD KEY=VALUE ...'",
        help="a method with settings of its own; may be given several times",
    )
    command.add_argument(
        "--agent", metavar="FILE", help="the agent for methods with cloud.threshold = agent (cloud.agent)"
    )
    command.add_argument("--partitions", help="names with commas, e.g. iid,noniid2,noniid1 (data.partition)")


def plugin_option(command: argparse.ArgumentParser) -> None:
    """Add the option that names plugins."""
    command.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module or .py file with parts of your own; may be given several times",
    )


def agent_setting(options: argparse.Namespace, brings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the settings with those of `--agent`: its absolute path, and the settings `brings`."""
    from hiflash.agents import from_anywhere

    if options.agent is None:
        return dict(options.settings)
    given = {**(brings or {}), "cloud.agent": from_anywhere(options.agent)}
    for key in given:
        if key in options.settings:
            raise ConfigError(f"--agent and --{key} are both given; leave one of them out")
    return {**options.settings, **given}


def split(words: Sequence[str], command: argparse.ArgumentParser) -> tuple[list[str], dict[str, Any]]:
    """Return the words of the command's own options, and every other `--key value` as a setting."""
    own = {name: action for action in command._actions for name in action.option_strings}
    options: list[str] = []
    settings: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        key, equals, text = word.partition("=")
        if not word.startswith("--"):
            options.append(word)
        elif key in own:
            takes = 0 if equals or own[key].nargs == 0 else 1
            options += [word, *waiting[:takes]]
            del waiting[:takes]
        else:
            if not equals:
                if not waiting:
                    raise ConfigError(f"{key} needs a value")
                text = waiting.pop(0)
            settings[key[2:]] = value(text)
    return options, settings


def value(text: str) -> Any:
    """Return a word read as TOML; bare words and lists without brackets are allowed too."""
    if text in ("inf", "nan"):  # TOML reads numbers, a configuration words: cloud.threshold = "inf"
        return text
    for attempt in (text, f"[{text}]") if "," in text else (text,):
        try:
            return tomllib.loads(f"value = {attempt}")["value"]
        except (tomllib.TOMLDecodeError, KeyError):
            continue
    return text


def values(text: str) -> list[Any]:
    """Return the values between commas, each read by `value`; commas in brackets belong to a list.

    >>> values("1,[1,2],inf")
    [1, [1, 2], 'inf']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [value(part.strip()) for part in parts if part.strip()]


def seeds(text: str) -> int | list[int]:
    """Return the number of seeds, or the list of seeds.

    >>> seeds("3"), seeds("2,7"), seeds("7,")
    (3, [2, 7], [7])
    """
    try:
        numbers = [int(part) for part in text.removesuffix(",").split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0 or text.strip() == "0":
        raise ConfigError(f"--seeds must be a number of seeds or a list like 0,1,2, got {text}")
    return numbers if "," in text else numbers[0]


def variants(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the variants by label: `delta=hifl cloud.mixing=delta cloud.alpha=1`."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        label, equals, rest = (part.strip() for part in text.partition("="))
        method, *words = rest.split() or [""]
        pairs = [word.partition("=") for word in words]
        if not equals or not method or not all(key and text for key, _, text in pairs):
            raise ConfigError(
                f"--variant must be like 'delta=hifl cloud.mixing=delta cloud.alpha=1', got {text!r}"
            )
        if label in found:
            raise ConfigError(f"--variant {label} is given twice; give every variant a label of its own")
        found[label] = {"method": method, **{key: value(text) for key, _, text in pairs}}
    return found
