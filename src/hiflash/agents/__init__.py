"""The agents and surrogates that ship with HiFlash, and the lookup of `cloud.agent`.

May import the vocabulary, core and store.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hiflash.errors import ConfigError

if TYPE_CHECKING:
    from hiflash.config import Config
    from hiflash.core.thresholds.agent import Agent

__all__ = [
    "FOLDER",
    "TRAINING_SEEDS",
    "acting_agent",
    "find_agent",
    "from_anywhere",
    "shipped",
    "shipped_name",
]

FOLDER = Path(__file__).parent
TRAINING_SEEDS = 9_000  # training and its checks use seeds from here on, evaluations use lower ones
UNEVEN = ("random", "latency", "edge-noniid")  # associations whose edges hold different classes


def shipped() -> list[str]:
    """Return the names of the shipped agents."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def from_anywhere(wanted: str) -> str:
    """Return `cloud.agent` with an absolute path: a run may be resumed from another folder."""
    return str(Path(wanted).expanduser().resolve()) if _is_path(wanted) else wanted


def shipped_name(data: str, association: str) -> str:
    """Return the name of the agent, and of the surrogate, for a dataset and an association.

    Nothing ships under the name `cifar10` yet, and agents for digits do not suit it. The writers of FEMNIST
    have similar labels, so one agent serves every association.
    """
    if data in ("femnist", "cifar10"):
        return data
    if association in UNEVEN:
        return "mnist-noniid"
    return "mnist" if data == "mnist" else "default"


def acting_agent(config: Config) -> Agent | None:
    """Return the agent that chooses the thresholds of a run, or None without one."""
    return find_agent(config) if config.cloud.threshold == "agent" else None


def find_agent(config: Config) -> Agent:
    """Return the agent that `cloud.agent` names; `auto` chooses by dataset and association.

    Thresholds mean something else under discard and cancel, so `auto` prefers a `*-discard` agent there.
    """
    from hiflash.store.agent_file import load_agent

    wanted, data, association = config.cloud.agent, config.data.name, config.federation.association
    if _is_path(wanted):
        return load_agent(Path(wanted).expanduser())
    name = shipped_name(data, association) if wanted == "auto" else wanted
    if wanted == "auto" and config.cloud.enforce != "admit" and f"{name}-discard" in shipped():
        name = f"{name}-discard"
    if name not in shipped():
        which = f' ("auto" with data.name = {data} and association {association})' if wanted == "auto" else ""
        raise ConfigError(
            f"no agent {name!r} comes with HiFlash{which}; there are: {', '.join(shipped()) or 'none'}. "
            "Give the path of a file, train one with hiflash train-agent, or let a rule decide: "
            "--cloud.threshold parallel"
        )
    return load_agent(FOLDER / f"{name}.safetensors")


def _is_path(wanted: str) -> bool:
    """Return whether this is the path of a file: a name has neither a dot nor a slash."""
    return "." in wanted or "/" in wanted
