"""Which settings apply together: a setting without effect is an error, not a surprise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from hiflash.config.parts import key_readers, keys_of
from hiflash.core.association.parts import BY_LABELS
from hiflash.core.registry import readers
from hiflash.methods.kinds import KINDS, kind_of
from hiflash.methods.registry import is_own, usual_model, version

__all__ = ["Need", "needs", "out_of_place"]


class Need(NamedTuple):
    """Other keys, and the values of which one of them must have one."""

    keys: tuple[str, ...]
    values: tuple[Any, ...]


ASYNC, SYNC = Need(("cloud.schedule",), ("async",)), Need(("cloud.schedule",), ("sync",))
FEDERATED = Need(("cloud.schedule",), ("async", "sync"))
EDGES = Need(("federation.flat",), (False,))
FLUCTUATION = Need(("resources.fluctuation",), ("on",))
STEPS = Need(("client.algorithm",), ("sgd", "scaffold", "feddyn", "fednova"))  # a function takes its own
PRIVATE = Need(("dp.unit",), ("client", "sample"))
PRIVATE_CLIENTS = Need(("dp.unit",), ("client",))
UNCLIPPED = Need(("dp.unit",), ("off", "sample"))  # else dp.clip bounds a client's change
SECURE = Need(("edge.secure",), ("secagg",))
SAID = {"async": "asynchronous", "sync": "synchronous", "centralized": "centralized"}

NOISE_KEYS = ("privacy.noise", "privacy.delta", "privacy.unit")
HISTOGRAMS = Need(("federation.association", "serve.data"), (*BY_LABELS, "own"))

BASIC: dict[str, tuple[Need, ...]] = {
    **{f"privacy.{key}": (HISTOGRAMS,) for key in ("epsilon", "noise", "unit", "histograms")},
    "privacy.delta": (HISTOGRAMS, Need(("privacy.noise",), ("gaussian",))),
    "privacy.group": (HISTOGRAMS, Need(("privacy.histograms",), ("group",))),
    "federation.files": (FEDERATED,),
    "federation.association": (EDGES,),
    "federation.capacity": (EDGES,),
    "client.algorithm": (FEDERATED,),
    "client.batch_norm": (FEDERATED,),
    **{f"client.{key}": (STEPS,) for key in ("momentum", "weight_decay", "clip_norm", "optimizer")},
    "data.augment": (STEPS,),
    "resources.slow_edge": (FEDERATED, EDGES),
    "resources.fluctuation_rho": (FLUCTUATION,),
    "resources.fluctuation_spread": (FLUCTUATION,),
    "edge.aggregate": (FEDERATED, EDGES),
    "edge.secure": (FEDERATED, EDGES),
    "edge.secure_bound": (FEDERATED, EDGES, SECURE, UNCLIPPED),
    "attack.kind": (FEDERATED,),
    "dp.unit": (FEDERATED,),
    **{f"dp.{key}": (FEDERATED, PRIVATE) for key in ("clip", "noise", "epsilon", "delta")},
    "dp.rounds": (FEDERATED, PRIVATE, Need(("dp.noise",), ("auto",))),
    **{f"dp.{key}": (FEDERATED, PRIVATE_CLIENTS) for key in ("clients", "sampling", "where")},
    **{f"mobility.{key}": (FEDERATED,) for key in ("moves_per_s", "joins_per_s", "leaves_per_s", "absent")},
    "mobility.repair_s": (FEDERATED, EDGES),
    "mobility.switching_cost": (FEDERATED, EDGES),
    "evaluate.clients": (FEDERATED,),
    **{f"cloud.{key}": (SYNC,) for key in ("aggregate", "participants", "selection", "optimizer")},
    **{f"cloud.{key}": (SYNC,) for key in ("deadline_s", "quorum")},
    **{f"cloud.{key}": (ASYNC,) for key in ("concurrency", "mixing", "weighting", "threshold", "enforce")},
}
"""The needs of keys that no part declares. A key that is not listed always applies."""


def needs() -> dict[str, tuple[Need, ...]]:
    """Return the needs of every key: those of a part's key come from the part."""
    return _needs(version())


@lru_cache(maxsize=1)
def _needs(version: int) -> dict[str, tuple[Need, ...]]:
    found = dict(BASIC)
    for kind in KINDS.values():
        for key in kind.keys:
            read = [Need(other.keys, names) for other, names in key_readers(key)]
            found[key] = (*found.get(key, ()), *read)
    for kind in KINDS.values():
        for section in kind.sections:
            choosing = tuple(key for key in kind.keys if key.startswith(f"{section}."))
            for name, own in keys_of(kind).items():
                chosen = Need(choosing, readers(kind.parts.values(), name))
                found[f"{section}.{name}"] = (*found[choosing[0]], *(() if own.anywhere else (chosen,)))
    return found


def out_of_place(key: str, settings: Mapping[str, Any]) -> str:
    """Return why a key has no effect among these (complete, dotted) settings; empty if it has one."""
    wanted_by = needs().get(key, ())
    if key == "cloud.momentum" and settings["cloud.schedule"] == "sync":  # a part in each schedule reads it
        wanted_by = (Need(("cloud.optimizer",), ("momentum",)),)
    if key.startswith("privacy."):
        if _clients_move(settings):  # joins and repairs look at labels, whatever the association does
            wanted_by = tuple(need for need in wanted_by if need is not HISTOGRAMS)
        if key in NOISE_KEYS and _no_noise(settings):
            return "is about noise, and privacy.epsilon is no number here; give one, or leave it out"
    for need in wanted_by:
        if any(_meets(other, _value(other, settings), need.values) for other in need.keys):
            continue
        other, has = need.keys[0], settings[need.keys[0]]
        method = settings["method"]
        if other == "cloud.schedule" and len(need.values) > 1:
            return f"is about clients, and {method} has none; leave it out"
        if other == "cloud.schedule":
            return (
                f"is for {SAID[need.values[0]]} methods, and {method} is {SAID.get(str(has))}; leave it out"
            )
        if other == "federation.flat":
            way_out = "use federation.flat = false, or a method with edges"
            if key == "edge.aggregate":
                way_out = "use cloud.aggregate with a synchronous method, or a method with edges"
            return f"needs edges, and {method} has none (federation.flat); {way_out}"
        wanted = " or ".join(json.dumps(value) for value in need.values)
        here = " and ".join(json.dumps(settings[other]) for other in need.keys)
        return f"is for {' or '.join(need.keys)} = {wanted}, and here that is {here}; leave it out"
    return ""


def _clients_move(settings: Mapping[str, Any]) -> bool:
    rates = ("moves_per_s", "joins_per_s", "leaves_per_s", "absent")
    moving = settings["mobility.repair_s"] != "none" or any(settings[f"mobility.{key}"] for key in rates)
    return bool(moving and not settings["federation.flat"])


def _no_noise(settings: Mapping[str, Any]) -> bool:
    """Return whether no client adds noise: clients with data of their own do by default."""
    epsilon = settings["privacy.epsilon"]
    return bool(epsilon == "off" or (epsilon == "auto" and settings["serve.data"] != "own"))


def _value(key: str, settings: Mapping[str, Any]) -> Any:
    """Return the value of a key; the model "auto" is that of the dataset."""
    value = settings[key]
    return usual_model(settings["data.name"]) if (key, value) == ("model.name", "auto") else value


def _meets(key: str, value: Any, values: tuple[Any, ...]) -> bool:
    """Return whether a value is one of these; a part of the user may read any key of its kind."""
    kind = kind_of(key)
    return value in values or (kind is not None and (is_own(key, value) or kind.name_in(value) in values))
