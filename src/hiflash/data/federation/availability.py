"""When clients join, leave and move: a schedule from a file or from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from .tables import MOST_CELLS, Floats, Ints

__all__ = ["EVENTS", "Availability", "ClientEvent", "Place"]

EVENTS = ("join", "leave", "move")
COLUMNS = ("time_s", "client", "event", "edge", "send_ms")
MOST_S = MOST_MS = 1e12

Place = Callable[[int, str], str]
"""Says where the value of an event comes from: its index and the name of its column, in words."""


class ClientEvent(NamedTuple):
    """A client joins, leaves or moves at a virtual time.

    A move names the `edge` that the client belongs to from then on. A join may name it; otherwise the client
    goes to the edge where it adds least cost. `send_ms` is the time of sending a model to that edge from then
    on; without it, the link stays as it is.
    """

    time_s: float
    client: int
    event: str
    edge: int | None = None
    send_ms: float | None = None


def _index(index: int, column: str) -> str:
    return f"availability[{index}], {column}"


@dataclass(frozen=True, eq=False)
class Availability:
    """Events in the order of their times: `kind` is an index into `EVENTS`, no edge is -1, no time NaN."""

    time_s: Floats
    client: Ints
    kind: Ints
    edge: Ints
    send_ms: Floats
    place: Place = field(default=_index, repr=False)

    @classmethod
    def of(cls, events: Sequence[Any]) -> Availability:
        """Return the schedule of `ClientEvent`s, or of tuples with the same fields."""
        whole = []
        for index, event in enumerate(events):
            try:
                whole.append(ClientEvent(*event))
            except TypeError:
                raise DataError(
                    f"availability[{index}] must be (time_s, client, event), perhaps with edge and send_ms, "
                    f"got {event!r}."
                ) from None
        try:
            return cls.from_columns(
                np.array([event.time_s for event in whole], np.float64),
                np.array([event.client for event in whole], np.float64),
                [str(event.event) for event in whole],
                np.array([-1 if event.edge is None else event.edge for event in whole], np.float64),
                np.array([event.send_ms for event in whole], np.float64),  # None becomes NaN
            )
        except (TypeError, ValueError):
            raise DataError("availability must have numbers for time_s, client, edge and send_ms.") from None

    @classmethod
    def from_columns(
        cls,
        time_s: Floats,
        client: Floats,
        events: Sequence[str],
        edge: Floats,
        send_ms: Floats,
        place: Place = _index,
    ) -> Availability:
        """Return the schedule of these columns; each event by itself is checked, with `place` in errors."""
        kinds = np.array([EVENTS.index(event) if event in EVENTS else -1 for event in events], np.int64)
        whole = (client >= 0) & (client < MOST_CELLS) & (client == np.floor(client))
        named = (edge >= -1) & (edge < MOST_CELLS) & (edge == np.floor(edge))
        wants = (
            ("time_s", (time_s >= 0) & (time_s <= MOST_S), "a number of virtual seconds >= 0", time_s),
            ("client", whole, "the number of a client", client),
            ("event", kinds >= 0, "join, leave or move", events),
            ("edge", named, "the number of an edge, or nothing", edge),
            (
                "send_ms",
                np.isnan(send_ms) | (send_ms > 0) & (send_ms <= MOST_MS),
                "milliseconds > 0, or nothing",
                send_ms,
            ),
            ("edge", (kinds != 2) | (edge >= 0), "the edge that the client moves to", edge),
            ("edge", (kinds != 1) | (edge < 0), "nothing if a client leaves", edge),
            ("send_ms", np.isnan(send_ms) | (edge >= 0), "nothing without an edge", send_ms),
        )
        for name, good, wanted, values in wants:
            bad = np.flatnonzero(~good)
            if len(bad):
                row = int(bad[0])
                got = values[row]
                nothing = isinstance(got, float) and (np.isnan(got) or (name == "edge" and got == -1))
                got = "nothing" if nothing else got if isinstance(got, str) else f"{got:g}"
                raise DataError(f"{place(row, name)}: {name} must be {wanted}, got {got}.")
        order = np.argsort(time_s, kind="stable")
        return cls(
            time_s[order],
            client[order].astype(np.int64),
            kinds[order],
            edge[order].astype(np.int64),
            send_ms[order],
            lambda index, column: place(int(order[index]), column),
        )

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def absent(self) -> Ints:
        """Return the clients that are absent at the start: their first event is a join."""
        clients, first = np.unique(self.client, return_index=True)
        away: Ints = clients[self.kind[first] == EVENTS.index("join")]
        return away

    def check(self, clients: int, edges: int, reachable: Any) -> None:
        """Raise if the events do not fit together, or not to this many clients and edges.

        `reachable` is a mask `[clients, edges]`, None if every edge reaches every client.
        """
        for name, values, count in (("client", self.client, clients), ("edge", self.edge, edges)):
            unknown = np.flatnonzero(values >= count)
            if len(unknown):
                row = int(unknown[0])
                raise DataError(
                    f"{self.place(row, name)}: there is no {name} {values[row]}; the federation has {count} "
                    f"{name}s, numbered from 0."
                )
        present = np.ones(clients, np.bool_)
        present[self.absent] = False
        count = int(present.sum())
        if not count:
            raise DataError(f"{self.place(0, 'event')}: no client is there at the start; let one be there.")
        linked: set[tuple[int, int]] = set()
        rows = zip(self.client.tolist(), self.kind.tolist(), self.edge.tolist(), strict=True)
        measured = ~np.isnan(self.send_ms)
        for row, (client, kind, edge) in enumerate(rows):
            event = EVENTS[kind]
            if present[client] == (event == "join"):
                state = "is there already" if present[client] else "is not there"
                raise DataError(
                    f"{self.place(row, 'event')}: client {client} cannot {event} at {self.time_s[row]:g} s: "
                    f"it {state}."
                )
            if measured[row]:
                linked.add((client, edge))
            elif edge >= 0 and not (reachable is None or reachable[client, edge] or (client, edge) in linked):
                raise DataError(
                    f"{self.place(row, 'edge')}: edge {edge} does not reach client {client}. Give send_ms, "
                    "or another edge."
                )
            if event != "move":
                present[client] = event == "join"
                count += 1 if event == "join" else -1
            if not count:
                raise DataError(
                    f"{self.place(row, 'event')}: client {client} is the last one and cannot leave at "
                    f"{self.time_s[row]:g} s; let one client stay."
                )
