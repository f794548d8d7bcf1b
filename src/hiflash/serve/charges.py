"""The privacy ledger of a deployed edge: durable before a sum is opened, and told to the cloud."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
LEAST_NOISE = 1e-6
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
        self._check_entries()
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
        names = self._told()
        told = {
            "clients": self.cluster,
            "entries": {name: self.ledger.entries[name].plain() for name in names},
            "counts": {name: self.ledger.counts[name][self.cluster].tolist() for name in names},
            "able": self.plan.can_go_on(self.ledger, self.cluster),
        }
        return json.dumps(told).encode()

    def _check_cluster(self) -> None:
        """Raise if clients have spent something here and belong to other edges now, which do not know it."""
        gone = sorted(_spent(self.ledger.counts) - set(self.cluster))
        if gone:
            raise _moved(self.path, gone)

    def _told(self) -> list[str]:
        """Return the entries that the cloud is told: those of the run, and others that were charged."""
        own = self.plan.blank_ledger().entries
        return [name for name, counts in self.ledger.counts.items() if name in own or counts.any()]

    def _check_entries(self) -> None:
        if len(self._told()) > MOST_ENTRIES:
            raise RunError(
                f"{self.path} has charges for {len(self._told())} kinds of noise, and the cloud takes "
                f"{MOST_ENTRIES}; use the noise of an earlier run"
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
        ours = plan.blank_ledger().entries
        older = "entries" not in said  # a journal from before they were told
        plains = {name: ours[name].plain() for name in told} if older else said["entries"]
        entries = {str(name): _entry(plain) for name, plain in plains.items()}
        found = {name: dict(zip(clients, told[name], strict=True)) for name in entries}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"charges that cannot be read: {type(error).__name__}") from None
    whole = all(type(client) is int for client in clients)
    if type(able) is not bool or not whole or sorted(cluster) != clients:
        raise Malformed("charges of other clients than those of the cluster")
    if any(entries.get(name) != Entry(*entry) for name, entry in plan.entries.items()):
        raise Malformed("charges for other noise than that of the run")
    if len(entries) > MOST_ENTRIES or any(
        not _can_be_counted(entry) for name, entry in entries.items() if ours.get(name) != entry
    ):
        raise Malformed("charges for noise that nobody can account for")
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
    for other in sorted(folder.glob("edge-*-privacy.safetensors")):
        spent = sorted(_spent(load_checkpoint(other)["counts"]) & set(cluster)) if other != path else []
        if spent:
            raise _moved(other, spent)
    try:
        return EdgeCharges(plan, number, cluster, path)
    except ProtocolError as error:
        raise RunError(f"{path} is the privacy ledger of another federation: {error}") from None


def total(plan: PrivacyPlan, told: Iterable[Charges]) -> PrivacyLedger:
    """Return one ledger of what all edges have told; a histogram counts before its edge has told of it."""
    ledger = plan.blank_ledger()
    ours = {name: entry.plain() for name, entry in ledger.entries.items()}
    for charges in told:
        counts = {name: np.zeros(plan.clients, np.int64) for name in charges.counts}
        for name, each in charges.counts.items():
            counts[name][list(each)] = list(each.values())
        entries = {name: charges.entries.get(name) or ours[name] for name in counts}
        ledger.take_up({"entries": entries, "counts": counts})
    if HISTOGRAM in ledger.counts:
        ledger.counts[HISTOGRAM] = np.maximum(ledger.counts[HISTOGRAM], 1)
    return ledger


def _entry(plain: Mapping[str, Any]) -> Entry:
    """Return an entry from the wire, or raise."""
    entry = Entry.read(plain)
    numbers = (entry.mechanism.noise, entry.mechanism.sampling)
    if not all(type(number) is float and math.isfinite(number) for number in numbers):
        raise ValueError("numbers of an entry that are none")
    return entry


def _can_be_counted(entry: Entry) -> bool:
    """Return whether the accountant knows what an entry of an earlier run costs."""
    mechanism = entry.mechanism
    known = mechanism.kind == "gaussian" or (mechanism.kind == "laplace" and mechanism.sampling == 1)
    seen = bool(entry.seen_by) and set(entry.seen_by) <= set(EVERYBODY)
    sizes = LEAST_NOISE <= mechanism.noise <= 1 / LEAST_NOISE and 0 < mechanism.sampling <= 1
    return known and seen and sizes and entry.unit in ("client", "sample")


def _spent(counts: Mapping[str, npt.ArrayLike]) -> set[int]:
    """Return the clients that were charged for rounds."""
    rounds = [np.asarray(each) for name, each in counts.items() if not name.startswith(HISTOGRAM)]
    return set(np.flatnonzero(sum(rounds)).tolist()) if rounds else set()


def _moved(path: Path, clients: Sequence[int]) -> RunError:
    names = ", ".join(map(str, clients[:5])) + (", ..." if len(clients) > 5 else "")
    return RunError(
        f"{path} has charges of clients that have another edge now ({names}), which would give them a new "
        "budget. Give all edges the association of the earlier run (federation.files), or begin with other "
        "folders if nobody has its models"
    )
