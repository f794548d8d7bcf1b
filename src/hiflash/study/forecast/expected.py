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
# Halfway between the mean JS of edges in the tables of methods (0.15) and with five classes each (0.32).
DIFFERENT_EDGES = 0.23


def regime_of(local_steps: float, mean_js: float | None, momentum: float) -> str:
    """Return the finished runs that are most like a forecast: `alike` where nothing speaks against it."""
    if local_steps > MANY_STEPS:
        return "many-steps"
    if momentum > 0:
        return "momentum"
    return "edge-noniid" if mean_js is not None and mean_js > DIFFERENT_EDGES else "alike"


def expected_error(regime: str) -> dict[str, Any]:
    """Return the measured errors of forecasts of this kind: median and worst size, and median with sign."""
    return {"regime": regime, **_measured()[regime]}


@cache
def _measured() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text())["regimes"]
    return found
