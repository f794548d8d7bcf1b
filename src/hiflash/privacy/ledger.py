"""The ledger of the privacy budget: what was spent, on what, by which client.

An entry is a mechanism under a name, and the ledger counts how often each client was charged for it. Charges
of one client compose; clients do not. Nor do charges of different units: an epsilon for a sample and one for
a whole client are different promises, and stand side by side. Counts decide everything, in whole numbers, so
the ledger does not depend on the order of charges, and 100,000 clients cost an addition. Only epsilons need
the accountant, once for every different history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.errors import BudgetError, ProtocolError
from hiflash.privacy.accounting import Mechanism, epsilon

__all__ = ["EVERYBODY", "MODELS", "PARTICIPATION", "Budget", "Entry", "PrivacyLedger"]

MODELS = "models"
"""Whoever sees the models, and nothing else: clients, and all users of the model."""
PARTICIPATION = "participation"
"""Whoever also sees who takes part in which round: the edge and the cloud."""
EVERYBODY = (MODELS, PARTICIPATION)
UNLIMITED = 2**31 - 1

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Budget:
    """The most that a client may lose against those who see the models; None is no limit."""

    epsilon: float | None
    delta: float

    @property
    def text(self) -> str:
        """Return the budget in words."""
        limit = "none" if self.epsilon is None else f"{self.epsilon:g}"
        return f"privacy budget epsilon {limit} at delta {self.delta:g}"


@dataclass(frozen=True)
class Entry:
    """A mechanism, those who see what it releases, and what it protects."""

    mechanism: Mechanism
    seen_by: tuple[str, ...] = EVERYBODY
    unit: str = "client"

    @classmethod
    def read(cls, plain: Mapping[str, Any], unit: str = "client") -> Entry:
        """Return an entry from plain data; those of older ledgers have no unit."""
        mechanism = Mechanism(plain["noise"], plain["kind"], plain["sampling"])
        return cls(mechanism, tuple(plain["seen_by"]), plain.get("unit", unit))

    def plain(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        return {**asdict(self.mechanism), "seen_by": list(self.seen_by), "unit": self.unit}


class PrivacyLedger:
    """Counts charges by entry and client, and refuses one that would exceed the budget.

    The budget is one of a `unit`; entries of other units do not touch it.
    """

    def __init__(self, budget: Budget, clients: int, unit: str = "client") -> None:
        self.budget = budget
        self.unit = unit
        self.clients = clients
        self.entries: dict[str, Entry] = {}
        self.counts: dict[str, Ints] = {}
        self._limits: dict[tuple[str, tuple[tuple[str, int], ...]], int] = {}

    def declare(
        self,
        name: str,
        mechanism: Mechanism,
        seen_by: tuple[str, ...] = EVERYBODY,
        unit: str | None = None,
    ) -> None:
        """Add an entry, unless it is there already; a name stands for one mechanism for ever.

        It protects a `unit`, that of the budget by default.
        """
        entry = Entry(mechanism, seen_by, unit or self.unit)
        known = self.entries.setdefault(name, entry)
        if known != entry:
            raise ProtocolError(
                f"the privacy ledger has {name} as {known.mechanism}, and cannot take {mechanism} under the "
                "same name; use another name"
            )
        self.counts.setdefault(name, np.zeros(self.clients, np.int64))

    def charge(self, charges: Mapping[str, Iterable[int]], times: int = 1) -> None:
        """Charge clients for entries, all or none: one that cannot pay is an error, and nothing changes.

        Charge before what is charged for becomes known: a crash in between then costs budget, not privacy.
        """
        before = {name: self.counts[name].copy() for name in charges if name in self.counts}
        try:
            for name, clients in charges.items():
                self._charge(name, np.fromiter(clients, np.int64), times)
        except BaseException:
            self.counts |= before
            raise

    def left(self, name: str, clients: Sequence[int] | Ints | None = None) -> Ints:
        """Return how often each client (or each of some) can still be charged for an entry."""
        chosen = np.arange(self.clients) if clients is None else np.asarray(clients, np.int64)
        entry = self.entries[name]
        if self.budget.epsilon is None or MODELS not in entry.seen_by or entry.unit != self.unit:
            return np.full(len(chosen), UNLIMITED, np.int64)
        others = [other for other in self._entries_for(MODELS) if other != name and self.counts[other].any()]
        if not others:
            limits: Ints | int = self._limit(name, ())
        else:
            histories, which = np.unique(
                np.stack([self.counts[other][chosen] for other in others], axis=1),
                axis=0,
                return_inverse=True,
            )
            each = [self._limit(name, tuple(zip(others, map(int, row), strict=True))) for row in histories]
            limits = np.array(each, np.int64)[which.reshape(-1)]
        left: Ints = limits - self.counts[name][chosen]
        return left

    def epsilon(self, client: int, viewer: str = MODELS) -> float:
        """Return what a client has lost so far, against one who sees the models or also participation."""
        names = self._entries_for(viewer)
        return self._epsilon(tuple((name, int(self.counts[name][client])) for name in names))

    def report(self) -> dict[str, Any]:
        """Return the ledger for people and for `result.json`: totals, entries, and clients by history."""
        names = list(self.entries)
        counts = np.stack([self.counts[name] for name in names], axis=1)
        histories, sizes = np.unique(counts, axis=0, return_counts=True)
        groups = []
        for row, size in zip(histories.tolist(), sizes.tolist(), strict=True):
            spent = dict(zip(names, row, strict=True))
            found = {viewer: self._epsilon_of(spent, viewer) for viewer in EVERYBODY}
            groups.append({"clients": size, "charges": spent, "epsilon": found})
        most = {viewer: max(group["epsilon"][viewer] for group in groups) for viewer in EVERYBODY}
        others = sorted({entry.unit for entry in self.entries.values()} - {self.unit})
        return {
            "epsilon": most[MODELS],
            "epsilon_participation": most[PARTICIPATION],
            "delta": self.budget.delta,
            "budget": self.budget.epsilon,
            "charges": int(counts.sum()),
            "entries": {name: entry.plain() for name, entry in self.entries.items()},
            "groups": groups,
            "other_units": {unit: self._of_unit(unit, groups) for unit in others},
        }

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state, as plain data and arrays."""
        return {
            "entries": {name: entry.plain() for name, entry in self.entries.items()},
            "counts": {name: counts.copy() for name, counts in self.counts.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot; entries that were declared since must be the same."""
        for name, plain in state["entries"].items():
            entry = Entry.read(plain, self.unit)
            self.declare(name, entry.mechanism, entry.seen_by, entry.unit)
        for name in self.entries:
            saved = state["counts"].get(name)
            self.counts[name] = np.zeros(self.clients, np.int64) if saved is None else self._checked(saved)

    def take_up(self, state: Mapping[str, Any]) -> None:
        """Add the charges of another ledger.

        The same mechanism for the same thing is one entry. Another one under the same name, such as the noise
        of an earlier run, gets a name of its own.
        """
        for name, plain in state["entries"].items():
            entry, counts = Entry.read(plain, self.unit), self._checked(state["counts"][name])
            alike = (each for each, known in self.entries.items() if known == entry)
            own = next((each for each in alike if _thing(each) == _thing(name)), None)
            if own is None:
                own = self._free_name(name, entry.mechanism)
                self.declare(own, entry.mechanism, entry.seen_by, entry.unit)
            self.counts[own] = self.counts[own] + counts

    def _checked(self, saved: npt.ArrayLike) -> Ints:
        counts = np.array(saved, np.int64)
        if counts.shape != (self.clients,) or (counts < 0).any():
            raise ProtocolError(f"the privacy ledger has {counts.shape} counts for {self.clients} clients")
        return counts

    def _free_name(self, name: str, mechanism: Mechanism) -> str:
        if name not in self.entries:
            return name
        words = f"{_thing(name)} (noise {mechanism.noise:g}, rate {mechanism.sampling:g})"
        others = (f"{words} {number}" for number in count(2))
        return next(each for each in chain([words], others) if each not in self.entries)

    def _charge(self, name: str, clients: Ints, times: int) -> None:
        if name not in self.entries:
            raise ProtocolError(f"the privacy ledger has no entry {name}; declare it first")
        if times < 1 or len(np.unique(clients)) != len(clients):
            raise ProtocolError(
                f"clients are charged once each for {name}, at least 1 time, got {times}; use `times`"
            )
        poor = clients[self.left(name, clients) < times]
        if poor.size:
            raise BudgetError(self._refusal(name, int(poor[0])))
        self.counts[name][clients] += times

    def _entries_for(self, viewer: str, unit: str | None = None) -> list[str]:
        wanted = unit or self.unit
        return [
            name for name, entry in self.entries.items() if viewer in entry.seen_by and entry.unit == wanted
        ]

    def _epsilon_of(self, spent: Mapping[str, int], viewer: str, unit: str | None = None) -> float:
        return self._epsilon(tuple((name, spent[name]) for name in self._entries_for(viewer, unit)))

    def _of_unit(self, unit: str, groups: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return the largest loss of any client in another unit."""
        most = {
            viewer: max(self._epsilon_of(group["charges"], viewer, unit) for group in groups)
            for viewer in EVERYBODY
        }
        return {"epsilon": most[MODELS], "epsilon_participation": most[PARTICIPATION]}

    def _epsilon(self, history: tuple[tuple[str, int], ...]) -> float:
        return epsilon([(self.entries[name].mechanism, count) for name, count in history], self.budget.delta)

    def _limit(self, name: str, others: tuple[tuple[str, int], ...]) -> int:
        """Return how often a client with this history of other entries can be charged for an entry."""
        key = (name, others)
        if key not in self._limits:
            self._limits[key] = self._search(name, others)
        return self._limits[key]

    def _search(self, name: str, others: tuple[tuple[str, int], ...]) -> int:
        most = self.budget.epsilon
        if most is None:
            return UNLIMITED

        def fits(count: int) -> bool:
            return self._epsilon((*others, (name, count))) <= most

        low, high = 0, 1
        while high < UNLIMITED and fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _refusal(self, name: str, client: int) -> str:
        return (
            f"client {client} has spent epsilon {self.epsilon(client):.4g} of {self.budget.epsilon:g} at "
            f"delta {self.budget.delta:g}, and another {name} would exceed that; raise dp.epsilon or "
            "dp.noise, or plan fewer rounds"
        )


def _thing(name: str) -> str:
    """Return what an entry is for: its name without the noise of an earlier run."""
    return name.split(" (")[0]
