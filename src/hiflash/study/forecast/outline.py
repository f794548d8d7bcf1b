"""The federation of a forecast: its clients and model, without workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hiflash.config import Config
from hiflash.data import Dataset, label_counts, partition
from hiflash.data.federation import FederationData, remember
from hiflash.errors import ConfigError, DataError
from hiflash.seeding import rng
from hiflash.sim.federation import Federation, build, outline
from hiflash.study.forecast.scope import beyond_scope, partial_codecs

__all__ = ["ForecastError", "Outline", "outline_cell"]

MOST_FLAT = 1000
"""Clients of a flat asynchronous method that are simulated: a cloud asks those that wait one by one."""


class ForecastError(ConfigError):
    """A configuration that no number can stand for."""


@dataclass(frozen=True)
class Outline:
    """The configuration that is simulated, its federation, and how it differs from the one asked for."""

    config: Config
    federation: Federation
    notes: tuple[str, ...] = ()


def outline_cell(config: Config, own: dict[str, Any], data: Dataset | None) -> Outline:
    """Return the federation of a configuration; `data` is that of an earlier one with the same settings."""
    if problems := beyond_scope(config):
        raise ForecastError(problems)
    data = data if own.get("data") is None else own["data"]
    if data is None and config.data.name != "own":
        data = outline(config)[0]
    indices, notes = own.get("indices"), []
    drawn = indices is None and not config.federation.files
    simulated, untrained, held = config, {"trainer": "none"}, None
    if drawn and _asks_many(config):
        simulated = _sampled(config)
        few, all_clients = simulated.federation.clients, config.federation.clients
        notes.append(f"{few:,} of {all_clients:,} clients are simulated")
    if drawn and data is not None and not _dealt(config, data):
        held = _repeated(simulated, data)  # only arrays that somebody keeps are found by their name
        untrained["federation.files"] = remember(held)
        notes.append(f"{len(data.y):,} samples are too few: they are repeated, a batch for every client")
    federation = build(simulated.with_choices(untrained), data, own.get("model"), indices)
    if problems := partial_codecs(config, federation.start.spec):
        raise ForecastError(problems)
    return Outline(simulated, federation, tuple(notes))


def _asks_many(config: Config) -> bool:
    """Return whether the cloud of a flat method would ask thousands of clients for every grant."""
    bounded = config.cloud.schedule == "async" and config.cloud.threshold != "inf"
    return config.federation.flat and bounded and config.federation.clients > MOST_FLAT


def _sampled(config: Config) -> Config:
    """Return a smaller federation of the same kind, with as many clients per edge."""
    edges = round(config.federation.edges * MOST_FLAT / config.federation.clients)
    return config.with_choices({"federation.clients": MOST_FLAT, "federation.edges": max(1, edges)})


def _dealt(config: Config, data: Dataset) -> bool:
    """Return whether the partition can give every client samples."""
    if len(data.y) >= config.federation.clients * config.client.batch or data.groups is not None:
        return True  # or the partition itself says why not
    try:
        _deal(config, data, 1)
    except DataError:
        return False
    return True


def _repeated(config: Config, data: Dataset) -> FederationData:
    """Return the labels of clients that share repeated samples, a batch for each."""
    copies = math.ceil(config.federation.clients * config.client.batch / len(data.y))
    return FederationData(labels=_deal(config, data, copies))


def _deal(config: Config, data: Dataset, copies: int) -> npt.NDArray[np.int64]:
    """Return the labels of every client under the partition of this many copies of the samples."""
    category, categories = data.categories()
    category, clients = np.tile(category, copies), config.federation.clients
    stream = rng(config.seed, "partition")
    split = partition(
        config.data.partition, category, clients, stream, classes=categories, groups=None, config=config
    )
    labels: npt.NDArray[np.int64] = label_counts(category, split.indices, categories)
    return labels
