"""Which settings apply together: a setting without effect is an error, not a surprise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hiflash.core.registry import declared_keys, readers
from hiflash.methods.registry import BUILT_IN, THRESHOLDS

__all__ = ["out_of_place"]

ASYNC, SYNC = ("cloud.schedule", ("async",)), ("cloud.schedule", ("sync",))
FEDERATED = ("cloud.schedule", ("async", "sync"))
EDGES = ("federation.flat", (False,))
WEIGHTED = ("cloud.mixing", ("interpolate", "delta", "buffer"))

ASSOCIATION = (
    "association",
    "heterogeneity_weight",
    "target_distribution",
    "capacity",
    "reach",
    "classes_per_edge",
)
RULE = {"trim": "trimmed_mean", "byzantine": "krum", "krum_keep": "krum", "clip_norm": "norm_clip"}
ATTACK = ("attack.kind", ("sign_flip", "noise", "label_flip", "scale", "nan"))
SAID = {"async": "asynchronous", "sync": "synchronous", "centralized": "centralized"}

Need = tuple[str, tuple[Any, ...]]  # another key, and the values that it may have


def _threshold_needs() -> dict[str, tuple[Need, ...]]:
    """Return the needs of the keys that thresholds declare: a threshold that reads them."""
    parts = THRESHOLDS.values()
    return {
        f"cloud.{name}": (ASYNC,) if key.anywhere else (ASYNC, ("cloud.threshold", readers(parts, name)))
        for name, key in declared_keys(parts).items()
    }


NEEDS: dict[str, tuple[Need, ...]] = {
    **{f"federation.{key}": (EDGES,) for key in ASSOCIATION},
    "client.batch_norm": (FEDERATED,),
    "resources.slow_edge": (FEDERATED, EDGES),
    "resources.fluctuation_rho": (("resources.fluctuation", ("on",)),),
    "resources.fluctuation_spread": (("resources.fluctuation", ("on",)),),
    "edge.aggregate": (FEDERATED, EDGES),
    **{f"edge.{key}": (FEDERATED, EDGES, ("edge.aggregate", (rule,))) for key, rule in RULE.items()},
    "cloud.aggregate": (SYNC,),
    **{f"cloud.{key}": (SYNC, ("cloud.aggregate", (rule,))) for key, rule in RULE.items()},
    "attack.kind": (FEDERATED,),
    "attack.share": (FEDERATED, ATTACK),
    "attack.scale": (FEDERATED, ("attack.kind", ("sign_flip", "noise", "scale"))),
    **{f"mobility.{key}": (FEDERATED,) for key in ("moves_per_s", "joins_per_s", "leaves_per_s", "absent")},
    "mobility.repair_s": (FEDERATED, EDGES),
    "mobility.switching_cost": (FEDERATED, EDGES),
    "evaluate.clients": (FEDERATED,),
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
    **_threshold_needs(),
    "cloud.enforce": (ASYNC,),
}
"""The needs of each key. A key that is not listed always applies."""


def out_of_place(key: str, settings: Mapping[str, Any]) -> str:
    """Return why a key has no effect among these (complete, dotted) settings; empty if it has one."""
    for other, values in NEEDS.get(key, ()):
        has = settings[other]
        if has in values or (other in BUILT_IN and isinstance(has, str) and has not in BUILT_IN[other]):
            continue
        method = settings["method"]
        if other == "cloud.schedule" and len(values) > 1:
            return f"is about clients, and {method} has none; leave it out"
        if other == "cloud.schedule":
            return f"is for {SAID[values[0]]} methods, and {method} is {SAID.get(str(has))}; leave it out"
        if other == "federation.flat":
            way_out = "use federation.flat = false, or a method with edges"
            if key == "edge.aggregate":
                way_out = "use cloud.aggregate with a synchronous method, or a method with edges"
            return f"needs edges, and {method} has none (federation.flat); {way_out}"
        wanted = " or ".join(json.dumps(value) for value in values)
        return f"is for {other} = {wanted}, and here that is {json.dumps(has)}; leave it out"
    return ""
