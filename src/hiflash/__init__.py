"""Hierarchical federated learning with asynchronous tiers and controlled staleness.

Everything that a program or an extension needs is here (docs/api.md); the modules inside are private.

>>> from hiflash import run
>>> run(method="hifl", seed=0, trainer="none", stop={"communications": 20}).communications
20
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hiflash.config import Config
    from hiflash.config.register import register, register_method
    from hiflash.config.typed import AllSettings, Settings
    from hiflash.control.environment import StalenessEnv
    from hiflash.control.shaped import ShapedStalenessEnv
    from hiflash.core.aggregation import Rule
    from hiflash.core.algorithms.algorithm import ClientAlgorithm, CloudSide, Done, MeanOfStates, Traffic
    from hiflash.core.association.parts import Scene
    from hiflash.core.attack import Attack
    from hiflash.core.compression import Codec
    from hiflash.core.metrics import Metric
    from hiflash.core.mixing import Mixing
    from hiflash.core.optimizers import CloudOptimizer
    from hiflash.core.registry import Key, Part
    from hiflash.core.selection import Peers, Selection
    from hiflash.core.state import Stateful
    from hiflash.core.thresholds.agent import Agent
    from hiflash.core.thresholds.policy import REFUSE, CloudView, LeaseView, ThresholdPolicy, admits
    from hiflash.core.weighting import Weighting, weighting
    from hiflash.data import Dataset, Partition
    from hiflash.data import load as load_dataset
    from hiflash.data import partition as partition_samples
    from hiflash.data.federation import ClientEvent, FederationData, read_federation
    from hiflash.data.federation.example import make_example as example_federation
    from hiflash.data.partition import Samples
    from hiflash.errors import (
        BudgetError,
        ConfigError,
        DamageError,
        DataError,
        HiFlashError,
        Paused,
        ProtocolError,
        RunError,
        StorageError,
    )
    from hiflash.messages import (
        Assignment,
        CheckIn,
        ClientTask,
        ClientUpdate,
        EdgeCosts,
        Grant,
        Refuse,
        Upload,
        Verdict,
        Weights,
    )
    from hiflash.report.page.claims import Claim
    from hiflash.report.trackers import register_tracker
    from hiflash.seeding import rng
    from hiflash.sim.observer import Observer, RunInfo
    from hiflash.sim.result import Result
    from hiflash.study.associate import AssociationStudy, associate
    from hiflash.study.calibrate import Calibration, calibrate
    from hiflash.study.catalogue import check_dataset, fetch_dataset, list_datasets, list_methods, list_parts
    from hiflash.study.cells import Cell
    from hiflash.study.compare import Comparison, compare
    from hiflash.study.deploy import replay, serve_client, serve_cloud, serve_edge, status
    from hiflash.study.evaluate_agent import evaluate_agent
    from hiflash.study.federation import write_federation
    from hiflash.study.forecast import Forecast, expected_communications, forecast
    from hiflash.study.histograms import write_histogram
    from hiflash.study.make_report import Report, make_report
    from hiflash.study.paper.study import Reproduction, paper_items, reproduce
    from hiflash.study.policies import Evaluation
    from hiflash.study.private_association import PrivacyStudy, price_of_privacy
    from hiflash.study.run import resume, run
    from hiflash.study.sweep import Sweep, sweep
    from hiflash.study.theory.calculate import theory_bounds
    from hiflash.study.theory.study import TheoryStudy, theory
    from hiflash.study.train_agent import TrainedAgent, train_agent
    from hiflash.study.up import up
    from hiflash.train.function import Batch, Context
    from hiflash.train.task import Trainer
    from hiflash.train.tasks import Classification, NextToken, Regression, Task
    from hiflash.weights import Spec, digest, weighted_mean

__version__ = "0.1.0"
__all__ = [
    "REFUSE",
    "Agent",
    "AllSettings",
    "Assignment",
    "AssociationStudy",
    "Attack",
    "Batch",
    "BudgetError",
    "Calibration",
    "Cell",
    "CheckIn",
    "Claim",
    "Classification",
    "ClientAlgorithm",
    "ClientEvent",
    "ClientTask",
    "ClientUpdate",
    "CloudOptimizer",
    "CloudSide",
    "CloudView",
    "Codec",
    "Comparison",
    "Config",
    "ConfigError",
    "Context",
    "DamageError",
    "DataError",
    "Dataset",
    "Done",
    "EdgeCosts",
    "Evaluation",
    "FederationData",
    "Forecast",
    "Grant",
    "HiFlashError",
    "Key",
    "LeaseView",
    "MeanOfStates",
    "Metric",
    "Mixing",
    "NextToken",
    "Observer",
    "Part",
    "Partition",
    "Paused",
    "Peers",
    "PrivacyStudy",
    "ProtocolError",
    "Refuse",
    "Regression",
    "Report",
    "Reproduction",
    "Result",
    "Rule",
    "RunError",
    "RunInfo",
    "Samples",
    "Scene",
    "Selection",
    "Settings",
    "ShapedStalenessEnv",
    "Spec",
    "StalenessEnv",
    "Stateful",
    "StorageError",
    "Sweep",
    "Task",
    "TheoryStudy",
    "ThresholdPolicy",
    "Traffic",
    "TrainedAgent",
    "Trainer",
    "Upload",
    "Verdict",
    "Weighting",
    "Weights",
    "admits",
    "associate",
    "calibrate",
    "check_dataset",
    "compare",
    "digest",
    "evaluate_agent",
    "example_federation",
    "expected_communications",
    "fetch_dataset",
    "forecast",
    "list_datasets",
    "list_methods",
    "list_parts",
    "load_dataset",
    "make_report",
    "paper_items",
    "partition_samples",
    "price_of_privacy",
    "read_federation",
    "register",
    "register_method",
    "register_tracker",
    "replay",
    "reproduce",
    "resume",
    "rng",
    "run",
    "serve_client",
    "serve_cloud",
    "serve_edge",
    "status",
    "sweep",
    "theory",
    "theory_bounds",
    "train_agent",
    "up",
    "weighted_mean",
    "weighting",
    "write_federation",
    "write_histogram",
]

_HOMES = {
    "REFUSE": "hiflash.core.thresholds.policy",
    "Agent": "hiflash.core.thresholds.agent",
    "AllSettings": "hiflash.config.typed",
    "Assignment": "hiflash.messages",
    "AssociationStudy": "hiflash.study.associate",
    "Attack": "hiflash.core.attack",
    "Batch": "hiflash.train.function",
    "Calibration": "hiflash.study.calibrate",
    "Cell": "hiflash.study.cells",
    "CheckIn": "hiflash.messages",
    "Claim": "hiflash.report.page.claims",
    "ClientEvent": "hiflash.data.federation",
    "Classification": "hiflash.train.tasks",
    "ClientTask": "hiflash.messages",
    "ClientUpdate": "hiflash.messages",
    "CloudView": "hiflash.core.thresholds.policy",
    "Codec": "hiflash.core.compression",
    "ClientAlgorithm": "hiflash.core.algorithms.algorithm",
    "CloudOptimizer": "hiflash.core.optimizers",
    "CloudSide": "hiflash.core.algorithms.algorithm",
    "Comparison": "hiflash.study.compare",
    "Config": "hiflash.config",
    "BudgetError": "hiflash.errors",
    "ConfigError": "hiflash.errors",
    "Context": "hiflash.train.function",
    "DamageError": "hiflash.errors",
    "DataError": "hiflash.errors",
    "Dataset": "hiflash.data",
    "Done": "hiflash.core.algorithms.algorithm",
    "EdgeCosts": "hiflash.messages",
    "Evaluation": "hiflash.study.policies",
    "FederationData": "hiflash.data.federation",
    "Forecast": "hiflash.study.forecast",
    "Grant": "hiflash.messages",
    "HiFlashError": "hiflash.errors",
    "Key": "hiflash.core.registry",
    "LeaseView": "hiflash.core.thresholds.policy",
    "Metric": "hiflash.core.metrics",
    "Mixing": "hiflash.core.mixing",
    "NextToken": "hiflash.train.tasks",
    "Observer": "hiflash.sim.observer",
    "MeanOfStates": "hiflash.core.algorithms.algorithm",
    "Part": "hiflash.core.registry",
    "Partition": "hiflash.data",
    "Paused": "hiflash.errors",
    "Peers": "hiflash.core.selection",
    "PrivacyStudy": "hiflash.study.private_association",
    "ProtocolError": "hiflash.errors",
    "Refuse": "hiflash.messages",
    "Regression": "hiflash.train.tasks",
    "Report": "hiflash.study.make_report",
    "Reproduction": "hiflash.study.paper.study",
    "Result": "hiflash.sim.result",
    "Rule": "hiflash.core.aggregation",
    "RunError": "hiflash.errors",
    "RunInfo": "hiflash.sim.observer",
    "Samples": "hiflash.data.partition",
    "Scene": "hiflash.core.association.parts",
    "Selection": "hiflash.core.selection",
    "Settings": "hiflash.config.typed",
    "ShapedStalenessEnv": "hiflash.control.shaped",
    "Spec": "hiflash.weights",
    "StalenessEnv": "hiflash.control.environment",
    "Stateful": "hiflash.core.state",
    "StorageError": "hiflash.errors",
    "Sweep": "hiflash.study.sweep",
    "Task": "hiflash.train.tasks",
    "TheoryStudy": "hiflash.study.theory.study",
    "ThresholdPolicy": "hiflash.core.thresholds.policy",
    "TrainedAgent": "hiflash.study.train_agent",
    "Trainer": "hiflash.train.task",
    "Upload": "hiflash.messages",
    "Verdict": "hiflash.messages",
    "Weighting": "hiflash.core.weighting",
    "Weights": "hiflash.messages",
    "admits": "hiflash.core.thresholds.policy",
    "associate": "hiflash.study.associate",
    "Traffic": "hiflash.core.compression",
    "calibrate": "hiflash.study.calibrate",
    "check_dataset": "hiflash.study.catalogue",
    "compare": "hiflash.study.compare",
    "digest": "hiflash.weights",
    "evaluate_agent": "hiflash.study.evaluate_agent",
    "example_federation": "hiflash.data.federation.example:make_example",  # its name there
    "expected_communications": "hiflash.study.forecast",
    "fetch_dataset": "hiflash.study.catalogue",
    "forecast": "hiflash.study.forecast",
    "list_datasets": "hiflash.study.catalogue",
    "list_methods": "hiflash.study.catalogue",
    "list_parts": "hiflash.study.catalogue",
    "load_dataset": "hiflash.data:load",  # its name there
    "make_report": "hiflash.study.make_report",
    "paper_items": "hiflash.study.paper.study",
    "price_of_privacy": "hiflash.study.private_association",
    "partition_samples": "hiflash.data:partition",  # its name there
    "read_federation": "hiflash.data.federation",
    "register": "hiflash.config.register",
    "register_method": "hiflash.config.register",
    "register_tracker": "hiflash.report.trackers",
    "reproduce": "hiflash.study.paper.study",
    "resume": "hiflash.study.run",
    "rng": "hiflash.seeding",
    "run": "hiflash.study.run",
    "sweep": "hiflash.study.sweep",
    "theory": "hiflash.study.theory.study",
    "theory_bounds": "hiflash.study.theory.calculate",
    "train_agent": "hiflash.study.train_agent",
    "replay": "hiflash.study.deploy",
    "serve_client": "hiflash.study.deploy",
    "serve_cloud": "hiflash.study.deploy",
    "serve_edge": "hiflash.study.deploy",
    "status": "hiflash.study.deploy",
    "up": "hiflash.study.up",
    "weighted_mean": "hiflash.weights",
    "weighting": "hiflash.core.weighting",
    "write_federation": "hiflash.study.federation",
    "write_histogram": "hiflash.study.histograms",
}


def _register_environments() -> None:
    """Let `gymnasium.make` find the environments, if Gymnasium is in use."""
    if "gymnasium" in sys.modules:
        importlib.import_module("hiflash.control")


_register_environments()


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `hiflash --help` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hiflash' has no attribute {name!r}")
    module, _, inner = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), inner or name)


def __dir__() -> list[str]:
    """Return the public names, so that an interactive session completes them."""
    return [*__all__, "__version__"]
