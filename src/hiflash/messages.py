"""The vocabulary of clients, edges and cloud, in the simulator and over a network.

Messages are plain frozen data with `now` in seconds of the receiver's clock; none refers to a file, a socket
or a process. `Cloud.handle` and `Edge.handle` take the events below and return the effects. Most messages of
a lease are named tuples: making one takes a third of the time of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hiflash.estimates import EdgeCosts, Estimates

__all__ = [
    "Abandon",
    "Ask",
    "Assignment",
    "Cancel",
    "CheckIn",
    "ClientTask",
    "ClientUpdate",
    "CloudAnswer",
    "CloudEffect",
    "CloudEvent",
    "ClusterChange",
    "Deadline",
    "EdgeCosts",
    "EdgeEffect",
    "EdgeEvent",
    "Estimates",
    "Expire",
    "Expired",
    "Extra",
    "Grant",
    "Hello",
    "Left",
    "Measure",
    "Measured",
    "Model",
    "Proceed",
    "Progress",
    "Promise",
    "Received",
    "Recluster",
    "Refuse",
    "Report",
    "Round",
    "RoundApplied",
    "Slot",
    "Upload",
    "Verdict",
    "Weights",
    "Welcome",
]

Weights: TypeAlias = npt.NDArray[np.float32]
"""A model as one flat float32 vector; a `weights.Spec` maps its parts to tensors."""

Extra: TypeAlias = Mapping[str, Weights]
"""Arrays that travel beside a model, by name. Plain SGD needs none."""


class Promise:
    """A model that is not computed yet. Executors subclass it to describe the work; edges only pass it on."""

    __slots__ = ()


Model: TypeAlias = Weights | Promise
"""A model, or the promise of one."""


class CheckIn(NamedTuple):
    """An idle edge asks for the model. `request_id` rises with every new request of that edge."""

    edge: int
    request_id: int
    costs: EdgeCosts
    now: float

    def at(self, now: float) -> CheckIn:
        """Return the same request, made now."""
        return CheckIn(self.edge, self.request_id, self.costs, now)


@dataclass(frozen=True, slots=True)
class Hello:
    """An edge has started or restarted: it has no model and does not know its last request."""

    edge: int
    now: float


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to `Hello`: the edge's last request id. The edge counts on from there."""

    edge: int
    request_id: int
    now: float


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """The cluster of an edge has changed between two leases and now has `examples` samples.

    Without samples the edge has nothing to train, and the cloud drops its check-in.
    """

    edge: int
    examples: int
    now: float


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """The right to upload once, for one copy of the model."""

    edge: int
    request_id: int
    lease_id: int
    base_version: int
    threshold: float
    weights: Weights
    now: float
    extra: Extra = field(default_factory=dict)


class Refuse(NamedTuple):
    """No grant this time.

    The policy said no (`refused`), a lease would become too stale (`waited`), a declared cost is negative,
    infinite or NaN (`costs`), or the lease of this request has ended already (`expired`).
    """

    edge: int
    request_id: int
    reason: Literal["refused", "waited", "costs", "expired"]
    retry_after: float
    now: float


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """An edge model comes back; `check_in` asks for the next grant in the same message.

    `steps` are the local steps of a client in all rounds of the lease, a mean weighted by samples.
    """

    edge: int
    lease_id: int
    weights: Model
    examples: int
    check_in: CheckIn | None
    now: float
    steps: float = 1.0
    extra: Extra = field(default_factory=dict)


class Verdict(NamedTuple):
    """What became of an upload: `applied`, `buffered` or `rejected`, and why if rejected."""

    edge: int
    lease_id: int
    status: Literal["applied", "buffered", "rejected"]
    staleness: int
    version: int
    reason: str
    now: float


@dataclass(frozen=True, slots=True)
class Progress:
    """An edge asks between two edge rounds whether to go on."""

    edge: int
    lease_id: int
    now: float


@dataclass(frozen=True, slots=True)
class Proceed:
    """The answer to `Progress`: go on."""

    edge: int
    lease_id: int
    now: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """The answer to `Progress` if the lease is already too stale or has ended: stop."""

    edge: int
    lease_id: int
    now: float


@dataclass(frozen=True, slots=True)
class Abandon:
    """An edge gives its lease back: too few of its clients delivered a usable model."""

    edge: int
    lease_id: int
    check_in: CheckIn | None
    now: float


@dataclass(frozen=True, slots=True)
class Expire:
    """A lease has expired: whoever runs the cloud has not heard of its edge for too long."""

    lease_id: int
    now: float


@dataclass(frozen=True, slots=True)
class Slot:
    """The time for the cloud to answer waiting check-ins and close overdue rounds."""

    index: int
    now: float


@dataclass(frozen=True, slots=True)
class Measure:
    """The cloud asks for the recall of every class under this version, and waits for the answer."""

    version: int
    now: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The answer to `Measure`: the share of correct test samples per class, None if it is unknown."""

    recall: tuple[float, ...] | None
    now: float


@dataclass(frozen=True, slots=True)
class Expired:
    """The cloud ended a lease without an upload; `reason` says why."""

    edge: int
    lease_id: int
    reason: str
    now: float


@dataclass(frozen=True, slots=True)
class RoundApplied:
    """A round or buffer closed: `leases` made the new version, or `dropped` missed the quorum."""

    version: int
    leases: tuple[int, ...]
    dropped: tuple[int, ...]
    now: float


class Assignment(NamedTuple):
    """Some local steps of one client. They start from the model of its edge round."""

    client: int
    first_step: int
    steps: int
    lr: float
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class ClientTask:
    """An assignment and the model it starts from: the same task always gives the same result.

    A step is `u -= lr (g + correction + mu (u - weights))`; `mu` comes on top of the run's own proximal
    weight. `state` is what the client keeps between tasks, and `extra` came beside the model.
    """

    client: int
    first_step: int
    steps: int
    lr: float
    weights: Weights
    seed: int
    correction: Weights | None = None
    mu: float = 0.0
    state: Extra = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ClientUpdate:
    """The result of a client task, which amounts to `steps` plain gradient steps (`Steps.effective`).

    The client reports `compute_s`; its edge measures all other times.
    """

    client: int
    lease_id: int
    round: int
    weights: Weights
    examples: int
    loss: float
    compute_s: float
    now: float
    steps: float = 1.0
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """An edge starts a round: the clients in `work` train from `model`, with `extra`, until `deadline`."""

    edge: int
    lease_id: int
    index: int
    model: Model
    work: tuple[Assignment, ...]
    deadline: float
    now: float
    extra: Extra = field(default_factory=dict)


class Report(NamedTuple):
    """The outcome of a whole edge round in one event, from a simulator or from a secure sum.

    `model` is None where nothing is trained. `examples` are the samples in a secure sum, 0 without one.
    """

    lease_id: int
    round: int
    clients: tuple[int, ...]
    model: Model | None
    compute_s: float
    send_s: float
    now: float
    examples: int = 0


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time of an edge round is up."""

    lease_id: int
    round: int
    now: float


@dataclass(frozen=True, slots=True)
class Left:
    """A client is gone: its edge does not wait for its update any longer."""

    client: int
    now: float


class Ask(NamedTuple):
    """Tells an edge to check in."""

    now: float


class Received(NamedTuple):
    """An answer of the cloud reaches its edge.

    `took_s` is the transfer time of the model in seconds: the download for a grant, the upload for a verdict,
    None if it is unknown. Whoever runs the edge measures it: the clocks of two machines cannot be subtracted.
    """

    answer: CloudAnswer
    took_s: float | None
    now: float


@dataclass(frozen=True, slots=True)
class Recluster:
    """The cluster of an edge changes between two leases.

    `entering` maps each new client to its local steps so far: its data order and learning rate continue from
    there. `estimates` has the expected times of the new cluster, None if it has no clients.
    """

    leaving: tuple[int, ...]
    entering: Mapping[int, int]
    estimates: Estimates | None
    now: float


CloudEvent: TypeAlias = (
    Hello | CheckIn | Upload | Progress | Abandon | ClusterChange | Slot | Measured | Expire
)
CloudAnswer: TypeAlias = Grant | Refuse | Verdict | Proceed | Cancel | Welcome
CloudEffect: TypeAlias = CloudAnswer | Expired | RoundApplied | Measure
EdgeEvent: TypeAlias = Ask | Received | ClientUpdate | Left | Deadline | Report | Recluster
EdgeEffect: TypeAlias = CheckIn | Round | Progress | Upload | Abandon
