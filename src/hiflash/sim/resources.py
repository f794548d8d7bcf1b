"""The compute and send times of every client: measured, or drawn from the configured ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.core.association.membership import homes
from hiflash.core.cost import compute_seconds, send_seconds
from hiflash.data.federation import FederationData
from hiflash.seeding import rng
from hiflash.sim.draws import CHUNK, uniform_at

__all__ = ["MeasuredResources", "Resources", "draw_resources", "local_steps", "step_samples"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Resources:
    """Mean seconds of every client's computing, and of sending a model with `values` numbers to any edge.

    Bandwidths are drawn when they are asked for. Only `latency_s` holds all pairs of edges and clients at
    once: of a million clients there would be too many.
    """

    compute_s: Floats
    edges: int
    values: int
    bandwidth_mhz: tuple[float, float]
    snr_db: float
    seed: int

    def send_s(self, edge: int) -> Floats:
        """Return the seconds every client takes to send a model to one edge."""
        drawn = self._stream(edge).random(len(self.compute_s))
        return send_seconds(self.values, self._hz(drawn), self.snr_db)

    def own_send_s(self, clusters: Sequence[Sequence[int]]) -> Floats:
        """Return the seconds every client takes to send a model to the edge whose cluster it is in."""
        keys = [self._stream(edge).bit_generator.state["state"]["key"] for edge in range(len(clusters))]
        own_edge = homes(clusters, len(self.compute_s))
        drawn = uniform_at(np.array(keys), own_edge, np.arange(len(own_edge)))
        return send_seconds(self.values, self._hz(drawn), self.snr_db)

    @cached_property
    def best_send_s(self) -> Floats:
        """Return the seconds every client takes to send a model to the edge that it reaches best."""
        clients = len(self.compute_s)
        streams = [self._stream(edge) for edge in range(self.edges)]
        best, drawn = np.zeros(clients), np.empty(min(clients, CHUNK))
        for start in range(0, clients, CHUNK):
            part = best[start : start + CHUNK]
            for stream in streams:
                stream.random(out=drawn[: len(part)])
                np.maximum(part, drawn[: len(part)], out=part)
        return send_seconds(self.values, self._hz(best), self.snr_db)

    def link_s(self, client: int, edge: int) -> float:
        """Return the seconds that one client takes to send a model to one edge."""
        key = self._stream(edge).bit_generator.state["state"]["key"]
        drawn = uniform_at(np.array([key]), np.array([0]), np.array([client]))
        return float(send_seconds(self.values, self._hz(drawn), self.snr_db)[0])

    def all_send_s(self) -> Floats:
        """Return the seconds to send a model for all pairs, `[edges, clients]`."""
        return np.stack([self.send_s(edge) for edge in range(self.edges)])

    def moved_send_s(self, move: int) -> Floats:
        """Return the seconds to send a model to each edge for the client that made this move."""
        to_edges_hz = 1e6 * rng(self.seed, "bandwidth after move", move).uniform(
            *self.bandwidth_mhz, self.edges
        )
        return send_seconds(self.values, to_edges_hz, self.snr_db)

    def latency_s(self) -> Floats:
        """Return the response latency of all pairs, `[edges, clients]`."""
        latency_s = np.empty((self.edges, len(self.compute_s)))
        for edge in range(self.edges):
            np.add(self.compute_s, self.send_s(edge), out=latency_s[edge])
        return latency_s

    def own_hop_s(self, clusters: Sequence[Sequence[int]]) -> Floats | None:
        """Return the seconds of every client's empty message to its own edge; None if not measured."""
        return None

    @property
    def reachable(self) -> Mask | None:
        """Return which edge reaches which client, `[edges, clients]`; None if all reach all."""
        return None

    def best_edges(self) -> npt.NDArray[np.int64]:
        """Return the edge that every client reaches best."""
        best, edges = np.full(len(self.compute_s), np.inf), np.zeros(len(self.compute_s), np.int64)
        for edge in range(self.edges):
            send_s = self.send_s(edge)
            edges[send_s < best] = edge
            np.minimum(best, send_s, out=best)
        return edges

    def usual_send_s(self, clusters: Sequence[Sequence[int]]) -> Floats:
        """Return the seconds every client takes under the random association, whose clusters these are."""
        return self.own_send_s(clusters)

    def _stream(self, edge: int) -> np.random.Generator:
        """Return the stream that holds a number in [0, 1) for each client: its bandwidth to the edge."""
        return rng(self.seed, "bandwidth", edge)

    def _hz(self, drawn: Floats) -> Floats:
        low, high = self.bandwidth_mhz
        return 1e6 * (low + (high - low) * drawn)


@dataclass(frozen=True)
class MeasuredResources(Resources):
    """Resources whose send times were measured: `to_edges_s` is `[edges, clients]`, infinite out of reach.

    `hops_s` are the parts of them that do not depend on the size of a message, None if they are not known.
    """

    to_edges_s: Floats
    hops_s: Floats | None = None

    def send_s(self, edge: int) -> Floats:
        """Return the seconds every client takes to send a model to one edge."""
        to_edge_s: Floats = self.to_edges_s[edge]
        return to_edge_s

    def own_send_s(self, clusters: Sequence[Sequence[int]]) -> Floats:
        """Return the seconds every client takes to send a model to the edge whose cluster it is in."""
        clients = len(self.compute_s)
        own_s: Floats = self.to_edges_s[homes(clusters, clients), np.arange(clients)]
        return own_s

    def own_hop_s(self, clusters: Sequence[Sequence[int]]) -> Floats | None:
        """Return the seconds of every client's empty message to its own edge; None if not measured."""
        if self.hops_s is None:
            return None
        clients = len(self.compute_s)
        own_s: Floats = self.hops_s[homes(clusters, clients), np.arange(clients)]
        return own_s

    @cached_property
    def best_send_s(self) -> Floats:
        """Return the seconds every client takes to send a model to the edge that it reaches best."""
        best_s: Floats = self.to_edges_s.min(axis=0)
        return best_s

    def link_s(self, client: int, edge: int) -> float:
        """Return the seconds that one client takes to send a model to one edge."""
        return float(self.to_edges_s[edge, client])

    def all_send_s(self) -> Floats:
        """Return the seconds to send a model for all pairs, `[edges, clients]`."""
        return self.to_edges_s.copy()

    def moved_send_s(self, move: int) -> Floats:
        """Return the seconds to each edge after a move: those of a client at the new place, drawn."""
        there = int(rng(self.seed, "place after move", move).integers(len(self.compute_s)))
        there_s: Floats = self.to_edges_s[:, there]
        return there_s

    @cached_property
    def reachable(self) -> Mask | None:
        """Return which edge reaches which client, `[edges, clients]`; None if all reach all."""
        mask = np.isfinite(self.to_edges_s)
        return None if mask.all() else mask

    def usual_send_s(self, clusters: Sequence[Sequence[int]]) -> Floats:
        """Return the mean seconds of every client to the edges that it reaches: at random, one of them."""
        if self.reachable is None:
            return self.own_send_s(clusters)
        reached_s = np.where(self.reachable, self.to_edges_s, 0.0).sum(axis=0)
        mean_s: Floats = reached_s / self.reachable.sum(axis=0)
        return mean_s


def draw_resources(
    config: Config,
    examples: npt.NDArray[np.int64],
    features: int,
    values: int,
    measured: FederationData | None = None,
) -> Resources:
    """Return the resources of clients that hold `examples` samples of `features` numbers each.

    What was `measured` is not drawn.
    """
    resources, clients = config.resources, len(examples)
    held, which = np.unique(examples, return_inverse=True)
    steps = np.array([local_steps(config, count) for count in held.tolist()], dtype=np.float64)[which]
    low, high = resources.f_ghz
    f_ghz = rng(config.seed, "f").uniform(low, high, clients)
    if measured is not None and measured.f_ghz is not None:
        f_ghz = measured.f_ghz
    compute_s = compute_seconds(
        steps,
        step_samples(examples, config.client.batch) * float(features * 8),
        np.full(clients, resources.cycles_per_bit),
        1e9 * f_ghz,
    )
    if measured is not None and measured.step_ms is not None:
        compute_s = steps * measured.step_ms / 1e3
    drawn = Resources(
        compute_s,
        config.federation.edges,
        values,
        resources.bandwidth_mhz,
        resources.snr_db,
        config.seed,
    )
    return drawn if measured is None else with_measured_links(drawn, measured)


def with_measured_links(drawn: Resources, measured: FederationData) -> Resources:
    """Return resources with the links that were measured, or the same if none were."""
    latency_ms, bandwidth_mbps, send_ms = measured.latency_ms, measured.bandwidth_mbps, measured.send_ms
    if send_ms is not None:
        to_edges_s = send_ms.T / 1e3
    elif bandwidth_mbps is not None:
        with np.errstate(divide="ignore"):  # no bandwidth: the model never arrives
            to_edges_s = drawn.values * 32 / (bandwidth_mbps.T * 1e6)
        if latency_ms is not None:
            to_edges_s += latency_ms.T / 1e3
    elif latency_ms is not None:
        to_edges_s = drawn.all_send_s() + latency_ms.T / 1e3
    else:
        return drawn
    known = {each.name: getattr(drawn, each.name) for each in fields(Resources)}
    hops_s = None
    if send_ms is None and latency_ms is not None:
        hops_s = np.ascontiguousarray(latency_ms.T / 1e3)
    return MeasuredResources(**known, to_edges_s=np.ascontiguousarray(to_edges_s), hops_s=hops_s)


def step_samples(examples: npt.NDArray[np.int64], batch: int) -> Floats:
    """Return the mean number of samples in a step: the last batch of an epoch may be short.

    A task may start anywhere in an epoch, so in the long run its steps have this mean.

    >>> step_samples(np.array([155, 120, 35]), 60)
    array([51.66666667, 60.        , 35.        ])
    """
    return examples / np.ceil(examples / batch)


def local_steps(config: Config, examples: int) -> int:
    """Return the steps in a task of a client with this many samples."""
    if config.client.local_epochs == "none":
        return config.client.local_steps
    return config.client.local_epochs * math.ceil(examples / config.client.batch)
