"""The calculator on numbers that somebody types: `hiflash theory --calculate eta=0.1,beta=2,...`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from hiflash.errors import ConfigError
from hiflash.study.theory.bounds import (
    Constants,
    Schedule,
    WeakConstants,
    delayed_bound,
    drift_bounds,
    strongly_convex_bound,
    weakly_convex_bound,
)

__all__ = ["NAMES", "parse_numbers", "theory_bounds"]

WHOLE = ("c", "H_min", "H_max", "tau", "T")
NEEDED = ("eta", "beta", "mu", "rho", "delta_max", "Delta", "V", "c", "H_min", "H_max", "gap", "T")
DEFAULTS = {"alpha": 0.7, "upsilon": 0.99, "tau": 0}
WEAK = ("mu_weak", "mu_tilde", "beta_tilde", "rho_tilde", "delta_tilde", "Delta_tilde", "V_tilde")
NAMES = (*NEEDED, *DEFAULTS, *WEAK)
BEYOND = "beyond the range of numbers (1e-308 to 1e308); use constants nearer to 1"


def parse_numbers(text: str) -> dict[str, float]:
    """Return the numbers of a list like `eta=0.1,beta=2`.

    >>> parse_numbers("eta=0.1, c=3")
    {'eta': 0.1, 'c': 3.0}
    """
    numbers: dict[str, float] = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        if name in numbers:
            raise ConfigError(f"--calculate has {name} twice; give it once")
        try:
            numbers[name] = float(value)
        except ValueError:
            raise ConfigError(f"--calculate must be like eta=0.1,beta=2,..., got {part}") from None
    return numbers


def theory_bounds(**numbers: float) -> dict[str, Any]:
    """Return g of Lemma 2 and the bounds of the theorems after T updates, from given constants.

    Needs eta, beta, mu, rho, delta_max, Delta, V, c, H_min, H_max, gap (F(w0) - F*) and T. alpha is 0.7,
    upsilon 0.99 and tau 0 unless given. Theorem 2 needs mu_tilde; mu_weak is 0 unless given, beta_tilde is
    beta + mu_tilde, and other `*_tilde` are as without tilde.
    """
    _check(numbers)
    try:
        told = _bounds({**DEFAULTS, "mu_weak": 0.0, **numbers})
    except (OverflowError, ZeroDivisionError):
        raise ConfigError(f"a term of the bounds is {BEYOND}") from None
    wrong = [name for name, value in _values(told) if not math.isfinite(value)]
    if wrong:
        raise ConfigError(f"{', '.join(wrong)} would be {BEYOND}")
    return told


def _bounds(n: Mapping[str, float]) -> dict[str, Any]:
    schedule = Schedule(n["eta"], int(n["c"]), int(n["H_min"]), int(n["H_max"]))
    constants = Constants(n["beta"], n["mu"], n["rho"], n["delta_max"], n["Delta"], n["V"])
    weight, tau, updates = n["alpha"] * n["upsilon"] ** n["tau"], int(n["tau"]), int(n["T"])
    bounds: dict[str, Any] = {
        "theorem1": strongly_convex_bound(constants, schedule, weight, n["gap"]),
        "delayed": delayed_bound(constants, schedule, weight, tau, n["gap"]),
    }
    if "mu_tilde" in n:
        weak = WeakConstants(
            n["beta"],
            n["mu_weak"],
            n["rho"],
            n["mu_tilde"],
            n.get("beta_tilde", n["beta"] + n["mu_tilde"]),
            n.get("rho_tilde", n["rho"]),
            n.get("delta_tilde", n["delta_max"]),
            n.get("Delta_tilde", n["Delta"]),
            n.get("V_tilde", n["V"]),
        )
        bounds["theorem2"] = weakly_convex_bound(weak, schedule, weight, n["gap"])
    told = {
        name: {**asdict(bound), "U": bound.after(updates), "informative": bound.informative}
        for name, bound in bounds.items()
    }
    return {"g": drift_bounds(schedule.c, schedule.eta, constants.beta, constants.delta_max), **told}


def _values(told: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield every number with its name, of g the last, which is the largest."""
    yield "g", told["g"][-1]
    for bound in ("theorem1", "delayed", "theorem2"):
        for name, value in told.get(bound, {}).items():
            yield f"{bound}.{name}", value


def _check(numbers: Mapping[str, float]) -> None:
    problems = [f"the calculator does not know {name}; it knows {', '.join(NAMES)}"
                for name in numbers if name not in NAMES]  # fmt: skip
    missing = [name for name in NEEDED if name not in numbers]
    if missing:
        problems.append(f"the calculator needs {', '.join(missing)} too, like {missing[0]}=1")
    for name, value in numbers.items():
        if not 0 <= value < 1e300:
            problems.append(f"{name} must be a number >= 0, got {value:g}")
        elif name in WHOLE and (value != int(value) or value > 1e6):
            problems.append(f"{name} must be a whole number up to 1,000,000, got {value:g}")
    if problems:
        raise ConfigError(problems)
