"""The vocabulary of clients, edges and cloud, in the simulator and over a network.

Messages are plain frozen data. They carry `now` in seconds of the receiver's clock, and nothing in them
refers to a file, a socket or a process. `Cloud.handle` and `Edge.handle` take the events below and return
the effects. Messages of every lease are tuples, which are made in a third of a frozen dataclass's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    "Expired",
    "Grant",
    "Hello",
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
"""A model as one flat float32 vector; a `weights.Spec` says which part of it is which tensor."""


class Promise:
    """A model that is still to be computed. Executors say how, in a subclass; edges only hand it on."""

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
    """An edge has started, or started again: what it had of the model and of its requests is gone."""

    edge: int
    now: float


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to `Hello`: the edge's last request, after which it goes on counting."""

    edge: int
    request_id: int
    now: float


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """An edge between two leases has another cluster, with so many samples; with none it asks for nothing."""

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


class Refuse(NamedTuple):
    """No grant this time.

    The policy said no (`refused`), a threshold would be broken (`waited`), or the costs are no durations.
    """

    edge: int
    request_id: int
    reason: Literal["refused", "waited", "costs"]
    retry_after: float
    now: float


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """An edge model comes back. `check_in` asks for the next grant in the same message."""

    edge: int
    lease_id: int
    weights: Model
    examples: int
    check_in: CheckIn | None
    now: float


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
    """The call an edge makes between edge rounds."""

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
    """The answer to `Progress` when the lease can no longer be fresh enough."""

    edge: int
    lease_id: int
    now: float


@dataclass(frozen=True, slots=True)
class Abandon:
    """An edge gives its lease back: too few of its clients delivered something usable."""

    edge: int
    lease_id: int
    check_in: CheckIn | None
    now: float


@dataclass(frozen=True, slots=True)
class Slot:
    """The moment at which waiting check-ins are answered; also when expiry and deadlines are noticed."""

    index: int
    now: float


@dataclass(frozen=True, slots=True)
class Measure:
    """The cloud wants to know how good this version of the model is before it goes on."""

    version: int
    now: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The answer: the share of each class's test samples that are right, None if nobody can tell."""

    recall: tuple[float, ...] | None
    now: float


@dataclass(frozen=True, slots=True)
class Expired:
    """The cloud ended a lease that nobody used in time."""

    edge: int
    lease_id: int
    reason: str
    now: float


@dataclass(frozen=True, slots=True)
class RoundApplied:
    """A round or buffer closed: these leases make up the new version, or were in vain below the quorum."""

    version: int
    leases: tuple[int, ...]
    dropped: tuple[int, ...]
    now: float


class Assignment(NamedTuple):
    """Some local steps of one client, from whatever model its edge round starts with."""

    client: int
    first_step: int
    steps: int
    lr: float
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class ClientTask:
    """An assignment and the model it starts from: the same task always gives the same result."""

    client: int
    first_step: int
    steps: int
    lr: float
    weights: Weights
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class ClientUpdate:
    """What a client made of a task. `compute_s` is the client's own word; its edge measures the rest."""

    client: int
    lease_id: int
    round: int
    weights: Weights
    examples: int
    loss: float
    compute_s: float
    now: float


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """An edge starts an edge round from a model: these clients have until `deadline`."""

    edge: int
    lease_id: int
    index: int
    model: Model
    work: tuple[Assignment, ...]
    deadline: float
    now: float


class Report(NamedTuple):
    """All that came of an edge round at once, told by whoever knows it without asking the clients.

    `model` is the promise of what they made, None where nothing is trained.
    """

    lease_id: int
    round: int
    clients: tuple[int, ...]
    model: Promise | None
    compute_s: float
    send_s: float
    now: float


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time of an edge round is up."""

    lease_id: int
    round: int
    now: float


class Ask(NamedTuple):
    """An edge is told to ask for the model."""

    now: float


class Received(NamedTuple):
    """An answer of the cloud reaches its edge.

    `took_s` are the seconds that the model was on its way: down for a grant, up for a verdict, None if
    nobody knows. Whoever runs the edge measures them: two machines' clocks cannot be subtracted.
    """

    answer: CloudAnswer
    took_s: float | None
    now: float


@dataclass(frozen=True, slots=True)
class Recluster:
    """An edge between two leases gets another cluster, whose rounds are expected to take so long.

    `entering` maps each new client to the steps it has taken so far: its data order and learning rate go on
    from there. `estimates` is None if nobody is left.
    """

    leaving: tuple[int, ...]
    entering: Mapping[int, int]
    estimates: Estimates | None
    now: float


CloudEvent: TypeAlias = Hello | CheckIn | Upload | Progress | Abandon | ClusterChange | Slot | Measured
CloudAnswer: TypeAlias = Grant | Refuse | Verdict | Proceed | Cancel
CloudEffect: TypeAlias = CloudAnswer | Welcome | Expired | RoundApplied | Measure
EdgeEvent: TypeAlias = Ask | Received | ClientUpdate | Deadline | Report | Recluster
EdgeEffect: TypeAlias = CheckIn | Round | Progress | Upload | Abandon
