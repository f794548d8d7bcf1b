"""The sections that say how a method works: who takes part, and what clients, edges and cloud do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model

from hiflash.config.keys import (
    Count,
    Factor,
    NoneOr,
    OneOf,
    Positive,
    Seconds,
    Section,
    Share,
    ShareOpen,
    as_tuple,
    field_of,
    setting,
)
from hiflash.core.aggregation import Rule
from hiflash.core.registry import declared_keys
from hiflash.methods.registry import MIXINGS, THRESHOLDS

__all__ = ["AttackSection", "ClientSection", "CloudSection", "EdgeSection", "FederationSection"]


class FederationSection(Section):
    """Who takes part."""

    clients: Count = setting(100, "N, clients that hold data")
    edges: Count = setting(10, "M, edges that each own a cluster of clients")
    files: Annotated[str, Field(max_length=4096)] = setting(
        "", "folder with measured latencies, speeds, ... (docs/federation.md)", allowed="a folder"
    )
    association: Literal["random", "heterogeneity", "latency", "data", "edge-iid", "edge-noniid", "given"] = (
        setting("random", "which client belongs to which edge (docs/association.md)")
    )
    heterogeneity_weight: Annotated[float, Field(ge=0, le=1e9)] = setting(
        300.0, "lambda, milliseconds of latency that a divergence of 1 is worth"
    )
    target_distribution: Literal["global", "uniform"] = setting(
        "global", "LD_IID, the labels that a cluster should have"
    )
    capacity: Count | NoneOr = setting("none", "most clients of an edge")
    reach: Count | Literal["all"] = setting(
        "all", "edges that a client can reach: the ones with its best bandwidths"
    )
    classes_per_edge: Count = setting(5, "edge-noniid: classes that an edge holds")
    flat: bool = setting(False, "no edge tier: every client talks to the cloud itself")


class ClientSection(Section):
    """What a client does with a model."""

    local_steps: Count = setting(3, "c, mini-batch SGD steps in a task")
    local_epochs: Count | NoneOr = setting("none", "passes over the client's data instead of local_steps")
    batch: Count = setting(60, "samples in a step")
    lr: Positive = setting(0.01, "learning rate")
    lr_decay: Share = setting(0.99, "factor on the learning rate")
    lr_decay_steps: Count = setting(100, "a client's steps between two decays")
    mu: Factor = setting(0.0, "proximal term (FedProx)")
    momentum: ShareOpen = setting(0.0, "SGD momentum, reset in every task")
    weight_decay: Factor = setting(0.0, "SGD weight decay")
    batch_norm: Literal["average", "local"] = setting(
        "average", "local: every client keeps its own BatchNorm layers (FedBN)"
    )
    clip_norm: Positive | NoneOr = setting("none", "clip each step's gradient to this norm")


class Aggregation(Section):
    """How a round's models become one, at an edge or at a synchronous cloud."""

    aggregate: Literal["mean", "median", "trimmed_mean", "krum", "norm_clip"] = setting(
        "mean", "how the models of a round become one (a cloud's only if it is synchronous)"
    )
    trim: Annotated[float, Field(ge=0, lt=0.5)] = setting(
        0.2, "trimmed_mean: share left out at either end, rounded down to whole models"
    )
    byzantine: Annotated[int, Field(ge=0, le=1_000_000)] = setting(
        1, "krum: f, bad models to withstand; a round needs 2 f + 3"
    )
    krum_keep: Count = setting(1, "krum: best models to average, at most n - f - 2")
    clip_norm: Positive | NoneOr = setting("none", "norm_clip: clip each model's change to this norm")

    def rule(self) -> Rule:
        """Return the rule that these keys describe."""
        clip_norm = math.inf if self.clip_norm == "none" else self.clip_norm
        return Rule(self.aggregate, self.trim, self.byzantine, self.krum_keep, clip_norm)


class EdgeSection(Aggregation):
    """What an edge does with a lease."""

    # The promises of a lease form a chain, which executors and checkpoints walk down: 200 is deep enough.
    edge_rounds: Annotated[
        tuple[Annotated[int, Field(ge=1, le=200)], ...],
        BeforeValidator(as_tuple),
        Field(min_length=1, max_length=1000),
    ] = setting((1, 2, 3), "H, each edge draws its number of edge rounds from these")
    redraw: Literal["setup", "grant"] = setting("setup", "when H is drawn")
    clients_per_round: Count | Literal["all"] = setting("all", "clients drawn for each edge round")
    deadline_s: Seconds | NoneOr = setting("none", "virtual seconds after which a round closes")
    quorum: Share = setting(0.5, "share of a round's clients that must deliver a usable model")


class _CloudKeys(Aggregation):
    """The keys of the cloud without the keys that thresholds declare."""

    schedule: Literal["async", "sync", "centralized"] = setting(
        "async", "mix each model on arrival, or average whole rounds"
    )
    participants: Count = setting(10, "sync: edges (or flat clients) drawn for a round")
    selection: Literal["uniform", "tiers"] = setting(
        "uniform", "sync: draw from all, or from one latency tier (TiFL)"
    )
    tiers: Count = setting(5, "selection tiers: how many latency tiers")
    tier_interval: Count = setting(20, "selection tiers: rounds between two evaluations of the tiers")
    deadline_s: Seconds | NoneOr = setting("none", "sync: virtual seconds until a round closes")
    quorum: Share = setting(0.5, "sync: share of a round that must deliver a usable model")
    concurrency: Count | NoneOr = setting("none", "async: most edges (or flat clients) at the same time")
    mixing: Annotated[str, OneOf(MIXINGS)] = setting(
        "interpolate",
        "async: move towards the edge model, add its change, add changes in groups (FedBuff), or weight "
        "tiers by their counts in reverse (FedAT)",
    )
    alpha: Share = setting(0.7, "async: weight of a fresh edge model")
    weighting: Literal["exponential", "constant", "polynomial", "hinge"] = setting(
        "exponential", "async: how the weight falls with staleness d"
    )
    penalty: Share = setting(0.99, "weighting exponential: upsilon, the factor upsilon^d")
    exponent: Annotated[float, Field(ge=0, le=100)] = setting(
        0.5, "weighting polynomial: the factor (d + 1)^-exponent"
    )
    hinge: Annotated[tuple[Factor, Factor], BeforeValidator(as_tuple)] = setting(
        (10.0, 4.0), "weighting hinge: [a, b] in the factor 1 up to d = b, then 1 / (a (d - b) + 1)"
    )
    momentum: ShareOpen = setting(0.0, "mixing delta: momentum of the changes")
    buffer: Count = setting(10, "mixing buffer: K, updates in one group")
    threshold: Annotated[int, Field(ge=0, le=1_000_000)] | Annotated[str, OneOf(THRESHOLDS)] = setting(
        "random", "async: how stale an upload may be, or the policy that decides it"
    )


if TYPE_CHECKING:

    class _ThresholdKeys(_CloudKeys):
        def __getattr__(self, name: str) -> Any:
            """Return the value of a key that a threshold declares."""

else:
    _ThresholdKeys = create_model(
        "_ThresholdKeys",
        __base__=_CloudKeys,
        **{name: field_of(key) for name, key in declared_keys(THRESHOLDS.values()).items()},
    )


class CloudSection(_ThresholdKeys):
    """How the cloud schedules edges and takes in their models."""

    enforce: Literal["admit", "discard", "cancel"] = setting(
        "admit", "async: how a threshold is enforced (docs/glossary.md)"
    )
    norm_bound: Positive | NoneOr = setting("none", "refuse updates whose change has a larger norm")


class AttackSection(Section):
    """What malicious clients do."""

    kind: Literal["none", "sign_flip", "noise", "label_flip", "scale", "nan"] = setting(
        "none", "what malicious clients send or learn instead"
    )
    share: Share = setting(0.2, "share of clients that are malicious, drawn once")
    scale: Positive = setting(10.0, "factor on the change (sign_flip, scale), deviation of the noise")
