"""Agents and surrogates that come with HiFlash, by name."""

from __future__ import annotations

from hiflash.config import Config

__all__ = ["shipped_name"]

ALIKE = ("heterogeneity", "data", "edge-iid")  # associations after which every edge has everyone's labels


def shipped_name(config: Config) -> str:
    """Return the name of what was trained for federations like this one."""
    name = config.data.name if config.data.name in ("mnist", "femnist") else "default"
    return name if config.federation.association in ALIKE else f"{name}-noniid"
