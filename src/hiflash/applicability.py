"""Which settings mean something beside which others: one that does nothing is an error, not a surprise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["out_of_place"]

ASYNC, SYNC = ("cloud.schedule", ("async",)), ("cloud.schedule", ("sync",))
WEIGHTED = ("cloud.mixing", ("interpolate", "delta", "buffer"))

SAID = {"async": "asynchronous", "sync": "synchronous", "centralized": "centralized"}

NEEDS: dict[str, tuple[tuple[str, tuple[Any, ...]], ...]] = {
    "federation.association": (("federation.flat", (False,)),),
    "cloud.participants": (SYNC,),
    "cloud.selection": (SYNC,),
    "cloud.tiers": (SYNC, ("cloud.selection", ("tiers",))),
    "cloud.tier_interval": (SYNC, ("cloud.selection", ("tiers",))),
    "cloud.deadline_s": (SYNC,),
    "cloud.quorum": (SYNC,),
    "cloud.concurrency": (ASYNC,),
    "cloud.mixing": (ASYNC,),
    "cloud.alpha": (ASYNC, WEIGHTED),
    "cloud.weighting": (ASYNC, WEIGHTED),
    "cloud.penalty": (ASYNC, WEIGHTED, ("cloud.weighting", ("exponential",))),
    "cloud.exponent": (ASYNC, WEIGHTED, ("cloud.weighting", ("polynomial",))),
    "cloud.hinge": (ASYNC, WEIGHTED, ("cloud.weighting", ("hinge",))),
    "cloud.momentum": (ASYNC, ("cloud.mixing", ("delta",))),
    "cloud.buffer": (ASYNC, ("cloud.mixing", ("buffer",))),
    "cloud.threshold": (ASYNC,),
    "cloud.threshold_max": (ASYNC,),
    "cloud.parallelism": (ASYNC, ("cloud.threshold", ("parallel",))),
    "cloud.base_threshold": (ASYNC, ("cloud.threshold", ("latency", "skip_slowest"))),
    "cloud.skipped": (ASYNC, ("cloud.threshold", ("skip_slowest",))),
    "cloud.enforce": (ASYNC,),
}
"""What each key needs to mean something. A key that is not here always does."""

OWN = {
    "cloud.mixing": ("interpolate", "delta", "buffer", "tiers"),
    "cloud.threshold": ("inf", "random", "parallel", "latency", "skip_slowest"),
}
"""The names that come with HiFlash; a part that a user registered may look at any key."""


def out_of_place(key: str, settings: Mapping[str, Any]) -> str:
    """Return why a key means nothing among these (complete, dotted) settings, empty if it does."""
    for other, values in NEEDS.get(key, ()):
        has = settings[other]
        if has in values or (other in OWN and isinstance(has, str) and has not in OWN[other]):
            continue
        if other == "cloud.schedule":
            method, said = settings["method"], SAID.get(str(has))
            return f"is for {SAID[values[0]]} methods, and {method} is {said}; leave it out"
        wanted = " or ".join(json.dumps(value) for value in values)
        return f"is for {other} = {wanted}, and here that is {json.dumps(has)}; leave it out"
    return ""
