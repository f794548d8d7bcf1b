"""Participants of a synchronous round: drawn uniformly, or from one latency tier at a time (TiFL)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hiflash.core.association.strategies import label_distribution, latency_tiers
from hiflash.core.registry import Key, Part, by_name
from hiflash.core.state import Stateful
from hiflash.seeding import rng

__all__ = [
    "SELECTIONS",
    "Peers",
    "PrivateSelection",
    "Selection",
    "TierSelection",
    "UniformSelection",
    "tier_probabilities",
]


@dataclass(frozen=True, eq=False)
class Peers:
    """The peers of a synchronous cloud as a selection sees them: edges, or the clients of a flat method.

    `clusters` has the clients of each peer, `labels` the counts by client and class (None without data), and
    `latency_s()` the latency of each peer's slowest client.
    """

    clusters: Sequence[Sequence[int]]
    labels: npt.NDArray[np.int64] | None
    latency_s: Callable[[], npt.NDArray[np.float64]]


class Selection(Protocol):
    """Chooses the participants of synchronous rounds."""

    def wants_recall(self, index: int) -> bool:
        """Return whether the model must be measured before round `index`, counted from 1, is drawn."""
        ...

    def observe(self, recall: Sequence[float] | None) -> None:
        """Take the share of correct test samples per class, None if it is unknown."""
        ...

    def choose(self, idle: Sequence[int], index: int) -> list[int]:
        """Return the participants of round `index`, chosen among the waiting edges."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a snapshot."""
        ...


class UniformSelection(Stateful):
    """Draws a fixed number of participants uniformly (FedAvg, HierFAVG)."""

    def __init__(self, participants: int, seed: int) -> None:
        self.participants = participants
        self.seed = seed

    def wants_recall(self, index: int) -> bool:
        """Return no: nothing depends on the model."""
        return False

    def observe(self, recall: Sequence[float] | None) -> None:
        """Ignore the measurement."""

    def choose(self, idle: Sequence[int], index: int) -> list[int]:
        """Return a draw without replacement."""
        return _draw(idle, self.participants, rng(self.seed, "participants", index))


class TierSelection(Stateful):
    """TiFL's adaptive selection (Chai et al. 2020): each round draws one latency tier, then its clients.

    Every `interval` rounds the model is measured for every tier, on the test set reweighted to the tier's
    labels (`shares`, tiers x classes). If the accuracy of the current tier has not risen, the less accurate
    tiers become more probable. Every draw costs a tier one of its `credits`.
    """

    STATE = ("credits", "probabilities", "current", "accuracies")

    def __init__(
        self,
        tiers: Sequence[Sequence[int]],
        shares: npt.NDArray[np.float64] | None,
        *,
        participants: int,
        interval: int,
        credits: float,
        seed: int,
    ) -> None:
        self.tiers = [frozenset(tier) for tier in tiers]
        self.shares = shares
        self.participants = participants
        self.interval = interval
        self.seed = seed
        self.credits = [credits] * len(self.tiers)
        self.probabilities = [1 / len(self.tiers)] * len(self.tiers)
        self.current: int | None = None
        self.accuracies: list[float] | None = None

    def wants_recall(self, index: int) -> bool:
        """Return yes before the first round and after every `interval` rounds."""
        return self.shares is not None and (index - 1) % self.interval == 0

    def observe(self, recall: Sequence[float] | None) -> None:
        """Take the measurement; change the probabilities if the current tier's accuracy has not risen."""
        if recall is None or self.shares is None:
            return
        before, self.accuracies = self.accuracies, (self.shares @ np.asarray(recall)).tolist()
        if before is None or self.current is None or self.accuracies[self.current] > before[self.current]:
            return
        self.probabilities = tier_probabilities(self.accuracies, self.credits)

    def choose(self, idle: Sequence[int], index: int) -> list[int]:
        """Return waiting clients of one tier; tiers without credits are drawn only if no other waits."""
        waiting = [sorted(tier.intersection(idle)) for tier in self.tiers]
        ready = [tier for tier, clients in enumerate(waiting) if clients]
        able = [tier for tier in ready if self.credits[tier] > 0] or ready
        weights = np.array([self.probabilities[tier] for tier in able])
        if weights.sum() == 0:  # only tiers of probability 0 are left
            weights = np.ones(len(able))
        stream = rng(self.seed, "participants", index)
        self.current = int(stream.choice(able, p=weights / weights.sum()))
        self.credits = [left - (tier == self.current) for tier, left in enumerate(self.credits)]
        return _draw(waiting[self.current], self.participants, stream)


class PrivateSelection:
    """Lets another selection choose among those that can still pay, or `draw` decide for each by itself.

    `left` returns how many more rounds each peer can pay for. `draw` takes the number of the round and peers.
    """

    def __init__(
        self,
        inner: Selection,
        left: Callable[[Sequence[int]], Sequence[int]],
        draw: Callable[[int, Sequence[int]], Sequence[int]] | None = None,
    ) -> None:
        self.inner = inner
        self.left = left
        self.draw = draw

    def wants_recall(self, index: int) -> bool:
        """Return whether the other selection needs the model measured."""
        return self.inner.wants_recall(index)

    def observe(self, recall: Sequence[float] | None) -> None:
        """Pass a measurement on."""
        self.inner.observe(recall)

    def choose(self, idle: Sequence[int], index: int) -> list[int]:
        """Return the participants; nobody may join, or nobody be left."""
        able = [peer for peer, left in zip(idle, self.left(idle), strict=True) if left > 0]
        if self.draw is not None:
            return list(self.draw(index, able))
        return self.inner.choose(able, index) if able else []

    def snapshot(self) -> dict[str, Any]:
        """Return the other selection's state."""
        return self.inner.snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a snapshot."""
        self.inner.restore(state)


def tier_probabilities(accuracies: Sequence[float], credits: Sequence[float]) -> list[float]:
    """Return `(n - i) / (n (n - 1) / 2)` for the i-th least accurate of the n tiers that have credits.

    >>> tier_probabilities([0.9, 0.5, 0.7], [5, 5, 5])
    [0.0, 0.6666666666666666, 0.3333333333333333]
    """
    able = [tier for tier, left in enumerate(credits) if left > 0]
    n = len(able)
    if n == 0:
        return [1 / len(credits)] * len(credits)
    if n == 1:
        return [float(tier == able[0]) for tier in range(len(credits))]
    probabilities = [0.0] * len(credits)
    for i, tier in enumerate(sorted(able, key=lambda tier: (accuracies[tier], tier)), start=1):
        probabilities[tier] = (n - i) / math.comb(n, 2)
    return probabilities


def _draw(idle: Sequence[int], count: int, stream: np.random.Generator) -> list[int]:
    drawn: list[int] = stream.choice(idle, size=min(count, len(idle)), replace=False).tolist()
    return sorted(drawn)


def _tier_selection(config: Any, peers: Peers) -> TierSelection:
    """Return TiFL's selection; a tier groups peers of similar response latency."""
    cloud = config.cloud
    tiers = latency_tiers(peers.latency_s(), cloud.tiers)
    shares = None
    if peers.labels is not None:
        held = [
            peers.labels[[k for peer in tier for k in peers.clusters[peer]]].sum(axis=0) for tier in tiers
        ]
        shares = np.array([label_distribution(counts) for counts in held])
    limit = config.stop.communications
    return TierSelection(
        tiers,
        shares,
        participants=cloud.participants,
        interval=cloud.tier_interval,
        credits=math.inf if limit == "none" else math.ceil(2 * (limit / cloud.participants) / cloud.tiers),
        seed=config.seed,
    )


def _too_many_tiers(config: Any) -> str | None:
    if config.cloud.tiers <= config.units:
        return None
    of = "federation.clients" if config.federation.flat else "federation.edges"
    return f"cloud.tiers ({config.cloud.tiers}) must not exceed {of} ({config.units})"


TIERS = Key("tiers", int, default=5, low=1, high=10_000_000, about="selection tiers: how many latency tiers")
TIER_INTERVAL = Key(
    "tier_interval",
    int,
    default=20,
    low=1,
    high=10_000_000,
    about="selection tiers: rounds between two evaluations of the tiers",
)

SELECTIONS = by_name(
    Part(
        "uniform",
        "draws `participants` from all",
        lambda config, peers: UniformSelection(config.cloud.participants, config.seed),
    ),
    Part(
        "tiers",
        "draws one of `tiers` latency tiers by accuracy and credits, then its participants (TiFL)",
        _tier_selection,
        keys=(TIERS, TIER_INTERVAL),
        problem=_too_many_tiers,
    ),
)
