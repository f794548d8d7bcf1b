"""The configuration: a frozen tree with the paper's defaults, from TOML, the command line or Python.

A method is a recipe of settings (`core.methods`) and a dataset brings a few of its own; what the user
gives wins over both. Every error names the key, what it got, where that came from and what is allowed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from hiflash.core.methods import METHODS
from hiflash.errors import ConfigError
from hiflash.settings import explain, flatten, nest, read_toml

__all__ = ["Config", "describe_keys", "inapplicable"]

DATASETS = ("mnist5k", "mnist", "cifar10", "femnist")

DATASET_SETTINGS: dict[str, dict[str, Any]] = {
    "cifar10": {"client.batch": 50, "client.lr": 0.1, "cloud.threshold_max": 4, "data.augment": True},
    "femnist": {"data.partition": "writer"},
}

ASYNC_ONLY = (
    "cloud.mixing",
    "cloud.alpha",
    "cloud.penalty",
    "cloud.momentum",
    "cloud.threshold",
    "cloud.threshold_max",
    "cloud.enforce",
)
SYNC_ONLY = ("cloud.participants", "cloud.deadline_s", "cloud.quorum")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


NoneOr = Literal["none"]
Range = Annotated[tuple[float, float], BeforeValidator(_tuple)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
Share = Annotated[float, Field(ge=0, le=1)]


def _key(default: Any, allowed: str, about: str) -> Any:
    return Field(default, description=about, json_schema_extra={"allowed": allowed})


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Federation(_Section):
    """Who takes part."""

    clients: Count = _key(100, "a whole number >= 1", "N, clients that hold data")
    edges: Count = _key(10, "a whole number >= 1", "M, edges that each own a cluster of clients")
    association: Literal["random", "heterogeneity", "latency", "data", "edge-iid", "edge-noniid"] = _key(
        "random",
        '"random", "heterogeneity", "latency", "data", "edge-iid" or "edge-noniid"',
        "which client belongs to which edge (docs/association.md)",
    )
    heterogeneity_weight: Annotated[float, Field(ge=0, le=1e9)] = _key(
        300.0, ">= 0", "lambda, milliseconds of latency that a divergence of 1 is worth"
    )
    target_distribution: Literal["global", "uniform"] = _key(
        "global", '"global" or "uniform"', "LD_IID, the labels that a cluster should have"
    )
    capacity: Count | NoneOr = _key("none", 'a whole number >= 1 or "none"', "most clients of an edge")
    reach: Count | Literal["all"] = _key(
        "all",
        'a whole number >= 1 or "all"',
        "edges that reach a client: those with its best bandwidth",
    )
    classes_per_edge: Count = _key(5, "a whole number >= 1", "edge-noniid: classes that an edge holds")
    flat: bool = _key(False, "true or false", "no edge tier: every client talks to the cloud itself")


class Client(_Section):
    """What a client does with a model."""

    local_steps: Count = _key(3, "a whole number >= 1", "c, mini-batch SGD steps in a task")
    local_epochs: Count | NoneOr = _key(
        "none", 'a whole number >= 1 or "none"', "passes over the client's data instead of local_steps"
    )
    batch: Count = _key(60, "a whole number >= 1", "samples in a step")
    lr: Positive = _key(0.01, "> 0", "learning rate")
    lr_decay: Annotated[float, Field(gt=0, le=1)] = _key(0.99, "in (0, 1]", "factor on the learning rate")
    lr_decay_steps: Count = _key(100, "a whole number >= 1", "a client's steps between two decays")
    mu: Annotated[float, Field(ge=0, le=1e6)] = _key(0.0, ">= 0", "proximal term (FedProx)")
    momentum: Annotated[float, Field(ge=0, lt=1)] = _key(0.0, "in [0, 1)", "of SGD, new in every task")
    weight_decay: Annotated[float, Field(ge=0, le=1e6)] = _key(0.0, ">= 0", "of SGD")


class EdgeSection(_Section):
    """What an edge does with a lease."""

    edge_rounds: Annotated[
        tuple[Count, ...], BeforeValidator(_tuple), Field(min_length=1, max_length=1000)
    ] = _key(
        (1, 2, 3), "a list of whole numbers >= 1", "H, each edge draws its number of edge rounds from these"
    )
    redraw: Literal["setup", "grant"] = _key("setup", '"setup" or "grant"', "when H is drawn")
    clients_per_round: Count | Literal["all"] = _key(
        "all", 'a whole number >= 1 or "all"', "clients drawn for each edge round"
    )
    deadline_s: Positive | NoneOr = _key(
        "none", '> 0 or "none"', "virtual seconds after which a round closes"
    )
    quorum: Annotated[float, Field(gt=0, le=1)] = _key(
        0.5, "in (0, 1]", "share of a round's clients that must have delivered something usable"
    )


class CloudSection(_Section):
    """How the cloud schedules edges and takes in their models."""

    schedule: Literal["async", "sync", "centralized"] = _key(
        "async", '"async", "sync" or "centralized"', "mix what arrives at once, or average whole rounds"
    )
    participants: Count = _key(10, "a whole number >= 1", "sync: edges (or flat clients) drawn for a round")
    deadline_s: Positive | NoneOr = _key(
        "none", '> 0 or "none"', "sync: virtual seconds until a round closes"
    )
    quorum: Annotated[float, Field(gt=0, le=1)] = _key(
        0.5, "in (0, 1]", "sync: share of a round that must have delivered something usable"
    )
    mixing: Literal["interpolate", "delta"] = _key(
        "interpolate", '"interpolate" or "delta"', "async: move towards the edge model, or add its change"
    )
    alpha: Annotated[float, Field(gt=0, le=1)] = _key(0.7, "in (0, 1]", "async: weight of a fresh edge model")
    penalty: Annotated[float, Field(gt=0, le=1)] = _key(
        0.99, "in (0, 1]", "async: upsilon, factor on the weight per version of staleness"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = _key(0.0, "in [0, 1)", "async, delta mixing only")
    threshold: Annotated[int, Field(ge=0, le=1_000_000)] | Literal["inf", "random"] = _key(
        "random", 'a whole number >= 0, "inf" or "random"', "async: how stale an upload may be"
    )
    threshold_max: Annotated[int, Field(ge=0, le=1_000_000)] = _key(
        16, "a whole number >= 0", "async: tau_max, random thresholds are uniform on 0..threshold_max"
    )
    enforce: Literal["admit", "discard", "cancel"] = _key(
        "admit", '"admit", "discard" or "cancel"', "async: what a threshold does"
    )
    norm_bound: Positive | NoneOr = _key("none", '> 0 or "none"', "refuse updates that moved further")


class ResourcesSection(_Section):
    """How fast clients compute and send; means are drawn once per federation."""

    f_ghz: Range = _key((1.0, 2.0), "[low, high], 0 < low <= high", "CPU frequency of a client")
    cycles_per_bit: Positive = _key(20.0, "> 0", "zeta, CPU cycles to process one bit")
    bandwidth_mhz: Range = _key(
        (1.0, 10.0), "[low, high], 0 < low <= high", "bandwidth of a client at an edge"
    )
    snr_db: Annotated[float, Field(ge=-50, le=100)] = _key(17.0, "in [-50, 100]", "signal-to-noise ratio")
    slot_s: Positive = _key(0.05, "> 0", "length of a scheduling slot in virtual seconds")
    fluctuation: Literal["off", "on"] = _key("off", '"off" or "on"', "resources move every virtual second")
    fluctuation_rho: Annotated[float, Field(ge=0, lt=1)] = _key(
        0.95, "in [0, 1)", "persistence from second to second"
    )
    fluctuation_spread: Annotated[float, Field(ge=0, le=3)] = _key(
        0.3, "in [0, 3]", "standard deviation of the log"
    )


class WanSection(_Section):
    """The way between edge and cloud. `wan = "off"` takes no time, as in the paper."""

    link: Literal["on", "off"] = _key("on", '"on" or "off"', "whether the way to the cloud takes time")
    rtt_ms: Range = _key((50.0, 250.0), "[low, high], 0 < low <= high", "round-trip time of an edge")
    bandwidth_mbps: Range = _key((10.0, 100.0), "[low, high], 0 < low <= high", "bandwidth of an edge")
    jitter: Annotated[float, Field(ge=0, le=3)] = _key(
        0.25, "in [0, 3]", "log-normal spread of transfer times"
    )


class EvaluateSection(_Section):
    """When the global model is tested."""

    every: Count = _key(10, "a whole number >= 1", "communications between two evaluations")


class StopSection(_Section):
    """When a run ends: whichever comes first."""

    target: Annotated[float, Field(gt=0, le=1)] | NoneOr = _key(0.9, 'in (0, 1] or "none"', "test accuracy")
    communications: Count | NoneOr = _key(
        6000, 'a whole number >= 1 or "none"', "models that reached the cloud"
    )
    client_steps: Annotated[int, Field(ge=1, le=10**12)] | NoneOr = _key(
        200_000, 'a whole number >= 1 or "none"', "SGD steps on all clients"
    )
    virtual_s: Positive | NoneOr = _key("none", '> 0 or "none"', "virtual seconds")
    steps: Count = _key(3000, "a whole number >= 1", "centralized only: SGD steps")


class DataSection(_Section):
    """What is learned, and who holds which part of it."""

    name: Literal["mnist5k", "mnist", "cifar10", "femnist", "none", "own"] = _key(
        "mnist5k",
        '"mnist5k", "mnist", "cifar10", "femnist" or "none"',
        'dataset; none goes with trainer = "none"',
    )
    partition: Annotated[str, Field(pattern=r"^[a-z]+[0-9.]*$", max_length=40)] = _key(
        "noniid2",
        '"iid", "noniid2", "dirichlet0.5", "quantity", "writer", ...',
        "how samples are dealt to clients",
    )
    dir: Annotated[str, Field(max_length=4096)] = _key("", "a folder", "where datasets lie (or HIFLASH_DATA)")
    augment: bool = _key(False, "true or false", "random crops and flips while training")


class ModelSection(_Section):
    """What is trained."""

    name: Literal["auto", "lenet", "femnist_cnn", "resnet", "resnet18", "own"] = _key(
        "auto", '"auto", "lenet", "femnist_cnn", "resnet" or "resnet18"', "model; auto takes the dataset's"
    )


class CostSection(_Section):
    """Weights of the total cost beside time."""

    compute_weight: Annotated[float, Field(ge=0, le=1e6)] = _key(1.0, ">= 0", "sigma1, weight of computing")
    send_weight: Annotated[float, Field(ge=0, le=1e6)] = _key(1.0, ">= 0", "sigma2, weight of sending")


class RaySection(_Section):
    """Which Ray the engine `ray` runs on."""

    address: Annotated[
        str, Field(pattern=r"^(local|auto|[A-Za-z0-9._-]{1,253}:[0-9]{1,5})$", max_length=260)
    ] = _key("local", '"local", "auto" or "host:port"', "engine ray: start one here, or join one that runs")


class Config(_Section):
    """Everything that decides a run. Give sections as dicts or keys with dots.

    >>> Config(method="fedavg", **{"client.lr": 0.05}).client.lr
    0.05
    """

    method: Literal[tuple(METHODS)] = _key("hifl", " | ".join(METHODS), "which recipe runs")  # type: ignore[valid-type]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = _key(0, "a whole number >= 0", "names every random stream")
    workers: Annotated[int, Field(ge=0, le=1024)] = _key(
        0, "a whole number >= 0", "threads; 0 is one per core"
    )
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = _key(
        "auto", '"auto", "cpu" or "cuda"', "where training runs"
    )
    trainer: Literal["auto", "native", "torch", "stacked", "none"] = _key(
        "auto",
        '"auto", "native", "torch", "stacked" or "none"',
        "what runs client tasks; auto is native or else torch, stacked is for GPUs, none trains nothing",
    )
    engine: Literal["local", "ray"] = _key(
        "local", '"local" or "ray"', "what runs the workers: this process, or a Ray cluster"
    )
    checkpoint_s: Positive = _key(20.0, "> 0", "wall seconds between two checkpoints")
    federation: Federation = Federation()
    client: Client = Client()
    edge: EdgeSection = EdgeSection()
    cloud: CloudSection = CloudSection()
    resources: ResourcesSection = ResourcesSection()
    wan: WanSection = WanSection()
    evaluate: EvaluateSection = EvaluateSection()
    stop: StopSection = StopSection()
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    cost: CostSection = CostSection()
    ray: RaySection = RaySection()

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, _sources: Mapping[str, str] | None = None, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ConfigError(_explain(error, _sources or {})) from None
        self._given = flatten(settings)

    @classmethod
    def load(cls, path: Path | str | None = None, overrides: Mapping[str, Any] | None = None) -> Self:
        """Return the configuration of a TOML file with dotted overrides on top."""
        return cls._layered(flatten(read_toml(Path(path))) if path else {}, overrides or {}, str(path))

    def with_settings(self, overrides: Mapping[str, Any]) -> Self:
        """Return this configuration with other settings on top; another method brings its own recipe."""
        return self._layered(self._given, overrides, "the configuration")

    @classmethod
    def _layered(cls, below: Mapping[str, Any], above: Mapping[str, Any], where: str) -> Self:
        below, above = dict(below), flatten(above)
        switched = any(
            above.get(name, below.get(name)) != below.get(name) for name in ("method", "data.name")
        )
        if switched and below:
            # What the old method or dataset would have given anyway was no choice, and must not stick.
            named = {name: below[name] for name in ("method", "data.name") if name in below}
            usual = cls(**named).settings()
            below = {k: v for k, v in below.items() if k in named or usual.get(k) != v}
        sources = {key: where for key in below if key not in above}
        return cls(_sources=sources if below else {}, **nest({**below, **above}))

    @model_validator(mode="before")
    @classmethod
    def _apply_recipe(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        given = flatten(raw)
        method = given.get("method", "hifl")
        recipe = METHODS[method].settings if isinstance(method, str) and method in METHODS else {}
        dataset = given.get("data.name", "mnist5k")
        defaults = DATASET_SETTINGS.get(dataset, {}) if isinstance(dataset, str) else {}
        settings = {**defaults, **recipe, **given}
        schedule = settings.get("cloud.schedule", "async")
        problems = [
            f"{key} is for asynchronous methods, and {method} is {_SAID.get(str(schedule))}; leave it out"
            for key in ASYNC_ONLY
            if key in given and schedule != "async"
        ] + [
            f"{key} is for synchronous methods, and {method} is {_SAID.get(str(schedule))}; leave it out"
            for key in SYNC_ONLY
            if key in given and schedule != "sync"
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return nest(settings)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = []
        federation, cloud = self.federation, self.cloud
        if federation.edges > federation.clients:
            problems.append(
                f"federation.edges ({federation.edges}) must not exceed federation.clients "
                f"({federation.clients}): an edge needs a client"
            )
        by_labels = ("heterogeneity", "data", "edge-iid", "edge-noniid")
        if self.data.name == "none" and federation.association in by_labels:
            problems.append(
                f"federation.association = {federation.association} needs labels, and data.name is none; "
                "use random or latency"
            )
        if federation.capacity != "none" and federation.capacity * federation.edges < federation.clients:
            problems.append(
                f"federation.capacity ({federation.capacity}) x federation.edges ({federation.edges}) leaves "
                f"no room for federation.clients ({federation.clients}); "
                f"it must be at least {-(-federation.clients // federation.edges)}"
            )
        if federation.reach != "all" and federation.association not in ("heterogeneity", "data"):
            problems.append(
                f"federation.reach is for the associations heterogeneity and data, and "
                f"{federation.association} puts clients anywhere; leave it out"
            )
        units = federation.clients if federation.flat else federation.edges
        if cloud.schedule == "sync" and cloud.participants > units:
            kind = "federation.clients" if federation.flat else "federation.edges"
            problems.append(f"cloud.participants ({cloud.participants}) must not exceed {kind} ({units})")
        if federation.flat and self.edge.edge_rounds != (1,):
            problems.append(
                "edge.edge_rounds must be [1] without edges (federation.flat), "
                f"got {list(self.edge.edge_rounds)}"
            )
        if cloud.schedule == "async" and cloud.momentum and cloud.mixing != "delta":
            problems.append('cloud.momentum needs cloud.mixing = "delta"')
        if self.data.name == "none" and self.trainer != "none":
            problems.append('data.name = "none" needs trainer = "none": nothing can be trained on no data')
        for key, pair in (
            ("resources.f_ghz", self.resources.f_ghz),
            ("resources.bandwidth_mhz", self.resources.bandwidth_mhz),
            ("wan.rtt_ms", self.wan.rtt_ms),
            ("wan.bandwidth_mbps", self.wan.bandwidth_mbps),
        ):
            if not 0 < pair[0] <= pair[1] <= 1e9:
                problems.append(f"{key} must be [low, high] with 0 < low <= high, got {list(pair)}")
        if not any(
            limit != "none"
            for limit in (self.stop.communications, self.stop.client_steps, self.stop.virtual_s)
        ):
            problems.append(
                "one of stop.communications, stop.client_steps and stop.virtual_s must be a number"
            )
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def settings(self) -> dict[str, Any]:
        """Return every key that applies to this method, with dots, in the order of the documentation."""
        skipped = {
            "async": SYNC_ONLY,
            "sync": ASYNC_ONLY,
            "centralized": ASYNC_ONLY + SYNC_ONLY,
        }[self.cloud.schedule]
        flat = flatten(self.model_dump(mode="json"))
        return {key: value for key, value in flat.items() if key not in skipped}

    def to_toml(self) -> str:
        """Return the configuration as a TOML file that gives the same run."""
        lines, section = [], ""
        for key, value in self.settings().items():
            *head, name = key.split(".")
            if head and head[0] != section:
                section = head[0]
                lines += ["", f"[{section}]"]
            lines.append(f"{name} = {json.dumps(value)}")
        return "\n".join(lines) + "\n"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> str:
        """Return a short hash of what decides the results: not of workers, engine, device or checkpoints."""
        decisive = {
            key: value
            for key, value in self.settings().items()
            if key not in ("workers", "device", "engine", "ray.address", "checkpoint_s", "data.dir")
        }
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]


_SAID = {"async": "asynchronous", "sync": "synchronous", "centralized": "centralized"}


def inapplicable(method: str, given: Mapping[str, Any]) -> set[str]:
    """Return the keys that mean nothing to a method."""
    settings = {**METHODS[method].settings, **given}
    schedule = settings.get("cloud.schedule", "async")
    keys = {"async": SYNC_ONLY, "sync": ASYNC_ONLY}.get(schedule, ASYNC_ONLY + SYNC_ONLY)
    no_edges = ("edge.edge_rounds", "edge.redraw", "edge.clients_per_round")
    return {*keys, *(no_edges if settings.get("federation.flat") else ())}


def describe_keys() -> Iterator[tuple[str, str, Any, str]]:
    """Yield key, what is allowed, default and meaning of every setting."""
    for name, info in Config.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, _Section):
            for sub, sub_info in kind.model_fields.items():
                yield f"{name}.{sub}", *_about(sub_info)
        else:
            yield name, *_about(info)


def _about(info: Any) -> tuple[str, Any, str]:
    default = list(info.default) if isinstance(info.default, tuple) else info.default
    return info.json_schema_extra["allowed"], default, info.description


def _explain(error: ValidationError, sources: Mapping[str, str]) -> list[str]:
    known = {key: (allowed, default) for key, allowed, default, _ in describe_keys()}
    return explain(error, known, sources)
