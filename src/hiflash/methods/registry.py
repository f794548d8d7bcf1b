"""Makes the parts that settings choose by name, and takes in parts of the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

from hiflash.core.aggregation import Rule
from hiflash.core.registry import Part
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.core.thresholds.policy import ThresholdPolicy
from hiflash.errors import ConfigError
from hiflash.methods.kinds import KINDS, Kind, kind_of
from hiflash.methods.recipes import METHODS

if TYPE_CHECKING:
    from hiflash.config import Config

__all__ = [
    "add_name",
    "add_part",
    "aggregate",
    "chosen",
    "is_own",
    "loading_plugin",
    "make",
    "registered",
    "restore",
    "snapshot",
    "threshold_policy",
    "undone_on_error",
    "usual_model",
    "version",
    "with_keys",
]


def make(word: str, config: Config, *arguments: Any) -> Any:
    """Return the part of a kind that a configuration chooses."""
    return chosen(config, KINDS[word].keys[0]).build(config, *arguments)


def chosen(config: Config, key: str) -> Part:
    """Return the part that a key of a configuration names."""
    section, _, name = key.partition(".")
    value = getattr(getattr(config, section), name)
    kind = kind_of(key)
    named = kind.name_in(value) if kind else None
    if kind is None or named is None:
        raise ConfigError(f"{key} = {value!r} names no part")
    return kind.parts[named]


def aggregate(config: Config, section: str) -> Rule:
    """Return the aggregation rule of the edges or of the cloud."""
    rule: Rule = chosen(config, f"{section}.aggregate").build(config, section)
    return rule


def threshold_policy(config: Config) -> ThresholdPolicy:
    """Return the policy that `cloud.threshold` names; a number is a fixed threshold."""
    wanted = config.cloud.threshold
    policy: ThresholdPolicy = FixedThreshold(wanted) if isinstance(wanted, int) else make("threshold", config)
    return policy


def usual_model(dataset: Any) -> str:
    """Return the name of a dataset's usual model; data that names none is taken for small images.

    >>> usual_model("cifar10"), usual_model("own")
    ('resnet', 'lenet')
    """
    name = KINDS["dataset"].name_in(dataset)
    return (KINDS["dataset"].parts[name].model if name else None) or "lenet"


def with_keys(config: Config, key: str) -> str:
    """Return the choice of a key with the values of the keys that the chosen part declares, for messages."""
    part, section = chosen(config, key), key.partition(".")[0]
    values = [f"{section}.{own.name} = {getattr(getattr(config, section), own.name)}" for own in part.keys]
    return f'{key} = "{part.name}"{" with " if values else ""}{" and ".join(values)}'


def is_own(key: str, value: Any) -> bool:
    """Return whether the value of a key names a part of the user."""
    kind = kind_of(key)
    return kind is not None and (kind.word, kind.name_in(value)) in _OWN


def registered() -> bool:
    """Return whether the user registered anything outside of plugins, which other processes lack."""
    return None in _OWN.values()


def add_part(kind: Kind, part: Part, *, replace: bool) -> None:
    """Put a user's part into the table of its kind; what it makes is checked from then on."""
    if not callable(part.make) and not _is_place(part.make):
        raise ConfigError(
            f"the {kind.word} {part.name} needs a function that makes one, got {type(part.make).__name__}"
        )
    for value, of in ((part.number, "partition"), (part.settings, "dataset"), (part.model, "dataset")):
        if value and kind.word != of:
            raise ConfigError(
                f"the {kind.word} {part.name} has number, settings or model, which are for a {of}; "
                "leave them out"
            )
    if part.name in kind.words:
        raise ConfigError(f"{part.name} is a word of {kind.keys[0]}; choose another name")
    add_name(kind.parts, kind.word, part.name, _checked(kind, part), replace=replace)


def add_name(table: dict[str, Any], word: str, name: str, entry: Any, *, replace: bool) -> None:
    """Put a user's entry into a table; `replace` allows to replace a user's entry, never a shipped one."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        raise ConfigError(f"the name of {_a(word)} has lower-case letters, digits and _, got {name!r}")
    if word == "partition" and re.search("[0-9]", name):
        raise ConfigError(f"the name of a partition has no digits, because a number may follow, got {name!r}")
    if name in table and (word, name) not in _OWN:
        raise ConfigError(f"the {word} {name} comes with HiFlash; choose another name")
    if name in table and not replace:
        raise ConfigError(
            f"{name} is {_a(word)} that you registered already; "
            "choose another name, or give replace=True to replace it"
        )
    global _version
    _version += 1
    _OWN[word, name] = _plugin
    table[name] = entry


def version() -> int:
    """Return a number that changes whenever the tables of parts or methods do."""
    return _version


@contextmanager
def undone_on_error() -> Iterator[None]:
    """Forget what the block registers if it raises."""
    before = snapshot()
    try:
        yield
    except BaseException:
        restore(before)
        raise


@contextmanager
def loading_plugin(place: str) -> Iterator[None]:
    """Take note that a plugin registers what the block registers; forget that if the block raises."""
    global _plugin
    outer, _plugin = _plugin, place
    try:
        with undone_on_error():
            yield
    finally:
        _plugin = outer


def snapshot() -> list[tuple[dict[Any, Any], dict[Any, Any]]]:
    """Return all tables with their present contents."""
    tables: list[dict[Any, Any]] = [*(kind.parts for kind in KINDS.values()), METHODS, _OWN]
    return [(table, dict(table)) for table in tables]


def restore(tables: list[tuple[dict[Any, Any], dict[Any, Any]]]) -> None:
    """Go back to a snapshot."""
    global _version
    for table, before in tables:
        table.clear()
        table.update(before)
    _version += 1


_OWN: dict[tuple[str, str], str | None] = {}  # what users registered, and the plugin that did
_plugin: str | None = None
_version = 0


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _is_place(make: object) -> bool:
    return isinstance(make, str) and re.fullmatch(r"[\w.]+:\w+", make) is not None


def _checked(kind: Kind, part: Part) -> Part:
    """Return a user's part that checks what it makes; the cloud checks what that returns."""
    if not kind.methods:  # lists and models are checked where they are used
        return part

    def make(*arguments: Any) -> Any:
        made = part.build(*arguments)
        missing = [name for name in kind.methods if not callable(getattr(made, name, None))]
        missing += [name for name in kind.attributes if not hasattr(made, name)]
        if missing or isinstance(made, type):
            raise ConfigError(
                f"what makes the {kind.word} {part.name} must return {_wanted(kind)}, got "
                f"{'the class ' + made.__name__ if isinstance(made, type) else type(made).__name__}"
            )
        return made

    return replaced(part, make=make)


def _wanted(kind: Kind) -> str:
    if kind.methods == ("__call__",):
        return kind.returns
    attributes = f" and the attributes {', '.join(kind.attributes)}" if kind.attributes else ""
    return f"an object with the methods {', '.join(kind.methods)}{attributes}"
