"""The compute and send times of every client, drawn from the configured ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.core.association.membership import homes
from hiflash.core.cost import compute_seconds, send_seconds
from hiflash.seeding import rng
from hiflash.sim.draws import CHUNK, uniform_at

__all__ = ["Resources", "draw_resources", "local_steps", "step_samples"]

Floats = npt.NDArray[np.float64]


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

    def _stream(self, edge: int) -> np.random.Generator:
        """Return the stream that holds a number in [0, 1) for each client: its bandwidth to the edge."""
        return rng(self.seed, "bandwidth", edge)

    def _hz(self, drawn: Floats) -> Floats:
        low, high = self.bandwidth_mhz
        return 1e6 * (low + (high - low) * drawn)


def draw_resources(config: Config, examples: npt.NDArray[np.int64], features: int, values: int) -> Resources:
    """Return the resources of clients that hold `examples` samples of `features` numbers each."""
    resources, clients = config.resources, len(examples)
    held, which = np.unique(examples, return_inverse=True)
    steps = np.array([local_steps(config, count) for count in held.tolist()], dtype=np.float64)[which]
    low, high = resources.f_ghz
    compute_s = compute_seconds(
        steps,
        step_samples(examples, config.client.batch) * float(features * 8),
        np.full(clients, resources.cycles_per_bit),
        1e9 * rng(config.seed, "f").uniform(low, high, clients),
    )
    return Resources(
        compute_s,
        config.federation.edges,
        values,
        resources.bandwidth_mhz,
        resources.snr_db,
        config.seed,
    )


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
