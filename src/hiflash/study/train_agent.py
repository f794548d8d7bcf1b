"""Trains an agent that chooses thresholds, from settings to the saved files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config import Config
from hiflash.config.settings import hiflash_settings
from hiflash.errors import ConfigError
from hiflash.store.files import check_writable
from hiflash.store.run_directory import check_name
from hiflash.study.arguments import check_arguments

if TYPE_CHECKING:
    from hiflash.config.typed import AllSettings
    from hiflash.control.surrogate.model import Surrogate
    from hiflash.core.thresholds.agent import Agent

__all__ = ["REWARDS", "TrainedAgent", "train_agent"]

REWARDS = ("progress", "paper")


@dataclass(frozen=True)
class TrainedAgent:
    """An agent, the record of its training (`training.json`), and the files in its directory."""

    agent: Agent
    record: dict[str, Any]
    files: list[Path]

    @property
    def path(self) -> Path:
        """Return the file of the agent, which `cloud.agent` takes."""
        return self.files[0]


def train_agent(
    config: str | Path | None = None,
    *,
    directory: str | Path,
    episodes: int = 150,
    network: str = "shared",
    surrogate: Surrogate | str | Path = "auto",
    fidelity: str = "surrogate",
    dynamics: str = "both",
    reward: str = "progress",
    progress: Callable[[dict[str, Any]], None] | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Unpack[AllSettings],
) -> TrainedAgent:
    """Train an agent for a federation, save it in `directory` and return it.

    `trained = hiflash.train_agent(directory="runs/agent-mine", data={"name": "mnist5k"})`, then
    `hiflash.run(method="hiflash", cloud={"agent": str(trained.path)})`. The method is hiflash unless file or
    settings name one. `progress` gets the row of every episode. A second call goes on with a paused training.
    """
    check_arguments(
        file=config,
        folder=directory,
        episodes=episodes,
        network=network,
        surrogate=surrogate,
        fidelity=fidelity,
        dynamics=dynamics,
        reward=reward,
        progress=progress,
        pause=pause,
    )
    from hiflash.control.train import Training, TrainingSettings
    from hiflash.report.training import draw_training

    if reward not in REWARDS:
        raise ConfigError(f"reward must be one of {', '.join(REWARDS)}, got {reward!r}")
    folder = Path(directory)
    check_name(folder.name)
    check_writable(folder)
    training = Training(
        Config.load(None, hiflash_settings(config, settings)),
        surrogate,
        TrainingSettings(
            episodes=episodes,
            network=network,
            dynamics=dynamics,
            fidelity=fidelity,
            progress_reward=reward == "progress",
        ),
        folder,
    )
    try:
        agent = training.run(progress or (lambda row: None), pause or (lambda: False))
    finally:
        training.close()
    record = training.record(agent)
    files = [folder / "agent.safetensors", folder / "training.json", *draw_training(record, folder)]
    return TrainedAgent(agent, record, files)
