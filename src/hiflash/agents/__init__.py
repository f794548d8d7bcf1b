"""The trained agents that come with HiFlash, each beside its surrogate, and how `cloud.agent` finds one.

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
TRAINING_SEEDS = 9_000  # from here on agents are trained, and chosen by checks; they are judged below
UNLIKE = ("random", "latency", "edge-noniid")  # associations that leave edges with different classes


def shipped() -> list[str]:
    """Return the names of the agents that come with HiFlash."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def from_anywhere(wanted: str) -> str:
    """Return `cloud.agent` with a path that is right from any folder.

    A configuration is read again when a run is resumed, maybe from elsewhere.
    """
    return str(Path(wanted).expanduser().resolve()) if _is_path(wanted) else wanted


def shipped_name(data: str, association: str) -> str:
    """Return the name of what was trained, or would have to be, for such data and such an association.

    Writers are alike enough that any association leaves alike edges. CIFAR-10 has nothing yet, and what
    was made for digits is not for it.
    """
    if data in ("femnist", "cifar10"):
        return data
    if association in UNLIKE:
        return "mnist-noniid"
    return "mnist" if data == "mnist" else "default"


def acting_agent(config: Config) -> Agent | None:
    """Return the agent that chooses the thresholds of such a run, None if something else does."""
    return find_agent(config) if config.cloud.threshold == "agent" else None


def find_agent(config: Config) -> Agent:
    """Return the agent that `cloud.agent` names; `auto` is the one for the data and the association.

    What a threshold does is another thing where everybody may start and late updates are discarded: where
    there is an agent for that, it is taken.
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
    """Return whether this is the path of a file: names have neither a dot nor a slash."""
    return "." in wanted or "/" in wanted
