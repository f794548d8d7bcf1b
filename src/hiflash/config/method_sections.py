"""The sections that say how a method works: who takes part, and what clients, edges and cloud do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from hiflash.config.keys import (
    Bound,
    Count,
    Factor,
    NoneOr,
    OneOf,
    PartSection,
    Positive,
    Seconds,
    Section,
    Share,
    ShareInside,
    ShareOpen,
    as_tuple,
    setting,
)
from hiflash.methods.kinds import KINDS

__all__ = ["AttackSection", "ClientSection", "CloudSection", "DpSection", "EdgeSection", "FederationSection"]


class FederationSection(PartSection):
    """Who takes part."""

    clients: Count = setting(100, "N, clients that hold data")
    edges: Count = setting(10, "M, edges that each own a cluster of clients")
    files: Annotated[str, Field(max_length=4096)] = setting(
        "", "folder with measured latencies, speeds, ... (docs/federation.md)", allowed="a folder"
    )
    association: Annotated[str, OneOf(KINDS["association"].parts)] = setting(
        "random", "which client belongs to which edge (docs/association.md)"
    )
    capacity: Count | NoneOr = setting("none", "most clients of an edge")
    flat: bool = setting(False, "no edge tier: every client talks to the cloud itself")


class ClientSection(PartSection):
    """What a client does with a model."""

    algorithm: Annotated[str, OneOf(KINDS["client algorithm"].parts)] = setting(
        "sgd", "what a client does with a model (docs/client_algorithms.md)"
    )
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
    optimizer: Annotated[str, Field(pattern=r"^[A-Za-z]{1,40}$"), AfterValidator(str.lower)] = setting(
        "sgd",
        "what takes a client's steps; all but sgd need torch, and start anew in every task",
        allowed='"sgd", or another optimiser of torch: "adam", "adamw", "rmsprop", ...',
    )


class Aggregation(PartSection):
    """How a round's models become one, at an edge or at a synchronous cloud."""

    aggregate: Annotated[str, OneOf(KINDS["aggregate"].parts)] = setting(
        "mean", "how the models of a round become one (a cloud's only if it is synchronous)"
    )


class EdgeSection(Aggregation):
    """What an edge does with a lease."""

    # The promises of a lease form a chain, which executors and checkpoints walk down: 200 is deep enough.
    edge_rounds: Annotated[
        tuple[Annotated[int, Field(ge=1, le=200)], ...],
        BeforeValidator(as_tuple),
        Field(min_length=1, max_length=1000),
    ] = setting((1, 2, 3), "H, each edge draws its number of edge rounds from these")
    redraw: Literal["setup", "grant"] = setting("setup", "when H is drawn")
    clients_per_round: Count | ShareInside | Literal["all"] = setting(
        "all", "clients drawn for each edge round: a number, a share of the cluster (rounded up), or all"
    )
    deadline_s: Seconds | NoneOr = setting("none", "virtual seconds after which a round closes")
    quorum: Share = setting(0.5, "share of a round's clients that must deliver a usable model")
    secure: Literal["off", "secagg"] = setting(
        "off", "secagg: an edge learns the sum of its clients' models only (docs/secure_sums.md)"
    )
    secure_bound: Bound = setting(8.0, "secagg: largest change of a value in a task; larger ones are clipped")


class CloudSection(Aggregation):
    """How the cloud schedules edges and takes in their models."""

    schedule: Literal["async", "sync", "centralized"] = setting(
        "async", "mix each model on arrival, or average whole rounds"
    )
    participants: Count = setting(10, "sync: edges (or flat clients) drawn for a round")
    selection: Annotated[str, OneOf(KINDS["selection"].parts)] = setting(
        "uniform", "sync: draw from all, or from one latency tier (TiFL)"
    )
    deadline_s: Seconds | NoneOr = setting("none", "sync: virtual seconds until a round closes")
    quorum: Share = setting(0.5, "sync: share of a round that must deliver a usable model")
    optimizer: Annotated[str, OneOf(KINDS["optimizer"].parts)] = setting(
        "none", "sync: what moves the model along a round's change (docs/client_algorithms.md)"
    )
    concurrency: Count | NoneOr = setting("none", "async: most edges (or flat clients) at the same time")
    mixing: Annotated[str, OneOf(KINDS["mixing"].parts)] = setting(
        "interpolate",
        "async: move towards the edge model, add its change, add changes in groups (FedBuff), or weight "
        "tiers by their counts in reverse (FedAT)",
    )
    weighting: Annotated[str, OneOf(KINDS["weighting"].parts)] = setting(
        "exponential", "async: how the weight falls with staleness d"
    )
    threshold: Annotated[int, Field(ge=0, le=1_000_000)] | Annotated[str, OneOf(KINDS["threshold"].parts)] = (
        setting("random", "async: how stale an upload may be, or the policy that decides it")
    )
    enforce: Literal["admit", "discard", "cancel"] = setting(
        "admit", "async: how a threshold is enforced (docs/glossary.md)"
    )
    norm_bound: Positive | NoneOr = setting("none", "refuse updates whose change has a larger norm")


class AttackSection(PartSection):
    """What malicious clients do."""

    kind: Annotated[str, OneOf(KINDS["attack"].parts)] = setting(
        "none", "what malicious clients send or learn instead"
    )


class DpSection(Section):
    """Differential privacy of the model (docs/dp.md)."""

    unit: Literal["off", "client", "sample"] = setting(
        "off", "what the model must not give away: that a client took part, or one of its samples"
    )
    clip: Bound = setting(
        1.0, "clip each client's change of the model, or each sample's gradient, to this norm"
    )
    noise: Annotated[float, Field(ge=1e-6, le=1000)] | Literal["auto"] = setting(
        "auto", "deviation of the noise in a sum, in clips; auto: the least for dp.epsilon and dp.rounds"
    )
    epsilon: Positive | NoneOr = setting(
        "none", "budget of every client, which a run never exceeds; none only keeps the ledger"
    )
    delta: ShareInside = setting(1e-5, "chance that the promise fails; well below 1 / clients")
    rounds: Count | Literal["auto"] = setting(
        "auto", "noise auto: edge rounds that a client pays for; auto follows from the limits in stop"
    )
    clients: Positive | Literal["auto"] = setting(
        "auto", "unit client: fixed divisor of a round's sum; auto is the expected number of its clients"
    )
    sampling: Literal["none", "poisson"] = setting(
        "none",
        "unit client: poisson lets each client join a round by itself, with the probability "
        "edge.clients_per_round (flat: cloud.participants / federation.clients)",
    )
    where: Literal["edge", "clients"] = setting(
        "edge", "unit client: who adds the noise, a trusted edge, or every client its share in a secure sum"
    )
