"""What a run does for privacy, in the simulator and on every node of a deployment, and what it is charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from hiflash.core.edge import EdgePrivacy
from hiflash.execute.secure import PrivateRounds
from hiflash.messages import Weights
from hiflash.privacy.accounting import Mechanism
from hiflash.privacy.ledger import EVERYBODY, MODELS, PARTICIPATION, Budget, PrivacyLedger
from hiflash.privacy.mechanism import PrivateSum
from hiflash.privacy.randomness import Randomness, SeededRandomness
from hiflash.sim.sent_histograms import HISTOGRAM, SentHistograms

__all__ = ["PrivacyPlan", "Spending", "joining"]

ROUND, SAMPLED_ROUND = "edge round", "sampled edge round"


@dataclass(frozen=True, eq=False)
class PrivacyPlan:
    """What a run does for the privacy of its clients or of their samples.

    `noise` is in the sums, and `charged` what the ledger counts for it. Clients join with probability
    `sampling`. `divisors` has the fixed divisor of every edge. With `at_cloud` the cloud adds up the clients
    of a flat synchronous method itself, and divides by `cloud_divisor`. `rates` and `steps` are the sampling
    rates and local steps of clients, for the privacy of samples. `notes` name what the noise does not cover.
    A round needs `least` clients that can pay for it. `histograms` are what clients have sent before the run.
    """

    unit: str
    clip: float
    noise: float
    charged: float
    budget: Budget
    clients: int
    sampling: float
    where: Literal["edge", "clients"]
    divisors: tuple[float, ...]
    at_cloud: bool
    rounds: int | None
    cloud_divisor: float = 1.0
    rates: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    least: int = 1
    histograms: SentHistograms | None = None

    @cached_property
    def entries(self) -> dict[str, tuple[Mechanism, tuple[str, ...]]]:
        """Return what a client can be charged for in a round: mechanisms, and those who see them."""
        if self.unit == "sample":
            return {
                _step_at(rate): (Mechanism(self.charged, sampling=rate), EVERYBODY)
                for rate in sorted(set(self.rates))
            }
        alone = Mechanism(self.charged)
        if self.sampling == 1:
            return {ROUND: (alone, EVERYBODY)}
        sampled = Mechanism(self.charged, sampling=self.sampling)
        return {SAMPLED_ROUND: (sampled, (MODELS,)), ROUND: (alone, (PARTICIPATION,))}

    def ledger(self, before: Mapping[str, Any] | None = None) -> PrivacyLedger:
        """Return the ledger of a run at its start, with the histograms that were sent before.

        It goes on from the charges of the snapshot `before`.
        """
        made = self.blank_ledger()
        if before is not None:
            made.take_up(before)
        self.charge_histograms(made)
        return made

    def blank_ledger(self) -> PrivacyLedger:
        """Return a ledger with nothing but names in it."""
        made = PrivacyLedger(self.budget, self.clients, self.unit)
        for name, (mechanism, seen_by) in self.entries.items():
            made.declare(name, mechanism, seen_by)
        if self.histograms is not None:
            made.declare(HISTOGRAM, self.histograms.mechanism, unit=self.histograms.release.unit)
        return made

    def charge_histograms(self, ledger: PrivacyLedger) -> None:
        """Charge clients for the histogram that they have sent, unless they were charged for it before."""
        if self.histograms is not None:
            ledger.charge({HISTOGRAM: np.flatnonzero(ledger.counts[HISTOGRAM] == 0).tolist()})

    def charge(self, ledger: PrivacyLedger, members: Sequence[int], joined: Sequence[int]) -> None:
        """Charge a round: `members` could have joined it, `joined` are in its sum."""
        if self.unit == "sample":
            for (name, steps), clients in _grouped(joined, self._step_of).items():
                ledger.charge({name: clients}, steps)
        elif self.sampling == 1:
            ledger.charge({ROUND: joined})
        else:
            ledger.charge({SAMPLED_ROUND: members, ROUND: joined})

    def left(self, ledger: PrivacyLedger, clients: Sequence[int]) -> Sequence[int]:
        """Return how many more edge rounds each of some clients can pay for."""
        if self.unit != "sample":
            name = ROUND if self.sampling == 1 else SAMPLED_ROUND
            found: Sequence[int] = ledger.left(name, clients).tolist()
            return found
        left = []
        for client in clients:
            name, steps = self._step_of(client)
            left.append(int(ledger.left(name, [client])[0]) // steps)
        return left

    def can_go_on(self, ledger: PrivacyLedger, cluster: Sequence[int]) -> bool:
        """Return whether enough clients of a cluster can pay for another edge round."""
        return sum(left > 0 for left in self.left(ledger, cluster)) >= self.least

    def edge(self, number: int, ledger: PrivacyLedger, randomness: Randomness) -> EdgePrivacy:
        """Return what an edge heeds."""
        if self.unit == "sample":
            return EdgePrivacy(None, lambda clients: self.left(ledger, clients))
        if self.at_cloud:
            return EdgePrivacy(1, lambda clients: self.left(ledger, clients))
        draw = None if self.sampling == 1 else joining(self.sampling, randomness, number)
        weight = max(1, round(self.divisors[number]))
        return EdgePrivacy(weight, lambda clients: self.left(ledger, clients), draw)

    def edge_sums(self, randomness: Randomness) -> PrivateRounds | None:
        """Return how edges add up their clients; None if only samples are private, inside the clients."""
        if self.unit == "sample":
            return None
        noise = 0.0 if self.at_cloud else self.noise
        return PrivateRounds(PrivateSum(self.clip, noise, randomness), self.divisors)

    def cloud_sum(
        self, randomness: Randomness
    ) -> Callable[[Mapping[int, Weights], Weights, int], Weights] | None:
        """Return how the cloud of a flat synchronous method adds up the clients of a round."""
        if not self.at_cloud:
            return None
        private, divisor = PrivateSum(self.clip, self.noise, randomness), self.cloud_divisor

        def combine(models: Mapping[int, Weights], base: Weights, index: int) -> Weights:
            return private.combine(models, base, divisor, "cloud", index)

        return combine

    def report(self, ledger: PrivacyLedger) -> dict[str, Any]:
        """Return the plan and what was spent, for `result.json`."""
        return {
            "unit": self.unit,
            "clip": self.clip,
            "noise": self.noise,
            "planned_rounds": self.rounds,
            **ledger.report(),
            "not_covered": list(self.notes),
        }

    def _step_of(self, client: int) -> tuple[str, int]:
        return _step_at(self.rates[client]), self.steps[client]


class Spending:
    """The ledger of a simulated run: it charges rounds, and knows when nobody can pay any more."""

    def __init__(self, plan: PrivacyPlan) -> None:
        self.plan = plan
        self.ledger = plan.ledger()
        self._count_able()

    def edge(self, number: int, seed: int) -> EdgePrivacy:
        """Return what a simulated edge heeds."""
        return self.plan.edge(number, self.ledger, SeededRandomness(seed))

    @property
    def nobody_left(self) -> bool:
        """Return whether too few clients can pay for another round."""
        return self.able < self.plan.least

    def left(self, clients: Sequence[int]) -> Sequence[int]:
        """Return how many more rounds each of some clients can pay for."""
        return self.plan.left(self.ledger, clients)

    def used(self) -> float:
        """Return the mean share of the budget that clients have used, below 1 while one can pay."""
        return 1.0 if self.nobody_left else min(0.999, self.rounds / max(1, self.total))

    def round_over(
        self, able: Sequence[int], asked: Sequence[int], reporting: Sequence[int], *, opened: bool
    ) -> None:
        """Charge an edge round. Where only samples are private, the edge saw the model of everybody it asked.

        Where clients are, nothing becomes known of a sum that stays closed, and a flat cloud adds up itself.
        """
        if self.plan.unit == "sample":
            self.charge(able, asked)
        elif opened and not self.plan.at_cloud:
            self.charge(able, reporting)

    def charge(self, members: Sequence[int], joined: Sequence[int]) -> None:
        """Charge a round whose sum is opened."""
        self.plan.charge(self.ledger, members, joined)
        paying = joined if self.plan.sampling == 1 else members
        self.rounds += len(paying)
        if self.plan.budget.epsilon is not None:
            self.able -= sum(left == 0 for left in self.plan.left(self.ledger, paying))

    def report(self) -> dict[str, Any]:
        """Return the plan and what was spent, for `result.json`."""
        return self.plan.report(self.ledger)

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state."""
        return {"ledger": self.ledger.snapshot(), "rounds": self.rounds}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        self.ledger.restore(state["ledger"])
        self.plan.charge_histograms(self.ledger)  # older ones have none
        self._count_able()
        self.rounds = state["rounds"]

    def _count_able(self) -> None:
        left = self.plan.left(self.ledger, range(self.plan.clients))
        self.able = sum(rounds > 0 for rounds in left)
        self.rounds = 0
        self.total = sum(self.plan.left(self.plan.ledger(), range(self.plan.clients)))


def joining(
    probability: float, randomness: Randomness, number: int
) -> Callable[[int, int, Sequence[int]], tuple[int, ...]]:
    """Return the Poisson selection of an edge: each client joins a round by itself with a probability."""

    def draw(lease_id: int, index: int, clients: Sequence[int]) -> tuple[int, ...]:
        words = randomness.stream("joins", number, lease_id, index).words(len(clients))
        joins = (words >> np.uint64(11)) * 2.0**-53 < probability
        return tuple(client for client, joined in zip(clients, joins.tolist(), strict=True) if joined)

    return draw


def _step_at(rate: float) -> str:
    return f"local step at rate {rate:.9g}"  # clients with other rates need other names


def _grouped(
    clients: Sequence[int], key: Callable[[int], tuple[str, int]]
) -> dict[tuple[str, int], list[int]]:
    groups: dict[tuple[str, int], list[int]] = {}
    for client in clients:
        groups.setdefault(key(client), []).append(client)
    return groups
