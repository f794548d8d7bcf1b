"""The error to expect of a forecast: that of forecasts of finished runs like it (`errors.json`)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["expected_error", "regime_of"]

FILE = Path(__file__).with_name("errors.json")
# Halfway, in logarithms, between the 3 and the 30 steps that were measured.
MANY_STEPS = 9.5
# Halfway between the mean JS of edges in the tables of methods (up to 0.16) and of Edge-NonIID (0.40).
DIFFERENT_EDGES = 0.28


def regime_of(local_steps: float, mean_js: float | None) -> str:
    """Return the kind of runs that a forecast is about: `alike`, `edge-noniid` or `many-steps`."""
    if local_steps > MANY_STEPS:
        return "many-steps"
    return "edge-noniid" if mean_js is not None and mean_js > DIFFERENT_EDGES else "alike"


def expected_error(local_steps: float, mean_js: float | None) -> dict[str, Any]:
    """Return the measured errors of forecasts of this kind: median and worst size, and median with sign."""
    regime = regime_of(local_steps, mean_js)
    return {"regime": regime, **_measured()[regime]}


@cache
def _measured() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text())["regimes"]
    return found
