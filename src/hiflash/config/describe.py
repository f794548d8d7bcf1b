"""The parts of methods, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hiflash.config.tree import Config
from hiflash.core.registry import Part
from hiflash.methods.kinds import KINDS
from hiflash.methods.plugins import load_plugins
from hiflash.methods.registry import chosen

__all__ = ["describe_method", "describe_parts"]


def describe_method(method: str) -> dict[str, str]:
    """Return the parts of a method, in words."""
    config = Config(method=method)
    cloud, client, edge = config.cloud, config.client, config.edge
    if cloud.schedule == "centralized":
        return {"schedule": f"none ({config.stop.steps:,} steps on pooled data)"}
    flat, asynchronous = config.federation.flat, cloud.schedule == "async"
    parts: dict[str, str] = {"association": "none (flat)" if flat else config.federation.association}
    if not flat:
        rounds = "/".join(str(count) for count in edge.edge_rounds)
        parts["edge"] = f"{_clients(edge.clients_per_round)} clients x {rounds} rounds"
    if asynchronous:
        most = "" if cloud.concurrency == "none" else f" ({cloud.concurrency} at a time)"
        weighted = f" ({cloud.alpha:g}, {cloud.weighting})" if _is_weighted(config) else ""
        parts["schedule"] = f"async{most}"
        parts["mixing"] = cloud.mixing + weighted
        parts["threshold"] = str(cloud.threshold)
    else:
        parts["schedule"] = f"sync ({cloud.participants} {'clients' if flat else 'edges'})"
        parts["selection"] = cloud.selection
        parts["mixing"] = "mean by samples"
        if cloud.optimizer != "none":
            parts["optimizer"] = cloud.optimizer
    name = client.optimizer.upper() if client.algorithm == "sgd" else client.algorithm
    parts["client"] = f"{name} (mu {client.mu:g})" if client.mu else name
    return parts


def describe_parts() -> dict[str, dict[str, Any]]:
    """Return every kind of part: the keys that choose it, and its parts with their own keys."""
    load_plugins()
    return {
        word: {
            "keys": list(kind.keys),
            "parts": {
                name: {
                    "about": part.about,
                    "keys": _keys_of(kind.sections, part),
                }
                for name, part in kind.parts.items()
            },
        }
        for word, kind in KINDS.items()
    }


def _keys_of(sections: Sequence[str], part: Part) -> list[str]:
    """Return the keys that a part uses: its own, and those of other parts in the same sections."""
    names = [*(key.name for key in part.keys), *part.reads]
    return [f"{section}.{name}" for section in sections for name in names]


def _clients(wanted: float | str) -> str:
    """Return the clients of an edge round in words: all, 5, 50% of the.

    >>> [_clients(wanted) for wanted in ("all", 5, 0.5)]
    ['all', '5', '50% of the']
    """
    return f"{wanted:.0%} of the" if isinstance(wanted, float) else str(wanted)


def _is_weighted(config: Config) -> bool:
    return "weighting" in chosen(config, "cloud.mixing").reads
