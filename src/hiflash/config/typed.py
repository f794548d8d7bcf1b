"""The settings as types, so that an editor completes them.

`python -m hiflash.config.write_typed` prints this module.
A section may also be any other mapping: a part of your own brings keys that no type here knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

# fmt: off
# ruff: noqa: E501

__all__ = [
    "AllSettings",
    "AttackSettings",
    "ClientSettings",
    "CloudSettings",
    "CostSettings",
    "DataSettings",
    "DpSettings",
    "EdgeSettings",
    "EvaluateSettings",
    "FederationSettings",
    "MobilitySettings",
    "ModelSettings",
    "PrivacySettings",
    "RaySettings",
    "ResourcesSettings",
    "ServeSettings",
    "Settings",
    "StopSettings",
    "WanSettings",
]


class FederationSettings(TypedDict, total=False):
    """The section `federation`: Who takes part."""

    clients: int
    """N, clients that hold data"""
    edges: int
    """M, edges that each own a cluster of clients"""
    files: str
    """folder with measured latencies, speeds, ... (docs/federation.md)"""
    association: Literal["random", "heterogeneity", "latency", "data", "edge-iid", "edge-noniid", "given"] | str
    """which client belongs to which edge (docs/association.md)"""
    heterogeneity_weight: float
    """lambda, milliseconds of latency that a divergence of 1 is worth"""
    target_distribution: Literal["global", "uniform"]
    """LD_IID, the labels that a cluster should have"""
    reach: int | Literal["all"]
    """edges that a client can reach: the ones with its best bandwidths"""
    classes_per_edge: int
    """edge-noniid: classes that an edge holds"""
    capacity: int | Literal["none"]
    """most clients of an edge"""
    flat: bool
    """no edge tier: every client talks to the cloud itself"""


class ClientSettings(TypedDict, total=False):
    """The section `client`: What a client does with a model."""

    algorithm: Literal["sgd", "feddyn", "fednova", "function", "scaffold"] | str
    """what a client does with a model (docs/client_algorithms.md)"""
    feddyn_alpha: float
    """feddyn: alpha, weight of the proximal term; the cloud divides by it"""
    function: str
    """function: the Python function that trains a model (docs/client_algorithms.md)"""
    extra_values: int
    """function: numbers in the arrays that it sends beside the model, counted both ways"""
    local_steps: int
    """c, mini-batch SGD steps in a task"""
    local_epochs: int | Literal["none"]
    """passes over the client's data instead of local_steps"""
    batch: int
    """samples in a step"""
    lr: float
    """learning rate"""
    lr_decay: float
    """factor on the learning rate"""
    lr_decay_steps: int
    """a client's steps between two decays"""
    mu: float
    """proximal term (FedProx)"""
    momentum: float
    """SGD momentum, reset in every task"""
    weight_decay: float
    """SGD weight decay"""
    batch_norm: Literal["average", "local"]
    """local: every client keeps its own BatchNorm layers (FedBN)"""
    clip_norm: float | Literal["none"]
    """clip each step's gradient to this norm"""
    optimizer: str
    """what takes a client's steps; all but sgd need torch, and start anew in every task"""


class EdgeSettings(TypedDict, total=False):
    """The section `edge`: What an edge does with a lease."""

    aggregate: Literal["mean", "median", "trimmed_mean", "krum", "norm_clip"] | str
    """how the models of a round become one (a cloud's only if it is synchronous)"""
    trim: float
    """trimmed_mean: share left out at either end, rounded down to whole models"""
    byzantine: int
    """krum: f, bad models to withstand; a round needs 2 f + 3"""
    krum_keep: int
    """krum: best models to average, at most n - f - 2"""
    clip_norm: float | Literal["none"]
    """norm_clip: clip each model's change to this norm"""
    edge_rounds: Sequence[int]
    """H, each edge draws its number of edge rounds from these"""
    redraw: Literal["setup", "grant"]
    """when H is drawn"""
    clients_per_round: int | float | Literal["all"]
    """clients drawn for each edge round: a number, a share of the cluster (rounded up), or all"""
    deadline_s: float | Literal["none"]
    """virtual seconds after which a round closes"""
    quorum: float
    """share of a round's clients that must deliver a usable model"""
    secure: Literal["off", "secagg"]
    """secagg: an edge learns the sum of its clients' models only (docs/secure_sums.md)"""
    secure_bound: float
    """secagg: largest change of a value in a task; larger ones are clipped"""


class CloudSettings(TypedDict, total=False):
    """The section `cloud`: How the cloud schedules edges and takes in their models."""

    aggregate: Literal["mean", "median", "trimmed_mean", "krum", "norm_clip"] | str
    """how the models of a round become one (a cloud's only if it is synchronous)"""
    trim: float
    """trimmed_mean: share left out at either end, rounded down to whole models"""
    byzantine: int
    """krum: f, bad models to withstand; a round needs 2 f + 3"""
    krum_keep: int
    """krum: best models to average, at most n - f - 2"""
    clip_norm: float | Literal["none"]
    """norm_clip: clip each model's change to this norm"""
    schedule: Literal["async", "sync", "centralized"]
    """mix each model on arrival, or average whole rounds"""
    participants: int
    """sync: edges (or flat clients) drawn for a round"""
    selection: Literal["uniform", "tiers"] | str
    """sync: draw from all, or from one latency tier (TiFL)"""
    tiers: int
    """selection tiers: how many latency tiers"""
    tier_interval: int
    """selection tiers: rounds between two evaluations of the tiers"""
    deadline_s: float | Literal["none"]
    """sync: virtual seconds until a round closes"""
    quorum: float
    """sync: share of a round that must deliver a usable model"""
    optimizer: Literal["none", "momentum", "adam", "yogi"] | str
    """sync: what moves the model along a round's change (docs/client_algorithms.md)"""
    lr: float | Literal["auto"]
    """optimizer: learning rate; auto is 1 for momentum, 0.01 for adam and yogi"""
    beta1: float
    """optimizer adam and yogi: decay of the mean change"""
    beta2: float
    """optimizer adam and yogi: decay of the mean square"""
    adaptivity: float
    """optimizer adam and yogi: tau, added to the root of the mean square"""
    concurrency: int | Literal["none"]
    """async: most edges (or flat clients) at the same time"""
    mixing: Literal["interpolate", "delta", "buffer", "tiers"] | str
    """async: move towards the edge model, add its change, add changes in groups (FedBuff), or weight tiers by their counts in reverse (FedAT)"""
    alpha: float
    """async: weight of a fresh edge model"""
    momentum: float
    """mixing delta (async) or optimizer momentum (sync): momentum of the changes"""
    buffer: int
    """mixing buffer: K, updates in one group"""
    weighting: Literal["exponential", "constant", "polynomial", "hinge"] | str
    """async: how the weight falls with staleness d"""
    penalty: float
    """weighting exponential: upsilon, the factor upsilon^d"""
    exponent: float
    """weighting polynomial: the factor (d + 1)^-exponent"""
    hinge: Sequence[float]
    """weighting hinge: [a, b] in the factor 1 up to d = b, then 1 / (a (d - b) + 1)"""
    threshold: int | Literal["inf", "parallel", "latency", "skip_slowest", "random", "uneven", "agent"] | str
    """async: how stale an upload may be, or the policy that decides it"""
    parallelism: int
    """threshold parallel: how many edges should run at the same time"""
    base_threshold: int
    """thresholds latency (for a median edge) and skip_slowest (for those not skipped)"""
    skipped: int
    """threshold skip_slowest: how many edges are always refused"""
    threshold_max: int
    """async: tau_max, random and uneven thresholds are uniform on 0..threshold_max"""
    agent: str
    """threshold agent: the agent that decides; auto chooses by dataset and association"""
    temperature: float
    """threshold agent: 0 takes the best action, more draws from the softmax of the Q-values"""
    enforce: Literal["admit", "discard", "cancel"]
    """async: how a threshold is enforced (docs/glossary.md)"""
    norm_bound: float | Literal["none"]
    """refuse updates whose change has a larger norm"""


class AttackSettings(TypedDict, total=False):
    """The section `attack`: What malicious clients do."""

    kind: Literal["none", "sign_flip", "noise", "scale", "nan", "label_flip"] | str
    """what malicious clients send or learn instead"""
    share: float
    """share of clients that are malicious, drawn once"""
    scale: float
    """factor on the change (sign_flip, scale), deviation of the noise"""


class DpSettings(TypedDict, total=False):
    """The section `dp`: Differential privacy of the model (docs/dp.md)."""

    unit: Literal["off", "client", "sample"]
    """what the model must not give away: that a client took part, or one of its samples"""
    clip: float
    """clip each client's change of the model, or each sample's gradient, to this norm"""
    noise: float | Literal["auto"]
    """deviation of the noise in a sum, in clips; auto: the least for dp.epsilon and dp.rounds"""
    epsilon: float | Literal["none"]
    """budget of every client, which a run never exceeds; none only keeps the ledger"""
    delta: float
    """chance that the promise fails; well below 1 / clients"""
    rounds: int | Literal["auto"]
    """noise auto: edge rounds that a client pays for; auto follows from the limits in stop"""
    clients: float | Literal["auto"]
    """unit client: fixed divisor of a round's sum; auto is the expected number of its clients"""
    sampling: Literal["none", "poisson"]
    """unit client: poisson lets each client join a round by itself, with the probability edge.clients_per_round (flat: cloud.participants / federation.clients)"""
    where: Literal["edge", "clients"]
    """unit client: who adds the noise, a trusted edge, or every client its share in a secure sum"""


class ResourcesSettings(TypedDict, total=False):
    """The section `resources`: How fast clients compute and send; means are drawn once per federation."""

    f_ghz: Sequence[float]
    """CPU frequency of a client"""
    cycles_per_bit: float
    """zeta, CPU cycles to process one bit"""
    bandwidth_mhz: Sequence[float]
    """bandwidth of a client at an edge"""
    snr_db: float
    """signal-to-noise ratio"""
    slot_s: float
    """length of a scheduling slot in virtual seconds"""
    slow_edge: float
    """factor on all times of edge 0: a straggler to study"""
    fluctuation: Literal["off", "on"]
    """resources change every virtual second"""
    fluctuation_rho: float
    """persistence from second to second"""
    fluctuation_spread: float
    """standard deviation of the log"""


class WanSettings(TypedDict, total=False):
    """The section `wan`: The link between edge and cloud. With `wan = "off"` it takes no time, as in the paper."""

    link: Literal["on", "off"]
    """whether transfers to and from the cloud take time"""
    rtt_ms: Sequence[float]
    """round-trip time of an edge"""
    bandwidth_mbps: Sequence[float]
    """bandwidth of an edge"""
    jitter: float
    """log-normal spread of transfer times"""
    upload: Literal["none", "fp16", "int8", "topk"] | str
    """compression of models on the way to the cloud"""
    download: Literal["none", "fp16", "int8", "topk"] | str
    """compression of models on the way from the cloud"""
    topk: float
    """topk: share of the values that are sent, each with its index"""


class MobilitySettings(TypedDict, total=False):
    """The section `mobility`: Clients that move, join and leave while a run goes on, and the repair of their association."""

    moves_per_s: float
    """moves per virtual second; a client that moves has new bandwidths"""
    joins_per_s: float
    """absent clients that join per virtual second, while there are any"""
    leaves_per_s: float
    """clients that leave per virtual second; the last one stays"""
    absent: float
    """share of clients that are absent at the start"""
    repair_s: float | Literal["none"]
    """virtual seconds between two repairs of the association"""
    switching_cost: float
    """ms of association cost that a change of edge must save"""


class EvaluateSettings(TypedDict, total=False):
    """The section `evaluate`: When and on which samples the global model is tested."""

    every: int
    """communications between two evaluations"""
    validation: float
    """share of the training samples that no client gets: runs stop, and sweeps rank, by the metric on it; 0 is none, and the test set decides"""
    clients: float
    """share of every client's own samples that is held out, to test the final model on it; 0 is none"""


class StopSettings(TypedDict, total=False):
    """The section `stop`: When a run ends: whichever comes first."""

    metric: str
    """what the target is about, and the tables; auto is the task's first metric"""
    target: float | Literal["none"]
    """value of the metric that ends a run; without one given, only accuracy on classes has a target"""
    communications: int | Literal["none"]
    """models that reached the cloud"""
    client_steps: int | Literal["none"]
    """SGD steps on all clients"""
    virtual_s: float | Literal["none"]
    """virtual seconds"""
    steps: int
    """centralized only: SGD steps"""


class DataSettings(TypedDict, total=False):
    """The section `data`: The dataset, and its partition over the clients."""

    name: Literal["mnist5k", "mnist", "cifar10", "femnist", "flights", "flights-carriers", "flights-delay", "flights-delay-carriers", "shakespeare"] | str | Literal["none"]
    """dataset; none goes with trainer = "none"."""
    partition: str
    """how samples are dealt to clients"""
    dir: str
    """folder with the datasets (or HIFLASH_DATA)"""
    augment: bool
    """random crops and flips while training"""
    task: Literal["auto"] | Literal["classification", "regression", "sequence"] | str
    """what is learned: loss, metrics, form of the answers; auto is the dataset's"""
    normalise: Literal["auto", "feature", "global", "channel", "none"]
    """scale inputs to mean 0, deviation 1: auto is by feature in tables, by channel or global in images, none for tokens"""


class ModelSettings(TypedDict, total=False):
    """The section `model`: The model."""

    name: Literal["auto"] | Literal["lenet", "femnist_cnn", "cnn", "resnet", "resnet18", "mlp", "char_lstm"] | str
    """model; auto takes the dataset's"""


class CostSettings(TypedDict, total=False):
    """The section `cost`: What work costs: weights of computing and sending (time has weight 1), and how leases are charged."""

    compute_weight: float
    """sigma1, weight of computing"""
    send_weight: float
    """sigma2, weight of sending"""
    accounting: Literal["lease", "paper"]
    """charge a lease for its work, or for an edge round in every running slot as the paper does"""


class PrivacySettings(TypedDict, total=False):
    """The section `privacy`: What leaves a client about its labels (docs/histograms.md)."""

    epsilon: float | Literal["auto", "off"]
    """privacy loss of a client's label histogram; auto is off in a simulation and 1 deployed"""
    noise: Literal["laplace", "gaussian"]
    """noise that a client adds to its histogram"""
    delta: float
    """noise gaussian: chance that epsilon does not hold"""
    unit: Literal["sample", "client"]
    """what epsilon protects: any one sample of a client, or its whole histogram"""
    histograms: Literal["single", "group"]
    """who is associated: clients by their own histograms, or groups by the sums of theirs"""
    group: int
    """histograms group: fewest clients whose sum is opened"""


class RaySettings(TypedDict, total=False):
    """The section `ray`: The Ray cluster of the executor `ray`."""

    address: str
    """executor ray: start a cluster here (local), or join a running one"""


class ServeSettings(TypedDict, total=False):
    """The section `serve`: The deployed system (docs/deployment.md). A simulation reads none of these keys."""

    data: Literal["partition"]
    """samples of a client: its part of the dataset here, or samples of its own"""
    client_examples: int
    """data own: most samples that a client may declare"""
    keep_client_updates: bool
    """allow updates of single clients in the journal: flat methods, and edges with one client"""
    keep: Literal["all", "snapshot"]
    """inputs in the journal: all, which can be replayed, or those since the last snapshot"""
    snapshot_rows: int
    """inputs between two snapshots of the cloud"""
    start_edges: int | Literal["all"]
    """nodes that must be there before the run starts"""
    start_s: float
    """seconds after which a run starts with those that are there"""
    lease_s: float
    """seconds of silence after which an edge loses its lease"""
    client_s: float
    """seconds of silence after which a client has left its edge"""
    round_s: float
    """seconds after which an edge round closes if edge.deadline_s is none"""
    rate: float
    """calls per second of one node, on average"""
    burst: float
    """calls of one node at once"""


class Settings(TypedDict, total=False):
    """The keys and sections of a configuration, but for those that may also be objects."""

    method: Literal["centralized", "fedavg", "fedprox", "scaffold", "feddyn", "fednova", "fedavgm", "fedadam", "fedyogi", "tifl", "fedasync", "fedbuff", "fedat", "hierfavg", "hifl", "hiflash", "hidelta"] | str
    """which recipe runs"""
    seed: int
    """names every random stream"""
    workers: int
    """threads; 0 is one per core"""
    device: str
    """where training runs"""
    trainer: Literal["auto", "native", "torch", "stacked", "none"]
    """what runs client tasks; auto is native or else torch, stacked is for GPUs, none trains nothing"""
    executor: Literal["local", "ray"]
    """what runs the workers: this process, or a Ray cluster"""
    checkpoint_s: float
    """wall seconds between two checkpoints"""
    plugins: Sequence[str]
    """modules with parts of your own (docs/plugins.md)"""
    client: ClientSettings | Mapping[str, Any]
    edge: EdgeSettings | Mapping[str, Any]
    cloud: CloudSettings | Mapping[str, Any]
    attack: AttackSettings | Mapping[str, Any]
    dp: DpSettings | Mapping[str, Any]
    resources: ResourcesSettings | Mapping[str, Any]
    wan: WanSettings | Mapping[str, Any] | Literal["on", "off"]
    mobility: MobilitySettings | Mapping[str, Any]
    evaluate: EvaluateSettings | Mapping[str, Any]
    stop: StopSettings | Mapping[str, Any]
    cost: CostSettings | Mapping[str, Any]
    privacy: PrivacySettings | Mapping[str, Any]
    ray: RaySettings | Mapping[str, Any]
    serve: ServeSettings | Mapping[str, Any]


class AllSettings(Settings, total=False):
    """All keys and sections of a configuration."""

    data: DataSettings | Mapping[str, Any]
    model: ModelSettings | Mapping[str, Any]
    federation: FederationSettings | Mapping[str, Any]
