"""The sections of the configuration: every key with its default, what it allows and what it means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

if TYPE_CHECKING:
    from hiflash.core.aggregation import Rule

__all__ = [
    "AttackSection",
    "ClientSection",
    "CloudSection",
    "CostSection",
    "DataSection",
    "EdgeSection",
    "EvaluateSection",
    "FederationSection",
    "MobilitySection",
    "ModelSection",
    "Positive",
    "RaySection",
    "ResourcesSection",
    "Section",
    "StopSection",
    "WanSection",
    "one_of",
    "setting",
]


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def one_of(table: str) -> AfterValidator:
    """Return a check against a table of `hiflash.methods`, which grows when users register their own."""

    def check(name: str) -> str:
        # not earlier: they need numpy, and help should not wait for that
        from hiflash.methods import recipes, registry

        if name not in getattr(recipes if table == "METHODS" else registry, table):
            raise ValueError(name)
        return name

    return AfterValidator(check)


NoneOr = Literal["none"]
Range = Annotated[tuple[float, float], BeforeValidator(_tuple)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Share = Annotated[float, Field(ge=0, le=1)]
Coefficient = Annotated[float, Field(ge=0, le=1e6)]
Rate = Annotated[float, Field(ge=0, le=1e6)]


def setting(default: Any, allowed: str, about: str) -> Any:
    """Return a key of a section: its default, what it allows, and what it is."""
    return Field(default, description=about, json_schema_extra={"allowed": allowed})


class Section(BaseModel):
    """Keys that belong together; unknown ones and wrong types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class FederationSection(Section):
    """Who takes part."""

    clients: Count = setting(100, "a whole number >= 1", "N, clients that hold data")
    edges: Count = setting(10, "a whole number >= 1", "M, edges that each own a cluster of clients")
    association: Literal["random", "heterogeneity", "latency", "data", "edge-iid", "edge-noniid"] = setting(
        "random",
        '"random", "heterogeneity", "latency", "data", "edge-iid" or "edge-noniid"',
        "which client belongs to which edge (docs/association.md)",
    )
    heterogeneity_weight: Annotated[float, Field(ge=0, le=1e9)] = setting(
        300.0, ">= 0", "lambda, milliseconds of latency that a divergence of 1 is worth"
    )
    target_distribution: Literal["global", "uniform"] = setting(
        "global", '"global" or "uniform"', "LD_IID, the labels that a cluster should have"
    )
    capacity: Count | NoneOr = setting("none", 'a whole number >= 1 or "none"', "most clients of an edge")
    reach: Count | Literal["all"] = setting(
        "all",
        'a whole number >= 1 or "all"',
        "edges that reach a client: those with its best bandwidth",
    )
    classes_per_edge: Count = setting(5, "a whole number >= 1", "edge-noniid: classes that an edge holds")
    flat: bool = setting(False, "true or false", "no edge tier: every client talks to the cloud itself")


class ClientSection(Section):
    """What a client does with a model."""

    local_steps: Count = setting(3, "a whole number >= 1", "c, mini-batch SGD steps in a task")
    local_epochs: Count | NoneOr = setting(
        "none", 'a whole number >= 1 or "none"', "passes over the client's data instead of local_steps"
    )
    batch: Count = setting(60, "a whole number >= 1", "samples in a step")
    lr: Positive = setting(0.01, "> 0", "learning rate")
    lr_decay: Annotated[float, Field(gt=0, le=1)] = setting(0.99, "in (0, 1]", "factor on the learning rate")
    lr_decay_steps: Count = setting(100, "a whole number >= 1", "a client's steps between two decays")
    mu: Annotated[float, Field(ge=0, le=1e6)] = setting(0.0, ">= 0", "proximal term (FedProx)")
    momentum: Annotated[float, Field(ge=0, lt=1)] = setting(0.0, "in [0, 1)", "of SGD, new in every task")
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = setting(0.0, ">= 0", "of SGD")
    batch_norm: Literal["average", "local"] = setting(
        "average", '"average" or "local"', "local: every client keeps its own BatchNorm layers (FedBN)"
    )
    clip_norm: Positive | NoneOr = setting(
        "none", '> 0 or "none"', "the largest norm of a step's gradient; a longer one is shortened to it"
    )


class Aggregation(Section):
    """How many models become one. The same rules serve edges and the synchronous cloud."""

    aggregate: Literal["mean", "median", "trimmed_mean", "krum", "norm_clip"] = setting(
        "mean",
        '"mean", "median", "trimmed_mean", "krum" or "norm_clip"',
        "how the models of a round become one (a cloud's only if it is synchronous)",
    )
    trim: Annotated[float, Field(ge=0, lt=0.5)] = setting(
        0.2, "in [0, 0.5)", "trimmed_mean: share left out at either end, rounded down to whole models"
    )
    byzantine: Annotated[int, Field(ge=0, le=1_000_000)] = setting(
        1, "a whole number >= 0", "krum: f, bad models to withstand; a round needs 2 f + 3"
    )
    krum_keep: Count = setting(1, "a whole number >= 1", "krum: best models to average, at most n - f - 2")
    clip_norm: Positive | NoneOr = setting(
        "none", '> 0 or "none"', "norm_clip: how far a model may move; what moved further is drawn back"
    )

    def rule(self) -> Rule:
        """Return the rule that these keys describe."""
        from hiflash.core.aggregation import Rule  # with it comes numpy, and help should be quick

        clip_norm = math.inf if self.clip_norm == "none" else self.clip_norm
        return Rule(self.aggregate, self.trim, self.byzantine, self.krum_keep, clip_norm)

    def problems(self, where: str, most: int, what: str) -> list[str]:
        """Return what is wrong with the keys of a section in which at most so many models meet."""
        problems = []
        if self.aggregate == "norm_clip" and self.clip_norm == "none":
            problems.append(f'{where}.aggregate = "norm_clip" needs {where}.clip_norm, a number > 0')
        if most < self.rule().least:
            problems.append(
                f'{where}.aggregate = "krum" with {where}.byzantine = {self.byzantine} and '
                f"{where}.krum_keep = {self.krum_keep} needs {self.rule().least} models, and {what} is {most}"
            )
        return problems


class EdgeSection(Aggregation):
    """What an edge does with a lease."""

    edge_rounds: Annotated[
        tuple[Count, ...], BeforeValidator(_tuple), Field(min_length=1, max_length=1000)
    ] = setting(
        (1, 2, 3), "a list of whole numbers >= 1", "H, each edge draws its number of edge rounds from these"
    )
    redraw: Literal["setup", "grant"] = setting("setup", '"setup" or "grant"', "when H is drawn")
    clients_per_round: Count | Literal["all"] = setting(
        "all", 'a whole number >= 1 or "all"', "clients drawn for each edge round"
    )
    deadline_s: Positive | NoneOr = setting(
        "none", '> 0 or "none"', "virtual seconds after which a round closes"
    )
    quorum: Annotated[float, Field(gt=0, le=1)] = setting(
        0.5, "in (0, 1]", "share of a round's clients that must have delivered something usable"
    )


class CloudSection(Aggregation):
    """How the cloud schedules edges and takes in their models."""

    schedule: Literal["async", "sync", "centralized"] = setting(
        "async", '"async", "sync" or "centralized"', "mix what arrives at once, or average whole rounds"
    )
    participants: Count = setting(
        10, "a whole number >= 1", "sync: edges (or flat clients) drawn for a round"
    )
    selection: Literal["uniform", "tiers"] = setting(
        "uniform", '"uniform" or "tiers"', "sync: draw from all alike, or from one latency tier (TiFL)"
    )
    tiers: Count = setting(5, "a whole number >= 1", "selection tiers: how many latency tiers")
    tier_interval: Count = setting(
        20, "a whole number >= 1", "selection tiers: rounds between two looks at the tiers' accuracies"
    )
    deadline_s: Positive | NoneOr = setting(
        "none", '> 0 or "none"', "sync: virtual seconds until a round closes"
    )
    quorum: Annotated[float, Field(gt=0, le=1)] = setting(
        0.5, "in (0, 1]", "sync: share of a round that must have delivered something usable"
    )
    concurrency: Count | NoneOr = setting(
        "none",
        'a whole number >= 1 or "none"',
        "async: most edges (or flat clients) that run at the same time",
    )
    mixing: Annotated[str, one_of("MIXINGS")] = setting(
        "interpolate",
        '"interpolate", "delta", "buffer" or "tiers"',
        "async: move towards the edge model, add its change, add changes in groups (FedBuff), or weight "
        "tiers by their counts in reverse (FedAT)",
    )
    alpha: Annotated[float, Field(gt=0, le=1)] = setting(
        0.7, "in (0, 1]", "async: weight of a fresh edge model"
    )
    weighting: Literal["exponential", "constant", "polynomial", "hinge"] = setting(
        "exponential",
        '"exponential", "constant", "polynomial" or "hinge"',
        "async: how the weight falls with staleness d",
    )
    penalty: Annotated[float, Field(gt=0, le=1)] = setting(
        0.99, "in (0, 1]", "weighting exponential: upsilon, the factor upsilon^d"
    )
    exponent: Annotated[float, Field(ge=0, le=100)] = setting(
        0.5, "in [0, 100]", "weighting polynomial: the factor (d + 1)^-exponent"
    )
    hinge: Annotated[tuple[Coefficient, Coefficient], BeforeValidator(_tuple)] = setting(
        (10.0, 4.0),
        "[a, b], both >= 0",
        "weighting hinge: the factor 1 up to d = b, then 1 / (a (d - b) + 1)",
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = setting(0.0, "in [0, 1)", "mixing delta: of the changes")
    buffer: Count = setting(10, "a whole number >= 1", "mixing buffer: K, updates that are added up")
    threshold: Annotated[int, Field(ge=0, le=1_000_000)] | Annotated[str, one_of("THRESHOLDS")] = setting(
        "random",
        'a whole number >= 0, "inf", "random", "uneven", "parallel", "latency", "skip_slowest" or "agent"',
        "async: how stale an upload may be, or the policy that decides it",
    )
    parallelism: Count = setting(
        3, "a whole number >= 1", "threshold parallel: how many edges should run at the same time"
    )
    base_threshold: Annotated[int, Field(ge=0, le=1_000_000)] = setting(
        2,
        "a whole number >= 0",
        "thresholds latency (for a median edge) and skip_slowest (for those not skipped)",
    )
    skipped: Annotated[int, Field(ge=0, le=1_000_000)] = setting(
        2, "a whole number >= 0", "threshold skip_slowest: how many edges are always refused"
    )
    threshold_max: Annotated[int, Field(ge=0, le=1_000_000)] = setting(
        16,
        "a whole number >= 0",
        "async: tau_max, random and uneven thresholds are uniform on 0..threshold_max",
    )
    agent: Annotated[str, Field(min_length=1, max_length=4096)] = setting(
        "auto",
        '"auto", the name of an agent that ships, or the path of a file',
        "threshold agent: who decides; auto is the one for the data and the association",
    )
    temperature: Annotated[float, Field(ge=0, le=1e6)] = setting(
        0.0, ">= 0", "threshold agent: 0 takes the best action, above that the softmax of the Q-values"
    )
    enforce: Literal["admit", "discard", "cancel"] = setting(
        "admit", '"admit", "discard" or "cancel"', "async: what a threshold does"
    )
    norm_bound: Positive | NoneOr = setting("none", '> 0 or "none"', "refuse updates that moved further")


class AttackSection(Section):
    """What malicious clients do."""

    kind: Literal["none", "sign_flip", "noise", "label_flip", "scale", "nan"] = setting(
        "none",
        '"none", "sign_flip", "noise", "label_flip", "scale" or "nan"',
        "what malicious clients send or learn instead",
    )
    share: Annotated[float, Field(gt=0, le=1)] = setting(0.2, "in (0, 1]", "share of all clients, drawn once")
    scale: Positive = setting(10.0, "> 0", "factor on the change (sign_flip, scale), deviation of the noise")


class ResourcesSection(Section):
    """How fast clients compute and send; means are drawn once per federation."""

    f_ghz: Range = setting((1.0, 2.0), "[low, high], 0 < low <= high", "CPU frequency of a client")
    cycles_per_bit: Positive = setting(20.0, "> 0", "zeta, CPU cycles to process one bit")
    bandwidth_mhz: Range = setting(
        (1.0, 10.0), "[low, high], 0 < low <= high", "bandwidth of a client at an edge"
    )
    snr_db: Annotated[float, Field(ge=-50, le=100)] = setting(17.0, "in [-50, 100]", "signal-to-noise ratio")
    slot_s: Positive = setting(0.05, "> 0", "length of a scheduling slot in virtual seconds")
    slow_edge: Annotated[float, Field(ge=1, le=1e6)] = setting(
        1.0, ">= 1", "how many times as long everything takes at edge 0: a straggler to study"
    )
    fluctuation: Literal["off", "on"] = setting("off", '"off" or "on"', "resources move every virtual second")
    fluctuation_rho: Annotated[float, Field(ge=0, lt=1)] = setting(
        0.95, "in [0, 1)", "persistence from second to second"
    )
    fluctuation_spread: Annotated[float, Field(ge=0, le=3)] = setting(
        0.3, "in [0, 3]", "standard deviation of the log"
    )


class WanSection(Section):
    """The way between edge and cloud. `wan = "off"` takes no time, as in the paper."""

    link: Literal["on", "off"] = setting("on", '"on" or "off"', "whether the way to the cloud takes time")
    rtt_ms: Range = setting((50.0, 250.0), "[low, high], 0 < low <= high", "round-trip time of an edge")
    bandwidth_mbps: Range = setting((10.0, 100.0), "[low, high], 0 < low <= high", "bandwidth of an edge")
    jitter: Annotated[float, Field(ge=0, le=3)] = setting(
        0.25, "in [0, 3]", "log-normal spread of transfer times"
    )
    upload: Literal["none", "fp16", "int8", "topk"] = setting(
        "none", '"none", "fp16", "int8" or "topk"', "compression of what the cloud is sent"
    )
    download: Literal["none", "fp16", "int8", "topk"] = setting(
        "none", '"none", "fp16", "int8" or "topk"', "compression of what the cloud sends"
    )
    topk: Annotated[float, Field(gt=0, le=0.5)] = setting(
        0.01, "in (0, 0.5]", "topk: share of the values that is sent, each with its index"
    )


class MobilitySection(Section):
    """Clients that move, join and leave while a run goes on, and the repair of their association."""

    moves_per_s: Rate = setting(
        0.0, ">= 0", "moves per virtual second; a client that moves has new bandwidths"
    )
    joins_per_s: Rate = setting(
        0.0, ">= 0", "absent clients that join per virtual second, while there are any"
    )
    leaves_per_s: Rate = setting(0.0, ">= 0", "clients that leave per virtual second; the last one stays")
    absent: Annotated[float, Field(ge=0, lt=1)] = setting(
        0.0, "in [0, 1)", "share of clients that are absent at the start"
    )
    repair_s: Positive | NoneOr = setting(
        "none", '> 0 or "none"', "virtual seconds between two repairs of the association"
    )
    switching_cost: Annotated[float, Field(ge=0, le=1e12)] = setting(
        10.0, ">= 0", "ms of association cost that changing edges must save"
    )

    @property
    def active(self) -> bool:
        """Return whether anything happens at all."""
        rates = (self.moves_per_s, self.joins_per_s, self.leaves_per_s, self.absent)
        return any(rates) or self.repair_s != "none"


class EvaluateSection(Section):
    """When the global model is tested."""

    every: Count = setting(10, "a whole number >= 1", "communications between two evaluations")


class StopSection(Section):
    """When a run ends: whichever comes first."""

    target: Annotated[float, Field(gt=0, le=1)] | NoneOr = setting(
        0.9, 'in (0, 1] or "none"', "test accuracy"
    )
    communications: Count | NoneOr = setting(
        6000, 'a whole number >= 1 or "none"', "models that reached the cloud"
    )
    client_steps: Annotated[int, Field(ge=1, le=10**12)] | NoneOr = setting(
        200_000, 'a whole number >= 1 or "none"', "SGD steps on all clients"
    )
    virtual_s: Positive | NoneOr = setting("none", '> 0 or "none"', "virtual seconds")
    steps: Count = setting(3000, "a whole number >= 1", "centralized only: SGD steps")


class DataSection(Section):
    """What is learned, and who holds which part of it."""

    name: Literal["mnist5k", "mnist", "cifar10", "femnist", "none", "own"] = setting(
        "mnist5k",
        '"mnist5k", "mnist", "cifar10", "femnist" or "none"',
        'dataset; none goes with trainer = "none"',
    )
    partition: Annotated[str, Field(pattern=r"^[a-z]+[0-9.]*$", max_length=40)] = setting(
        "noniid2",
        '"iid", "noniid2", "dirichlet0.5", "quantity", "writer", ...',
        "how samples are dealt to clients",
    )
    dir: Annotated[str, Field(max_length=4096)] = setting(
        "", "a folder", "where datasets lie (or HIFLASH_DATA)"
    )
    augment: bool = setting(False, "true or false", "random crops and flips while training")


class ModelSection(Section):
    """What is trained."""

    name: Literal["auto", "lenet", "femnist_cnn", "resnet", "resnet18", "own"] = setting(
        "auto", '"auto", "lenet", "femnist_cnn", "resnet" or "resnet18"', "model; auto takes the dataset's"
    )


class CostSection(Section):
    """Weights of the total cost beside time."""

    compute_weight: Annotated[float, Field(ge=0, le=1e6)] = setting(
        1.0, ">= 0", "sigma1, weight of computing"
    )
    send_weight: Annotated[float, Field(ge=0, le=1e6)] = setting(1.0, ">= 0", "sigma2, weight of sending")


class RaySection(Section):
    """Which Ray the executor `ray` uses."""

    address: Annotated[
        str, Field(pattern=r"^(local|auto|[A-Za-z0-9._-]{1,253}:[0-9]{1,5})$", max_length=260)
    ] = setting(
        "local", '"local", "auto" or "host:port"', "executor ray: start one here, or join one that runs"
    )
