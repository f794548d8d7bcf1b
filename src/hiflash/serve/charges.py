"""The privacy ledger of a deployed edge: durable before a sum is opened, and told to the cloud."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hiflash.core.edge import Edge, EdgePrivacy
from hiflash.core.state import record
from hiflash.errors import ConfigError, ProtocolError, RunError
from hiflash.messages import ClientUpdate, Weights
from hiflash.privacy.accounting import Mechanism
from hiflash.privacy.ledger import Entry, PrivacyLedger
from hiflash.privacy.randomness import Randomness, SystemRandomness
from hiflash.privacy.sums.noised import NoisedSum
from hiflash.serve.wire import Malformed
from hiflash.sim.private import PrivacyPlan
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.store.crash import crash_point

__all__ = ["Charges", "EdgeCharges", "open_charges", "read_charges", "total"]

MOST_BYTES = 1 << 20
MOST = 2**31


class EdgeCharges:
    """Charges the rounds of one edge, and opens their sums afterwards.

    The ledger is in the file `path`, and on disk before a sum is opened. It outlives runs: whoever starts
    another one with the same file goes on with what is left. A stream that repeats is refused: whoever knows
    its seed could subtract the noise.
    """

    def __init__(
        self, plan: PrivacyPlan, number: int, path: Path, randomness: Randomness | None = None
    ) -> None:
        self.randomness = randomness or SystemRandomness()
        if self.randomness.repeats:
            raise ConfigError("a deployed edge draws its noise from the operating system, not from a seed")
        sums = plan.edge_sums(self.randomness)
        if sums is None:
            raise ConfigError('dp.unit = "sample" cannot be deployed; use "client"')
        self.plan, self.number, self.path, self.sums = plan, number, path, sums
        self.ledger = plan.ledger()
        self.edge: Edge | None = None
        if path.exists():
            self.ledger.restore(_apart(load_checkpoint(path), self.ledger))
            plan.charge_histograms(self.ledger)  # an earlier run may have been without
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

    def body(self, cluster: Iterable[int]) -> bytes:
        """Return what the cloud is told: the counts of every client, and whether enough can pay."""
        clients = sorted(cluster)
        counts = {name: self.ledger.counts[name][clients].tolist() for name in self.plan.entries}
        able = self.plan.can_go_on(self.ledger, clients)
        return json.dumps({"clients": clients, "counts": counts, "able": able}).encode()

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
    """What an edge has told of its ledger: counts by entry and client, and whether enough can still pay."""

    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    able: bool = True


def read_charges(body: bytes, cluster: Sequence[int], names: Iterable[str], known: Charges) -> Charges:
    """Return what an edge says of its ledger; counts that fall are malformed, like all others."""
    if len(body) > MOST_BYTES:
        raise Malformed(f"{len(body)} bytes of charges, at most {MOST_BYTES} are allowed")
    try:
        said = json.loads(body)
        clients, able, told = said["clients"], said["able"], said["counts"]
        found = {name: dict(zip(clients, told[name], strict=True)) for name in names}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Malformed(f"charges that cannot be read: {type(error).__name__}") from None
    if type(able) is not bool or sorted(cluster) != clients:
        raise Malformed("charges of other clients than those of the cluster")
    for name, counts in found.items():
        for client, count in counts.items():
            if type(count) is not int or not 0 <= count < MOST:
                raise Malformed(f"a count of charges that is none: {str(count)[:20]}")
            before = known.counts.get(name, {}).get(client, 0)
            if count < before:
                raise Malformed(
                    f"client {client} was charged {before} times for {name}, and the ledger of its edge has "
                    f"{count}: that file is lost or old, and nobody knows what was spent"
                )
    return Charges(found, able)


def open_charges(plan: PrivacyPlan | None, number: int, folder: Path) -> EdgeCharges | None:
    """Return the ledger of an edge in a folder, None without differential privacy."""
    if plan is None:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"edge-{number}-privacy.safetensors"
    try:
        return EdgeCharges(plan, number, path)
    except ProtocolError as error:
        raise RunError(f"{path} is the privacy ledger of another federation: {error}") from None


def total(plan: PrivacyPlan, told: Iterable[Charges]) -> PrivacyLedger:
    """Return one ledger of what all edges have told."""
    ledger = plan.ledger()
    for charges in told:
        for name, counts in charges.counts.items():
            for client, count in counts.items():
                ledger.counts[name][client] += count
    return ledger


def _apart(state: dict[str, Any], ledger: PrivacyLedger) -> dict[str, Any]:
    """Return a saved ledger whose entries have names of their own where an earlier run had other noise."""
    names = {}
    for name, plain in state["entries"].items():
        mechanism = Mechanism(plain["noise"], plain["kind"], plain["sampling"])
        entry = Entry(mechanism, tuple(plain["seen_by"]), plain.get("unit", ledger.unit))
        names[name] = (
            name
            if ledger.entries.get(name, entry) == entry
            else f"{name} (noise {mechanism.noise:g}, rate {mechanism.sampling:g})"
        )
    return {
        kind: {names[name]: value for name, value in state[kind].items()} for kind in ("entries", "counts")
    }
