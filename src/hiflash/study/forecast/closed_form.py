"""The law of asynchronous hierarchies in closed form."""

from __future__ import annotations

import math

from hiflash.errors import ConfigError

__all__ = ["expected_communications"]


def expected_communications(
    rounds: float, *, weight: float, staleness: float, edge_rounds: float, accepted: float = 1.0
) -> float:
    """Return the communications to a target under interpolation, `S (1/a + tau) / (H accepted)`.

    `rounds` is S, FedAvg's rounds to the target. The others are means over the uploads: the `weight` a of an
    applied model, its `staleness` tau, its `edge_rounds` H, and the share of uploads that is `accepted`.

    If every update moves the global number by v, a model that is tau updates old lags tau v behind. So
    v = a (H - tau v), which is H / (1/a + tau). This holds for S well above H (1/a + tau), and for edges that
    are alike. Under delta mixing nothing lags: staleness 0 gives S / (a H accepted).

    >>> round(expected_communications(252, weight=0.7, staleness=0, edge_rounds=2))
    180
    """
    wanted = {
        "rounds": rounds > 0,
        "weight": 0 < weight <= 1,
        "staleness": staleness >= 0,
        "edge_rounds": edge_rounds > 0,
        "accepted": 0 < accepted <= 1,
    }
    given = {"rounds": rounds, "weight": weight, "staleness": staleness, "edge_rounds": edge_rounds,
             "accepted": accepted}  # fmt: skip
    wrong = [name for name, fits in wanted.items() if not (fits and math.isfinite(given[name]))]
    if wrong:
        raise ConfigError(
            f"{wrong[0]} is {given[wrong[0]]}; rounds and edge_rounds must be above 0, weight and accepted "
            "in (0, 1], staleness at least 0"
        )
    return rounds * (1 / weight + staleness) / (edge_rounds * accepted)
