"""The tables of docs/configuration.md, printed by `python -m hiflash.config.document`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hiflash.config.tree import describe_keys
from hiflash.core.registry import Part
from hiflash.data.partition import usual_name
from hiflash.methods.kinds import KINDS, Kind

__all__ = ["keys_table", "kinds_table", "parts_table"]


def keys_table() -> str:
    """Return a Markdown table of all keys: default, allowed values and meaning."""
    rows = [
        (f"`{key}`", f"`{json.dumps(default)}`", allowed, about)
        for key, allowed, default, about in describe_keys()
    ]
    return _table(("Key", "Default", "Allowed", "Meaning"), rows)


def parts_table(word: str) -> str:
    """Return a Markdown table of all parts of a kind: meaning and keys."""
    kind = KINDS[word]
    head = " and ".join(f"`{key}`" for key in kind.keys)
    rows = [(f"`{usual_name(part)}`", part.about, _keys(kind, part)) for part in kind.parts.values()]
    return _table((head, "What it names", "Keys"), rows)


def kinds_table() -> str:
    """Return a Markdown table of all kinds: keys, arguments of `make`, and what it returns."""
    rows = []
    for kind in KINDS.values():
        needed = [f"`{name}`" for name in (*kind.methods, *kind.attributes) if name != "__call__"]
        returns = kind.returns + (f": {', '.join(needed)}" if needed else "")
        keys = ", ".join(f"`{key}`" for key in kind.keys)
        rows.append((f"`{kind.word}`", keys, f"`make({kind.arguments})`", returns))
    return _table(("Kind", "Chosen by", "Made by", "Returns"), rows)


def _keys(kind: Kind, part: Part) -> str:
    names = [*(key.name for key in part.keys), *part.reads]
    return ", ".join(f"`{kind.sections[0]}.{name}`" for name in names) or "-"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    print(keys_table(), *map(parts_table, KINDS), kinds_table(), sep="\n\n")
