"""The interface of client algorithms: a correction per task, a state on the client, arrays beside models.

An algorithm has two halves. The client's half (`ClientAlgorithm`) is plain data with pure functions, so any
worker can run it. The cloud's half (`CloudSide`) keeps what all clients share. docs/client_algorithms.md has
the protocol, and decision 45 the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from hiflash.core.aggregation import Rule
from hiflash.core.compression import Traffic
from hiflash.core.state import Stateful
from hiflash.errors import ProtocolError
from hiflash.messages import Extra, Weights
from hiflash.weights import finite, weighted_mean

__all__ = [
    "ClientAlgorithm",
    "CloudSide",
    "Done",
    "MeanOfStates",
    "Steps",
    "Traffic",
    "gather",
    "not_robust",
    "usable_extra",
]


class Done(NamedTuple):
    """A finished task: the trained entries of the model before and after, and what the trainer returned.

    `steps` is the number of plain gradient steps that the task amounts to (`Steps`).
    """

    client: int
    steps: float
    lr: float
    start: Weights
    end: Weights
    state: Extra
    extra: Extra


@dataclass(frozen=True, slots=True)
class Steps:
    """Counts the steps of tasks: under momentum or a proximal term a step weighs more or less than one."""

    momentum: float = 0.0
    mu: float = 0.0

    def effective(self, steps: int, lr: float, mu: float = 0.0) -> float:
        """Return the number of plain steps that a task amounts to: |a|_1 of Wang et al. 2020.

        It is the way that a constant gradient of 1 moves the model, in learning rates. `mu` is the task's own
        proximal weight.

        >>> Steps().effective(3, 0.1), Steps(momentum=0.5).effective(3, 0.1)  # 1 + 1.5 + 1.75
        (3.0, 4.25)
        """
        mu += self.mu
        if not (mu or self.momentum):
            return float(steps)
        moved = velocity = 0.0
        for _ in range(steps):
            velocity = self.momentum * velocity + 1 - lr * mu * moved
            moved += velocity
        return max(1.0, moved)


class CloudSide(Stateful):
    """The cloud's half of an algorithm: what grants carry, and what becomes of the arrays in uploads.

    The cloud calls `accept` once for every upload with arrays that it applies or buffers. If it refuses the
    upload after all, it restores the state from before.
    """

    def grant(self) -> Extra:
        """Return the arrays that the next grant carries beside the model."""
        return {}

    def usable(self, extra: Extra) -> bool:
        """Return whether an upload with arrays has the right ones."""
        return False

    def accept(self, edge: int, extra: Extra, examples: int) -> None:
        """Take in the arrays of an upload."""

    def correct(self, model: Weights) -> Weights:
        """Return the model of a round, or of an asynchronous upload, as it enters the global model."""
        return model


@dataclass(frozen=True)
class ClientAlgorithm:
    """Plain SGD, and the base of other algorithms. A run makes one; workers get copies, by pickle on Ray.

    With `keeps` clients keep a state or exchange arrays; without it only `rule` differs from plain SGD.
    `gathers` says what an edge makes of its clients' arrays: their `sum` over all rounds of a lease, or the
    `mean` of the last round, weighted by samples.
    """

    keeps: ClassVar[bool] = False
    gathers: ClassVar[Literal["sum", "mean"]] = "sum"

    def traffic(self, trained: int, *, flat: bool, exact: bool) -> Traffic:
        """Return what travels beside a model with this many trained values.

        In a `flat` method every client talks to the cloud itself. The cloud gets `exact` models unless
        uploads are compressed.
        """
        return Traffic()

    def before(self, state: Extra, extra: Extra) -> tuple[Weights | None, float]:
        """Return the vector to add to every gradient of a task, and the weight of a proximal term.

        `state` is the client's (empty before its first task), `extra` came with the grant.
        """
        return None, 0.0

    def after(self, done: Done, state: Extra, extra: Extra) -> tuple[Extra, Extra]:
        """Return the client's new state, and the arrays that it sends beside its model."""
        return {}, {}

    def cloud(self, trained: int, clients: int) -> CloudSide | None:
        """Return the cloud's half for a federation of this many clients, None if there is none."""
        return None

    def rule(self, rule: Rule, trained: int) -> Rule:
        """Return the aggregation rule to use where a configuration asks for `rule`."""
        return rule


class MeanOfStates(CloudSide):
    """Keeps the mean of all clients' states: each upload brings the sum of its clients' changes."""

    STATE = ("mean",)
    CHANGE = "change"

    def __init__(self, trained: int, clients: int) -> None:
        self.mean: Weights = np.zeros(trained, np.float32)
        self.clients = clients

    def usable(self, extra: Extra) -> bool:
        """Return whether an upload has a change of the right shape."""
        return (
            set(extra) == {self.CHANGE}
            and usable_extra(extra)
            and extra[self.CHANGE].shape == self.mean.shape
        )

    def accept(self, edge: int, extra: Extra, examples: int) -> None:
        """Add the sum of the changes, divided by the number of all clients."""
        self.mean = self.mean + extra[self.CHANGE] * np.float32(1 / self.clients)


def not_robust(config: Any) -> str | None:
    """Return the problem of an algorithm that adds up its clients' changes beside a robust rule."""
    for section in ("edge", "cloud"):
        rule = getattr(config, section).aggregate
        if rule != "mean" and not (section == "cloud" and config.cloud.schedule == "async"):
            return (
                f'{section}.aggregate = "{rule}" protects models, and client.algorithm = '
                f'"{config.client.algorithm}" also adds up the changes of its clients\' states, which one '
                'malicious client can spoil; use "mean", or another algorithm'
            )
    return None


def usable_extra(extra: Mapping[str, Any]) -> bool:
    """Return whether these are finite float32 arrays."""
    return all(
        isinstance(array, np.ndarray) and array.dtype == np.float32 and finite(array)
        for array in extra.values()
    )


def gather(how: str, before: Extra, extras: Sequence[Extra], counts: Sequence[int]) -> Extra:
    """Return the arrays of an edge after a round: `before` has those of the lease's earlier rounds.

    Clients come sorted by id. An array that a client did not send is left out of the sum or mean.
    """
    gathered: dict[str, Weights] = dict(before) if how == "sum" else {}
    for name in sorted({name for extra in extras for name in extra}):
        sent = [(extra[name], count) for extra, count in zip(extras, counts, strict=True) if name in extra]
        shapes = sorted({array.shape for array, _ in sent})
        if len(shapes) > 1:
            raise ProtocolError(
                f"the array {name} must have one shape on all clients, got {shapes[0]} and {shapes[1]}"
            )
        if how == "mean":
            gathered[name] = weighted_mean([array for array, _ in sent], [count for _, count in sent])
            continue
        total = np.sum([array for array, _ in sent], axis=0, dtype=np.float64)
        if name in gathered:
            total = total + gathered[name]
        gathered[name] = np.asarray(total, np.float32)
    return gathered
