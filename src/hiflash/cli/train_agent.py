"""`hiflash train-agent`: starts or resumes the training of a threshold agent."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hiflash.cli.common import pause_on_signal, print_paths
from hiflash.cli.words import settings_options

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "train-agent", help="train an agent that chooses thresholds", add_help=False
    )
    settings_options(command)
    command.add_argument("--episodes", type=int, default=150, help="runs to learn from (150)")
    command.add_argument(
        "--network",
        choices=("shared", "paper"),
        default="shared",
        help="shared: for any number of edges; paper: for this number only",
    )
    command.add_argument(
        "--surrogate",
        default="auto",
        metavar="FILE",
        help="file of hiflash calibrate (auto: the shipped one)",
    )
    command.add_argument(
        "--fidelity",
        choices=("surrogate", "real"),
        default="surrogate",
        help="surrogate (fast) or real training",
    )
    command.add_argument(
        "--dynamics",
        choices=("both", "static", "fluctuating"),
        default="both",
        help="resources while training",
    )
    command.add_argument(
        "--reward",
        choices=("progress", "paper"),
        default="progress",
        help="progress: also reward progress; paper: costs only",
    )
    command.set_defaults(call=_train)


def _train(options: argparse.Namespace) -> int:
    from hiflash.config import Config
    from hiflash.config.settings import hiflash_settings
    from hiflash.report.training import TrainingView, training_table
    from hiflash.study.train_agent import train_agent

    config = Config.load(None, hiflash_settings(options.config, options.settings))
    name = options.name or f"agent-{config.data.name}-{config.federation.association}"
    with TrainingView(options.episodes) as view:
        trained = train_agent(
            options.config,
            directory=Path(options.runs) / name,
            episodes=options.episodes,
            network=options.network,
            surrogate=options.surrogate,
            fidelity=options.fidelity,
            dynamics=options.dynamics,
            reward=options.reward,
            progress=view.episode,
            pause=pause_on_signal(),
            **options.settings,
        )
    if options.json:
        print(json.dumps(trained.record))
        return 0
    from rich.console import Console

    console = Console()
    console.print(training_table(trained.record))
    print_paths(console, trained.files)
    console.print(f"digest {trained.agent.digest}", soft_wrap=True, highlight=False)
    return 0
