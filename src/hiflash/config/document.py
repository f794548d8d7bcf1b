"""The tables of docs/configuration.md, printed by `python -m hiflash.config.document`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hiflash.config.tree import describe_keys
from hiflash.core.registry import Part
from hiflash.methods.registry import THRESHOLDS

__all__ = ["keys_table", "thresholds_table"]


def keys_table() -> str:
    """Return a Markdown table of all keys: default, allowed values and meaning."""
    rows = [
        (f"`{key}`", f"`{json.dumps(default)}`", allowed, about)
        for key, allowed, default, about in describe_keys()
    ]
    return _table(("Key", "Default", "Allowed", "Meaning"), rows)


def thresholds_table() -> str:
    """Return a Markdown table of all thresholds: meaning and keys."""
    rows = [(f"`{part.name}`", part.about, _keys(part)) for part in THRESHOLDS.values()]
    return _table(("`cloud.threshold`", "What it names", "Keys"), rows)


def _keys(part: Part) -> str:
    names = [*(key.name for key in part.keys), *part.reads]
    return ", ".join(f"`cloud.{name}`" for name in names) or "-"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    print(keys_table(), thresholds_table(), sep="\n\n")
