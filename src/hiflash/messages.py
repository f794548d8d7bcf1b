"""The vocabulary that clients, edges, the cloud and every engine share.

Messages are plain frozen data: they carry `now` in seconds of whatever clock the engine keeps, and
nothing in them refers to a file, a socket or a process. `Cloud` and `Edge` turn them into each other.
Some that every lease needs are tuples, which take a third of the time of a frozen dataclass to make.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Abandon",
    "Cancel",
    "CheckIn",
    "ClientTask",
    "ClientUpdate",
    "ClusterChange",
    "Deadline",
    "EdgeCosts",
    "Expired",
    "Grant",
    "Measure",
    "Measured",
    "Model",
    "Proceed",
    "Progress",
    "Refuse",
    "Report",
    "Round",
    "RoundApplied",
    "Slot",
    "Upload",
    "Verdict",
    "Weights",
]

Weights: TypeAlias = npt.NDArray[np.float32]
"""A model as one flat float32 vector; a `weights.Spec` says which part of it is which tensor."""

Model: TypeAlias = Any
"""Weights, or an engine's promise of them: an `Edge` hands models on and never looks inside one."""


class EdgeCosts(NamedTuple):
    """What an edge expects its next lease to take: seconds of client work, of sending, and of waiting."""

    compute_s: float
    send_s: float
    down_s: float
    train_s: float
    up_s: float

    @property
    def valid(self) -> bool:
        """Return whether every number is one that time can have."""
        return min(self) >= 0 and sum(self) < math.inf

    @property
    def duration_s(self) -> float:
        """Return the seconds from grant to arrival at the cloud."""
        return self.down_s + self.train_s + self.up_s


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
    """No grant this time: the policy said no (`refused`) or the threshold would be broken (`waited`)."""

    edge: int
    request_id: int
    reason: str
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
    status: str
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


@dataclass(frozen=True, slots=True, eq=False)
class ClientTask:
    """Some local steps of one client from one model: the same task always gives the same result.

    `kept` are values of the client's own that replace some of the model's, where a client keeps any.
    """

    client: int
    first_step: int
    steps: int
    lr: float
    weights: Model
    seed: int
    kept: Weights | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ClientUpdate:
    """What a client made of a task, and how long computing and sending it took."""

    client: int
    lease_id: int
    round: int
    weights: Model
    examples: int
    loss: float
    compute_s: float
    send_s: float
    now: float


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """An edge starts an edge round: these tasks go to its clients, who have until `deadline`."""

    edge: int
    lease_id: int
    index: int
    tasks: tuple[ClientTask, ...]
    deadline: float
    now: float


class Report(NamedTuple):
    """All that came of an edge round at once, where nothing is trained and nobody sends a model."""

    lease_id: int
    round: int
    clients: tuple[int, ...]
    compute_s: float
    send_s: float
    now: float


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time of an edge round is up."""

    lease_id: int
    round: int
    now: float
