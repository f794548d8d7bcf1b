"""A measured federation as arrays: links, speeds, samples, labels, association and availability."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from .availability import Availability
from .tables import MOST_CELLS, Floats, Ints, shown

__all__ = ["ARRAYS", "FederationData", "Origin"]

Mask = npt.NDArray[np.bool_]

MOST = 1e12  # milliseconds, samples, megabits per second


@dataclass(frozen=True)
class Origin:
    """Where an array comes from: its name in a sentence, and the place of an element of it."""

    name: str
    place: Callable[..., str]


@dataclass(frozen=True)
class Kind:
    """What an array may hold: its axes, and its least value."""

    axes: tuple[str, ...]
    wanted: str
    least: float
    whole: bool = False
    open: bool = False  # the least value itself is not allowed
    unreachable: float | None = None  # allowed besides, for an edge that does not reach a client


_PAIRS, _CLIENT, _EDGE = ("client", "edge"), ("client",), ("edge",)
ARRAYS = {
    "latency_ms": Kind(_PAIRS, "milliseconds >= 0", 0.0, unreachable=np.inf),
    "bandwidth_mbps": Kind(_PAIRS, "megabits per second >= 0", 0.0, unreachable=0.0),
    "send_ms": Kind(_PAIRS, "milliseconds > 0", 0.0, open=True, unreachable=np.inf),
    "f_ghz": Kind(_CLIENT, "GHz > 0", 0.0, open=True),
    "step_ms": Kind(_CLIENT, "milliseconds > 0", 0.0, open=True),
    "samples": Kind(_CLIENT, "a whole number >= 1", 1.0, whole=True),
    "labels": Kind(("client", "class"), "a whole number >= 0", 0.0, whole=True),
    "association": Kind(_CLIENT, "the number of an edge", 0.0, whole=True),
    "wan_rtt_ms": Kind(_EDGE, "milliseconds >= 0", 0.0),
    "wan_bandwidth_mbps": Kind(_EDGE, "megabits per second > 0", 0.0, open=True),
}
"""Every array by its name, which is also its name in `federation.npz`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FederationData:
    """What is known of a federation. Each array is optional; what is not given is drawn.

    `latency_ms`, `bandwidth_mbps` and `send_ms` are `[clients, edges]`. Sending a model takes `latency_ms`
    and its bits over `bandwidth_mbps`; or all of it is `send_ms`. An infinite time, or a bandwidth of 0, is
    an edge that does not reach the client. Of every client: its processor's `f_ghz` or its `step_ms`, the
    time of one local step; `samples`, `labels` (`[clients, classes]`, counts), and `association`, its edge.
    Of every edge: `wan_rtt_ms` and `wan_bandwidth_mbps` of its way to the cloud. `availability` is a list of
    `ClientEvent`s. `origins` says where each array comes from, for errors.

    >>> FederationData(latency_ms=[[5, 20], [30, np.inf], [8, 9]]).clients
    3
    """

    latency_ms: Floats | None = None
    bandwidth_mbps: Floats | None = None
    send_ms: Floats | None = None
    f_ghz: Floats | None = None
    step_ms: Floats | None = None
    samples: Ints | None = None
    labels: Ints | None = None
    association: Ints | None = None
    wan_rtt_ms: Floats | None = None
    wan_bandwidth_mbps: Floats | None = None
    availability: Availability | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, kind in ARRAYS.items():
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, _checked(values, kind, self._origin(name)))
        rows = self.availability
        if rows is not None and not isinstance(rows, Availability):
            if isinstance(rows, str) or not isinstance(rows, Sequence):
                raise DataError(f"availability must be a list of events, got {type(rows).__name__}.")
            object.__setattr__(self, "availability", Availability.of(rows))
        self._check_pairs()
        self._check_reach()
        self._check_counts()
        self._check_association()

    @property
    def clients(self) -> int | None:
        """Return the number of clients, None if no array tells it."""
        return self._size("client")

    @property
    def edges(self) -> int | None:
        """Return the number of edges, None if no array tells it."""
        edges = self._size("edge")
        if edges is None and self.association is not None:
            return int(self.association.max()) + 1
        return edges

    @cached_property
    def held(self) -> Ints | None:
        """Return the samples of every client: given, or the sum of its labels."""
        if self.samples is None and self.labels is not None:
            held: Ints = self.labels.sum(axis=1)
            return held
        return self.samples

    @cached_property
    def reachable(self) -> Mask | None:
        """Return which edge reaches which client, `[clients, edges]`; None if all reach all."""
        mask: Mask | None = None
        for name in ("latency_ms", "bandwidth_mbps", "send_ms"):
            values = getattr(self, name)
            if values is not None:
                reached = values != ARRAYS[name].unreachable
                mask = reached if mask is None else mask & reached
        return None if mask is None or mask.all() else mask

    def check(self, clients: int, edges: int) -> None:
        """Raise if this is not a federation of so many clients and edges."""
        for axis, has, wanted in (("client", self.clients, clients), ("edge", self.edges, edges)):
            if has is not None and has != wanted:
                raise DataError(
                    f"federation.{axis}s is {wanted}, and {self._teller(axis)} has {has} {axis}s; leave "
                    f"federation.{axis}s out, or correct one of them."
                )
        if self.availability is not None:
            self.availability.check(clients, edges, self.reachable)

    @cached_property
    def digest(self) -> str:
        """Return a hash of the contents."""
        hasher = hashlib.sha256()
        for name in (*ARRAYS, *(f"availability.{each.name}" for each in fields(Availability)[:-1])):
            holder = self.availability if name.startswith("availability.") else self
            values = None if holder is None else getattr(holder, name.removeprefix("availability."))
            if values is not None:
                hasher.update(f"{name} {values.dtype.str} {values.shape};".encode())
                hasher.update(np.ascontiguousarray(values).data)
        return hasher.hexdigest()

    def origin(self, name: str) -> str:
        """Return the file or argument that an array comes from."""
        return self._origin(name).name

    def _origin(self, name: str) -> Origin:
        plain = Origin(name, lambda *index: f"{name}[{', '.join(map(str, index))}]")
        return self.origins.get(name, plain)

    def _size(self, axis: str) -> int | None:
        return next((count for _, count in self._counts(axis)), None)

    def _counts(self, axis: str) -> list[tuple[str, int]]:
        """Return the arrays that tell the length of an axis, and the length."""
        found = []
        for name, kind in ARRAYS.items():
            values = getattr(self, name)
            if values is not None and axis in kind.axes:
                found.append((name, int(values.shape[kind.axes.index(axis)])))
        return found

    def _teller(self, axis: str) -> str:
        return self.origin(next((name for name, _ in self._counts(axis)), "association"))

    def _check_pairs(self) -> None:
        """Refuse two accounts of one thing, and arrays of different lengths."""
        for one, other in (("send_ms", "latency_ms"), ("send_ms", "bandwidth_mbps"), ("f_ghz", "step_ms")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise DataError(
                    f"{self.origin(one)} and {self.origin(other)}: {one} and {other} both say how long the "
                    "same thing takes. Leave one of them out."
                )
        for axis in ("client", "edge"):
            for (first, count), (second, another) in pairwise(self._counts(axis)):
                if count != another:
                    raise DataError(
                        f"{self.origin(first)} has {count} {axis}s ({first}), and {self.origin(second)} has "
                        f"{another} ({second}). Give the same {axis}s in both."
                    )

    def _check_reach(self) -> None:
        if self.reachable is None:
            return
        where = " and ".join(
            self.origin(name)
            for name in ("latency_ms", "bandwidth_mbps", "send_ms")
            if getattr(self, name) is not None
        )
        for axis, what, other in ((1, "client", "edge"), (0, "edge", "client")):
            alone = np.flatnonzero(~self.reachable.any(axis=axis))
            if len(alone):
                raise DataError(
                    f"{where}: {what} {alone[0]} is reached by no {other}. Let one reach it, or leave it out."
                )

    def _check_counts(self) -> None:
        """Refuse clients without samples, and sample counts that are not the sums of the labels."""
        if self.labels is None:
            return
        sums = self.labels.sum(axis=1)
        if self.samples is not None and (sums != self.samples).any():
            client = int(np.flatnonzero(sums != self.samples)[0])
            raise DataError(
                f"{self._origin('samples').place(client)}: client {client} has {self.samples[client]} "
                f"samples, and {self.origin('labels')} has {sums[client]} labels of it. Make them equal, or "
                "leave samples out."
            )
        if not sums.all():
            raise DataError(
                f"{self._origin('labels').place(int(np.flatnonzero(sums == 0)[0]), 0)}: the client has no "
                "samples. Give it at least one label."
            )

    def _check_association(self) -> None:
        if self.association is None:
            return
        edges, place = self.edges or 0, self._origin("association").place
        unknown = np.flatnonzero(self.association >= edges)
        if len(unknown):
            client = int(unknown[0])
            raise DataError(
                f"{place(client)}: there is no edge {self.association[client]}; {self._teller('edge')} has "
                f"{edges} edges, numbered from 0."
            )
        if self.reachable is not None:
            reached = self.reachable[np.arange(len(self.association)), self.association]
            if not reached.all():
                client = int(np.flatnonzero(~reached)[0])
                raise DataError(
                    f"{place(client)}: edge {self.association[client]} does not reach client {client}. Give "
                    "the client another edge, or a link to this one."
                )
        missing = np.flatnonzero(np.bincount(self.association, minlength=edges) == 0)
        if len(missing):
            raise DataError(f"{self.origin('association')}: edge {missing[0]} has no client. Give it one.")


def _checked(values: Any, kind: Kind, origin: Origin) -> Any:
    """Return values as a read-only array of the kind, or raise with the place of a wrong one."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{origin.name}: its rows differ in length. Give all rows the same.") from None
    if array.dtype.kind not in "iuf":
        raise DataError(f"{origin.name}: it must hold numbers, got {array.dtype}.")
    if array.ndim != len(kind.axes) or not array.size:
        shape = ", ".join({"class": "classes"}.get(axis, f"{axis}s") for axis in kind.axes)
        raise DataError(f"{origin.name}: it must have the shape ({shape}), got {array.shape}.")
    if array.size > MOST_CELLS:
        raise DataError(f"{origin.name}: it has {array.size:,} numbers, and at most {MOST_CELLS:,} are read.")
    numbers = np.ascontiguousarray(array, np.float64)
    good = (numbers > kind.least if kind.open else numbers >= kind.least) & (numbers <= MOST)
    if kind.whole:
        good &= numbers == np.floor(numbers)
    if kind.unreachable is not None:
        good |= numbers == kind.unreachable
    if not good.all():
        index = tuple(int(i) for i in np.argwhere(~good)[0])
        got = "NaN" if np.isnan(numbers[index]) else shown(numbers[index])
        raise DataError(f"{origin.place(*index)}: it must be {kind.wanted}, got {got}.")
    result = numbers.astype(np.int64) if kind.whole else numbers.view()
    result.flags.writeable = False
    return result
