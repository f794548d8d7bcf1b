"""The privacy ledger of a deployed edge: durable before a sum is opened, and told to the cloud."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hiflash.core.edge import Edge, EdgePrivacy
from hiflash.core.state import record
from hiflash.errors import ConfigError, ProtocolError, RunError
from hiflash.messages import ClientUpdate, Weights
from hiflash.privacy.ledger import EVERYBODY, Entry, PrivacyLedger
from hiflash.privacy.randomness import Randomness, SystemRandomness, require_system
from hiflash.privacy.sums.noised import NoisedSum
from hiflash.serve.wire import Malformed
from hiflash.sim.private import PrivacyPlan
from hiflash.sim.sent_histograms import HISTOGRAM
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.store.crash import crash_point

__all__ = ["Charges", "EdgeCharges", "open_charges", "read_charges", "total"]

MOST_BYTES = 1 << 20
MOST = 2**31
MOST_ENTRIES = 20  # other noise in earlier runs; the accountant takes its time for each


class EdgeCharges:
    """Charges the rounds of one edge, and opens their sums afterwards.

    The ledger is in the file `path`, and on disk before a sum is opened. It outlives runs: whoever starts
    another one with the same file goes on with what is left. Only this edge counts what its clients spend, so
    it refuses a ledger with charges of clients that are not in its `cluster` any more.
    """

    def __init__(
        self,
        plan: PrivacyPlan,
        number: int,
        cluster: Iterable[int],
        path: Path,
        randomness: Randomness | None = None,
    ) -> None:
        self.randomness = require_system(randomness or SystemRandomness())
        sums = plan.edge_sums(self.randomness)
        if sums is None:
            raise ConfigError('dp.unit = "sample" cannot be deployed; use "client"')
        self.plan, self.number, self.path, self.sums = plan, number, path, sums
        self.cluster = sorted(map(int, cluster))
        self.ledger = plan.ledger(load_checkpoint(path) if path.exists() else None)
        self.edge: Edge | None = None
        self._check_cluster()
        save_checkpoint(path, self.ledger.snapshot())

    @property
    def privacy(self) -> EdgePrivacy:
        """Return what the edge heeds."""
        return self.plan.edge(self.number, self.ledger, self.randomness)

    def __call__(
        self, updates: Sequence[ClientUpdate], needed: int, base: Weights
    ) -> tuple[Weights, Sequence[int]] | None:
        """Charge a round and open its sum; None if too few clients have answered."""
        if self.plan.where == "clients":
            raise ProtocolError("models of single clients came to an edge that opens secure sums only")
        if len(updates) < needed:
            return None
        joined = sorted(update.client for update in updates)
        self.charge(joined)
        models = {update.client: update.weights for update in updates}
        return self.sums.sum.combine(models, base, self.divisor), joined

    @property
    def divisor(self) -> float:
        """Return the fixed divisor of this edge's sums."""
        return self.sums.divisors[self.number]

    def applied(self, summed: NoisedSum, base: Weights) -> Weights:
        """Return the model that an opened secure sum leads to from `base`."""
        return summed.applied(base, self.divisor)

    def charge(self, joined: Sequence[int]) -> None:
        """Charge the round under way for the clients in its sum, which may be opened afterwards."""
        edge = self.edge
        if edge is None or edge.grant is None:
            raise ProtocolError(f"edge {self.number} has no round to charge for")
        self._charge(edge.able(edge.grant.lease_id, edge.index), joined)

    def body(self) -> bytes:
        """Return what the cloud is told: the counts of every client, and whether enough can pay."""
        counts = {name: each[self.cluster].tolist() for name, each in self.ledger.counts.items()}
        told = {
            "clients": self.cluster,
            "entries": {name: entry.plain() for name, entry in self.ledger.entries.items()},
            "counts": counts,
            "able": self.plan.can_go_on(self.ledger, self.cluster),
        }
        return json.dumps(told).encode()

    def _check_cluster(self) -> None:
        """Raise if clients have spent something here and belong to other edges now, which do not know it."""
        spent = sum(counts for name, counts in self.ledger.counts.items() if not name.startswith(HISTOGRAM))
        gone = sorted(set(np.flatnonzero(spent).tolist()) - set(self.cluster))
        if gone:
            names = ", ".join(map(str, gone[:5])) + (", ..." if len(gone) > 5 else "")
            raise RunError(
                f"{self.path} has charges of clients that edge {self.number} does not have any more "
                f"({names}); their new edges would give them a new budget. Give all edges the association of "
                "the earlier run (federation.files), or begin with other folders if nobody has its models"
            )

    def _charge(self, members: Sequence[int], joined: Sequence[int]) -> None:
        before = self.ledger.snapshot()
        self.plan.charge(self.ledger, members, joined)
        try:
            save_checkpoint(self.path, self.ledger.snapshot())
        except BaseException:
            self.ledger.restore(before)  # nothing was opened
            raise
        crash_point("charge.saved")


@record
@dataclass(frozen=True, slots=True)
class Charges:
    """What an edge has told of its ledger, and whether enough of its clients can still pay.

    `counts` are by entry and client; `entries` say what was charged, as plain data.
    """

    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    able: bool = True
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_charges(body: bytes, cluster: Sequence[int], plan: PrivacyPlan, known: Charges) -> Charges:
    """Return what an edge says of its ledger; counts that fall are malformed, like all others."""
    if len(body) > MOST_BYTES:
        raise Malformed(f"{len(body)} bytes of charges, at most {MOST_BYTES} are allowed")
    try:
        said = json.loads(body)
        clients, able, told = said["clients"], said["able"], said["counts"]
        entries = {str(name): _entry(plain) for name, plain in said["entries"].items()}
        found = {name: dict(zip(clients, told[name], strict=True)) for name in entries}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"charges that cannot be read: {type(error).__name__}") from None
    if type(able) is not bool or sorted(cluster) != clients:
        raise Malformed("charges of other clients than those of the cluster")
    if len(entries) > MOST_ENTRIES or any(
        entries.get(name) != entry for name, entry in plan.blank_ledger().entries.items()
    ):
        raise Malformed("charges for other noise than that of the run")
    for counts in found.values():
        for count in counts.values():
            if type(count) is not int or not 0 <= count < MOST:
                raise Malformed(f"a count of charges that is none: {str(count)[:20]}")
    for name, told_before in known.counts.items():
        for client, before in told_before.items():
            count = found.get(name, {}).get(client, 0)
            if count < before:
                raise Malformed(
                    f"client {client} was charged {before} times for {name}, and the ledger of its edge has "
                    f"{count}: that file is lost or old, and nobody knows what was spent"
                )
    return Charges(found, able, {name: entry.plain() for name, entry in entries.items()})


def open_charges(
    plan: PrivacyPlan | None, number: int, cluster: Iterable[int], folder: Path
) -> EdgeCharges | None:
    """Return the ledger of an edge in a folder, None without differential privacy."""
    if plan is None:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"edge-{number}-privacy.safetensors"
    try:
        return EdgeCharges(plan, number, cluster, path)
    except ProtocolError as error:
        raise RunError(f"{path} is the privacy ledger of another federation: {error}") from None


def total(plan: PrivacyPlan, told: Iterable[Charges]) -> PrivacyLedger:
    """Return one ledger of what all edges have told; a histogram counts before its edge has told of it."""
    ledger = plan.blank_ledger()
    for charges in told:
        counts = {name: np.zeros(plan.clients, np.int64) for name in charges.entries}
        for name, each in charges.counts.items():
            counts[name][list(each)] = list(each.values())
        ledger.take_up({"entries": charges.entries, "counts": counts})
    if HISTOGRAM in ledger.counts:
        ledger.counts[HISTOGRAM] = np.maximum(ledger.counts[HISTOGRAM], 1)
    return ledger


def _entry(plain: Mapping[str, Any]) -> Entry:
    """Return an entry from the wire, or raise."""
    entry = Entry.read(plain)
    mechanism = entry.mechanism
    numbers = (mechanism.noise, mechanism.sampling)
    if not all(type(number) in (int, float) and 0 < number < math.inf for number in numbers):
        raise ValueError("no noise")
    if mechanism.kind not in ("gaussian", "laplace") or mechanism.sampling > 1:
        raise ValueError("no mechanism")
    if entry.unit not in ("client", "sample") or not set(entry.seen_by) <= set(EVERYBODY):
        raise ValueError("no entry")
    return entry
