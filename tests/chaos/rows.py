"""What a row of the chaos run is: its figures, its bar, and whether it held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Found", "Row"]


@dataclass
class Found:
    """What a row has measured: one line for people, figures by name, what was missed, ports it used."""

    line: str
    figures: dict[str, Any]
    missed: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    def expect(self, holds: bool, what: str) -> None:
        """Take note of a bar that was missed."""
        if not holds:
            self.missed.append(what)


@dataclass(frozen=True)
class Row:
    """One row: a function of a folder and of whether a smoke will do, which takes at most `seconds`."""

    name: str
    bar: str
    run: Callable[[Path, bool], Found]
    seconds: float
