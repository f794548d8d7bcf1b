"""The sections for the surroundings of a run: resources, links, data, model, and its end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hiflash.config.keys import (
    Count,
    Event,
    Factor,
    NoneOr,
    OneOf,
    PartSection,
    Positive,
    Range,
    Seconds,
    Section,
    ShareInside,
    ShareOpen,
    setting,
)
from hiflash.data.partition import NAME
from hiflash.methods.kinds import KINDS

__all__ = [
    "CostSection",
    "DataSection",
    "EvaluateSection",
    "MobilitySection",
    "ModelSection",
    "PrivacySection",
    "RaySection",
    "ResourcesSection",
    "ServeSection",
    "StopSection",
    "WanSection",
]


class ResourcesSection(Section):
    """How fast clients compute and send; means are drawn once per federation."""

    f_ghz: Range = setting((1.0, 2.0), "CPU frequency of a client")
    cycles_per_bit: Positive = setting(20.0, "zeta, CPU cycles to process one bit")
    bandwidth_mhz: Range = setting((1.0, 10.0), "bandwidth of a client at an edge")
    snr_db: Annotated[float, Field(ge=-50, le=100)] = setting(17.0, "signal-to-noise ratio")
    slot_s: Event = setting(0.05, "length of a scheduling slot in virtual seconds")
    slow_edge: Annotated[float, Field(ge=1, le=1e6)] = setting(
        1.0, "factor on all times of edge 0: a straggler to study"
    )
    fluctuation: Literal["off", "on"] = setting("off", "resources change every virtual second")
    fluctuation_rho: ShareOpen = setting(0.95, "persistence from second to second")
    fluctuation_spread: Annotated[float, Field(ge=0, le=3)] = setting(0.3, "standard deviation of the log")


class WanSection(PartSection):
    """The link between edge and cloud. With `wan = "off"` it takes no time, as in the paper."""

    link: Literal["on", "off"] = setting("on", "whether transfers to and from the cloud take time")
    rtt_ms: Range = setting((50.0, 250.0), "round-trip time of an edge")
    bandwidth_mbps: Range = setting((10.0, 100.0), "bandwidth of an edge")
    jitter: Annotated[float, Field(ge=0, le=3)] = setting(0.25, "log-normal spread of transfer times")
    upload: Annotated[str, OneOf(KINDS["compression"].parts)] = setting(
        "none", "compression of models on the way to the cloud"
    )
    download: Annotated[str, OneOf(KINDS["compression"].parts)] = setting(
        "none", "compression of models on the way from the cloud"
    )


class MobilitySection(Section):
    """Clients that move, join and leave while a run goes on, and the repair of their association."""

    moves_per_s: Factor = setting(0.0, "moves per virtual second; a client that moves has new bandwidths")
    joins_per_s: Factor = setting(0.0, "absent clients that join per virtual second, while there are any")
    leaves_per_s: Factor = setting(0.0, "clients that leave per virtual second; the last one stays")
    absent: ShareOpen = setting(0.0, "share of clients that are absent at the start")
    repair_s: Event | NoneOr = setting("none", "virtual seconds between two repairs of the association")
    switching_cost: Annotated[float, Field(ge=0, le=1e12)] = setting(
        10.0, "ms of association cost that a change of edge must save"
    )

    @property
    def active(self) -> bool:
        """Return whether any client moves, joins, leaves or is absent, or repairs are due."""
        rates = (self.moves_per_s, self.joins_per_s, self.leaves_per_s, self.absent)
        return any(rates) or self.repair_s != "none"


class EvaluateSection(Section):
    """When and on which samples the global model is tested."""

    every: Count = setting(10, "communications between two evaluations")
    validation: Annotated[float, Field(ge=0, lt=0.5)] = setting(
        0.0,
        "share of the training samples that no client gets: runs stop, and sweeps rank, by the metric on it; "
        "0 is none, and the test set decides",
    )
    clients: Annotated[float, Field(ge=0, le=0.9)] = setting(
        0.0, "share of every client's own samples that is held out, to test the final model on it; 0 is none"
    )


class StopSection(Section):
    """When a run ends: whichever comes first."""

    metric: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)] = setting(
        "auto",
        "what the target is about, and the tables; auto is the task's first metric",
        allowed='"auto" or a metric of the task: "accuracy", "rmse", "mae", "r2", "perplexity", "loss", ...',
    )
    target: Annotated[float, Field(ge=-1e12, le=1e12)] | NoneOr = setting(
        0.9,
        "value of the metric that ends a run; without one given, only accuracy on classes has a target",
        allowed='in (0, 1] for accuracy, any number for other metrics, or "none"',
    )
    communications: Count | NoneOr = setting(6000, "models that reached the cloud")
    client_steps: Annotated[int, Field(ge=1, le=10**12)] | NoneOr = setting(
        200_000, "SGD steps on all clients"
    )
    virtual_s: Seconds | NoneOr = setting("none", "virtual seconds")
    steps: Count = setting(3000, "centralized only: SGD steps")


class DataSection(PartSection):
    """The dataset, and its partition over the clients."""

    name: Annotated[str, OneOf(KINDS["dataset"].parts)] | Literal["none", "own"] = setting(
        "mnist5k", 'dataset; none goes with trainer = "none"'
    )
    partition: Annotated[str, Field(pattern=f"^{NAME}$", max_length=80)] = setting(
        "noniid2",
        "how samples are dealt to clients",
        allowed='"iid", "noniid2", "noniid2-balanced", "dirichlet0.5", "quantity", "group", "writer", ...',
    )
    dir: Annotated[str, Field(max_length=4096)] = setting(
        "", "folder with the datasets (or HIFLASH_DATA)", allowed="a folder"
    )
    augment: bool = setting(False, "random crops and flips while training")
    task: Literal["auto"] | Annotated[str, OneOf(KINDS["task"].parts)] = setting(
        "auto", "what is learned: loss, metrics, form of the answers; auto is the dataset's"
    )
    normalise: Literal["auto", "feature", "global", "channel", "none"] = setting(
        "auto",
        "scale inputs to mean 0, deviation 1: auto is by feature in tables, by channel or global in images, "
        "none for tokens",
    )


class ModelSection(PartSection):
    """The model."""

    name: Literal["auto", "own"] | Annotated[str, OneOf(KINDS["model"].parts)] = setting(
        "auto", "model; auto takes the dataset's"
    )


class CostSection(Section):
    """What work costs: weights of computing and sending (time has weight 1), and how leases are charged."""

    compute_weight: Factor = setting(1.0, "sigma1, weight of computing")
    send_weight: Factor = setting(1.0, "sigma2, weight of sending")
    accounting: Literal["lease", "paper"] = setting(
        "lease",
        "charge a lease for its work, or for an edge round in every running slot as the paper does",
    )


class PrivacySection(Section):
    """What leaves a client about its labels (docs/histograms.md)."""

    epsilon: Annotated[float, Field(gt=0, le=1e6)] | Literal["auto", "off"] = setting(
        "auto", "privacy loss of a client's label histogram; auto is off in a simulation and 1 deployed"
    )
    noise: Literal["laplace", "gaussian"] = setting("laplace", "noise that a client adds to its histogram")
    delta: ShareInside = setting(1e-5, "noise gaussian: chance that epsilon does not hold")
    unit: Literal["sample", "client"] = setting(
        "sample", "what epsilon protects: any one sample of a client, or its whole histogram"
    )
    histograms: Literal["single", "group"] = setting(
        "single", "who is associated: clients by their own histograms, or groups by the sums of theirs"
    )
    group: Annotated[int, Field(ge=3, le=100)] = setting(
        3, "histograms group: fewest clients whose sum is opened"
    )


class RaySection(Section):
    """The Ray cluster of the executor `ray`."""

    address: Annotated[
        str, Field(pattern=r"^(local|auto|[A-Za-z0-9._-]{1,253}:[0-9]{1,5})$", max_length=260)
    ] = setting(
        "local",
        "executor ray: start a cluster here (local), or join a running one",
        allowed='"local", "auto" or "host:port"',
    )


class ServeSection(Section):
    """The deployed system (docs/deployment.md). A simulation reads none of these keys."""

    data: Literal["partition", "own"] = setting(
        "partition",
        "samples of a client: its part of the dataset here, or samples of its own",
        allowed='"partition" or "own"',
    )
    client_examples: Count = setting(1_000_000, "data own: most samples that a client may declare")
    keep_client_updates: bool = setting(
        False, "allow updates of single clients in the journal: flat methods, and edges with one client"
    )
    keep: Literal["all", "snapshot"] = setting(
        "all", "inputs in the journal: all, which can be replayed, or those since the last snapshot"
    )
    snapshot_rows: Count = setting(1000, "inputs between two snapshots of the cloud")
    start_edges: Count | Literal["all"] = setting("all", "nodes that must be there before the run starts")
    start_s: Seconds = setting(60.0, "seconds after which a run starts with those that are there")
    lease_s: Annotated[float, Field(ge=1, le=1e9)] = setting(
        30.0, "seconds of silence after which an edge loses its lease"
    )
    client_s: Annotated[float, Field(ge=1, le=1e9)] = setting(
        10.0, "seconds of silence after which a client has left its edge"
    )
    round_s: Seconds = setting(600.0, "seconds after which an edge round closes if edge.deadline_s is none")
    rate: Positive = setting(200.0, "calls per second of one node, on average")
    burst: Positive = setting(400.0, "calls of one node at once")
