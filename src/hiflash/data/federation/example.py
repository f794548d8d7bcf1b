"""Makes a plausible federation to try: clients and edges on a map, near ones with fast links."""

from __future__ import annotations

import math

import numpy as np

from ...errors import ConfigError
from ...seeding import rng
from .arrays import FederationData
from .availability import Availability, ClientEvent
from .tables import Floats, Ints

__all__ = ["make_example"]

MOST_CLIENTS, MOST_EDGES = 1_000_000, 10_000
MOST_PAIRS = 100_000_000
CLASSES = 10
EVENTS = 500  # most joins, leaves and moves
HOUR_S = 3600.0


def make_example(clients: int, edges: int, seed: int = 0) -> FederationData:
    """Return a federation with everything but an association.

    Edges lie at random in a square, clients around them. A client reaches the edges within two mean distances
    between neighbours, at least the nearest. Latency grows with distance and bandwidth falls.
    """
    if not 1 <= edges <= min(clients, MOST_EDGES) or clients > MOST_CLIENTS or clients * edges > MOST_PAIRS:
        raise ConfigError(
            f"an example has 1 to {MOST_CLIENTS:,} clients, 1 to {MOST_EDGES:,} edges, not more edges than "
            f"clients, and at most {MOST_PAIRS:,} pairs of them; got {clients:,} clients and {edges:,} edges"
        )
    stream = rng(seed, "example federation")
    at_edge = stream.random((edges, 2))
    near = np.concatenate([np.arange(edges), stream.integers(edges, size=clients - edges)])
    spacing = 1 / math.sqrt(edges)
    at_client = at_edge[near] + stream.normal(0, 0.3 * spacing, (clients, 2))
    distance = np.hypot(*(at_client[:, None, axis] - at_edge[None, :, axis] for axis in (0, 1))) / spacing
    latency_ms = np.round(2 + 12 * distance * stream.lognormal(0, 0.2, distance.shape), 2)
    latency_ms[(distance > 2) & (distance > distance.min(axis=1, keepdims=True))] = np.inf
    latency_ms[np.arange(edges), np.arange(edges)] = 2.0  # every edge reaches a client
    bandwidth_mbps = np.round(120 / (1 + distance) ** 2 * stream.lognormal(0, 0.3, distance.shape) + 1, 2)
    # Two classes each, as in the paper, of 40 to 400 samples.
    labels = np.zeros((clients, CLASSES), np.int64)
    for _ in range(2):
        np.add.at(
            labels,
            (np.arange(clients), stream.integers(CLASSES, size=clients)),
            stream.integers(20, 200, clients),
        )
    return FederationData(
        latency_ms=latency_ms,
        bandwidth_mbps=bandwidth_mbps,
        step_ms=np.round(stream.lognormal(math.log(8), 0.5, clients), 2),
        labels=labels,
        wan_rtt_ms=np.round(stream.uniform(20, 200, edges), 1),
        wan_bandwidth_mbps=np.round(stream.uniform(20, 200, edges), 1),
        availability=_events(latency_ms, near, stream),
    )


def _events(latency_ms: Floats, near: Ints, stream: np.random.Generator) -> Availability:
    """Return an hour in which some clients come late, go away for a while, or move to another edge."""
    clients = len(latency_ms)
    events: list[ClientEvent] = []
    some = stream.permutation(clients)[: min(clients // 5, EVENTS // 2)].tolist()
    for number, client in enumerate(some):
        first_s, second_s = np.sort(np.round(stream.uniform(0, HOUR_S, 2), 1)).tolist()
        reached = np.flatnonzero(np.isfinite(latency_ms[client]))
        if number % 3 == 0:
            events.append(ClientEvent(second_s, client, "join"))
        elif number % 3 == 1:
            events.append(ClientEvent(first_s, client, "leave"))
            events.append(ClientEvent(second_s, client, "join"))
        else:
            edge = int(reached[stream.integers(len(reached))])
            events.append(ClientEvent(first_s, client, "move", edge))
    return Availability.of(sorted(events))
