"""The keys that parts declare, in the sections of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic.fields import FieldInfo

from hiflash.config.keys import Section, field_of
from hiflash.core.registry import Key, declared_keys, readers
from hiflash.methods.kinds import KINDS, Kind

__all__ = ["add_declared_keys", "key_readers", "keys_of"]


def keys_of(kind: Kind) -> dict[str, Key]:
    """Return the keys that the parts of a kind declare, by name."""
    around = {key.partition(".")[2] for other in KINDS.values() for key in other.keys if other is not kind}
    return declared_keys(kind.parts.values(), around)


def key_readers(key: str) -> Iterator[tuple[Kind, tuple[str, ...]]]:
    """Yield the kinds with parts that read a key beside their own, and the names of these parts."""
    section, _, name = key.partition(".")
    for kind in KINDS.values():
        names = readers(kind.parts.values(), name)
        if section in kind.sections and names and key not in kind.keys:
            yield kind, names


def add_declared_keys(sections: Mapping[str, type[Section]]) -> list[type[Section]]:
    """Give sections the keys that parts declare, and return the sections that have changed.

    A part's keys follow the key that chooses it. Keys of parts that are gone are removed.
    """
    changed = []
    for word, section in sections.items():
        plain = _plain.setdefault(section, dict(section.model_fields))
        fields: dict[str, FieldInfo] = {}
        for name, info in plain.items():
            fields[name] = info
            for kind in KINDS.values():
                last = [key for key in kind.keys if key.startswith(f"{word}.")][-1:]
                if last == [f"{word}.{name}"]:
                    _add(fields, plain, kind)
        if list(fields.items()) != list(section.model_fields.items()):
            section.__pydantic_fields__ = fields
            changed.append(section)
    return changed


_plain: dict[type[Section], dict[str, FieldInfo]] = {}
_fields: dict[Key, FieldInfo] = {}


def _add(fields: dict[str, FieldInfo], plain: Mapping[str, FieldInfo], kind: Kind) -> None:
    for name, key in keys_of(kind).items():
        if name in fields or name in plain:
            raise ValueError(f"a {kind.word} declares {name}, a key that its section has already; rename it")
        fields[name] = _field(key)


def _field(key: Key) -> FieldInfo:
    """Return the field of a key, the same one every time."""
    if key not in _fields:
        _fields[key] = field_of(key)
    return _fields[key]
