"""Deals the training samples out to clients: evenly, by class, by Dirichlet draws, by size or by group."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError

__all__ = ["PARTITIONS", "Partition", "label_counts", "own_indices", "parse_name", "partition"]

PARTITIONS = {
    "iid": "equal shares of all classes",
    "noniid2": "k random classes per client (noniid1, noniid2, ...), equal sizes",
    "dirichlet0.5": "every class split by Dirichlet(alpha) shares; a small alpha is a strong skew",
    "quantity0.5": "the same class mix everywhere, sizes by Dirichlet(beta) shares",
    "group": "one client per group, for data that has groups",
    "writer": "the same, under the name that suits femnist and mnist",
}

_DEFAULTS = {"dirichlet": 0.5, "quantity": 0.5}
_NAME = re.compile(r"(iid|group|writer)|(noniid)([1-9]\d{0,5})|(dirichlet|quantity)(\d+(?:\.\d+)?)?")
_CONCENTRATIONS = (0.001, 1e6)  # beyond these a Dirichlet draw is one-hot or uniform, or overflows


@dataclass(frozen=True, eq=False)
class Partition:
    """The sample indices of every client, and the share of all samples that are used more than once."""

    indices: list[np.ndarray]
    overlap: float
    name: str


def partition(
    name: str,
    y: np.ndarray,
    clients: int,
    stream: np.random.Generator,
    *,
    classes: int,
    groups: np.ndarray | None = None,
) -> Partition:
    """Return the partition `name` of samples with the categories `y`; the same stream gives the same indices.

    >>> dealt = partition("iid", np.array([0, 1, 0, 1]), 2, np.random.default_rng(0), classes=2)
    >>> [len(part) for part in dealt.indices], dealt.overlap
    ([2, 2], 0.0)
    """
    kind, parameter = parse_name(name)
    if clients < 1:
        raise DataError(f"partition '{name}': needs at least 1 client, got {clients}.")
    if clients > len(y):
        raise DataError(
            f"partition '{name}': {clients} clients but only {len(y)} training samples, so some client "
            "would be empty. Use fewer clients or more data."
        )
    if kind in ("group", "writer"):
        indices = _by_group(groups, len(y), clients, kind)
    elif kind == "noniid":
        indices = _by_classes(y, clients, int(parameter), classes, stream)
    elif kind == "dirichlet":
        indices = _dirichlet(y, clients, parameter, stream)
    elif kind == "quantity":
        shares = stream.dirichlet(np.full(clients, parameter))
        sizes = 1 + _apportion(shares, len(y) - clients)  # one sample each first: no client is empty
        indices = np.split(stream.permutation(len(y)), np.cumsum(sizes)[:-1])
    else:
        indices = np.array_split(stream.permutation(len(y)), clients)
    return _finish(indices, len(y), name)


def own_indices(indices: Sequence[Any], n: int) -> Partition:
    """Return your own lists of sample indices (one per client, of `n` samples) as a checked partition."""
    if isinstance(indices, str | bytes | Mapping) or not hasattr(indices, "__len__"):
        raise DataError(
            f"own partition: expected a list with the sample indices of every client, got "
            f"{type(indices).__name__}."
        )
    if len(indices) == 0:
        raise DataError("own partition: it has no clients. Give one list of sample indices per client.")
    checked = []
    for client, part in enumerate(indices):
        try:
            own = np.asarray(part)
        except ValueError as error:
            raise DataError(f"own partition: client {client} is not a flat list of indices.") from error
        if own.ndim != 1:
            raise DataError(f"own partition: client {client} has shape {own.shape}, expected a flat list.")
        if len(own) == 0:
            raise DataError(f"own partition: client {client} has no samples. Leave it out or give it some.")
        if own.dtype.kind not in "ui":
            raise DataError(
                f"own partition: client {client} has indices of type {own.dtype}, expected integers "
                "(use np.flatnonzero for a mask)."
            )
        bad = own[(own < 0) | (own >= n)]
        if len(bad):
            raise DataError(
                f"own partition: client {client} has index {bad[0]}, outside 0..{n - 1} of the data."
            )
        checked.append(own)
    return _finish(checked, n, "own")


def label_counts(y: np.ndarray, indices: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """Return how many samples of each class each client holds, as int64 `[clients, classes]`."""
    return np.stack([np.bincount(y[part], minlength=classes) for part in indices]).astype(np.int64)


def parse_name(name: str) -> tuple[str, float]:
    """Return kind and parameter of a partition name (0 if it has none), or raise `DataError`."""
    match = _NAME.fullmatch(name)
    if match is None:
        close = difflib.get_close_matches(name.lower().replace("-", ""), list(PARTITIONS), 1, 0.5)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise DataError(
            f"unknown partition '{name}'.{hint} Known: iid, noniid1, noniid2, ..., dirichlet, dirichlet0.3, "
            "quantity, quantity0.5, group, writer."
        )
    plain, noniid, k, skewed, strength = match.groups()
    if plain:
        return plain, 0.0
    if noniid:
        return noniid, float(k)
    value = float(strength) if strength else _DEFAULTS[skewed]
    low, high = _CONCENTRATIONS
    if not low <= value <= high:
        raise DataError(f"partition '{name}': the number must lie in {low:g}..{high:g}, got {value:g}.")
    return skewed, value


def _by_classes(
    y: np.ndarray, clients: int, k: int, classes: int, stream: np.random.Generator
) -> list[np.ndarray]:
    size = len(y) // clients
    present = np.unique(y)
    if k > len(present):
        raise DataError(
            f"partition 'noniid{k}': {k} classes per client, but the training data holds {len(present)} of "
            f"{classes} classes. Use noniid{len(present)} or less."
        )
    if k > size:
        raise DataError(
            f"partition 'noniid{k}': {clients} clients get {size} samples each, too few for {k} classes. "
            "Use fewer clients or fewer classes per client."
        )
    pools = {int(label): stream.permutation(np.flatnonzero(y == label)) for label in present}
    used = dict.fromkeys(pools, 0)
    indices = []
    for _ in range(clients):
        drawn: list[np.ndarray] = []
        for place, label in enumerate(stream.choice(present, k, replace=False).tolist()):
            wanted = size // k + (place < size % k)
            while wanted:
                if used[label] == len(pools[label]):
                    pools[label], used[label] = stream.permutation(pools[label]), 0
                taken = pools[label][used[label] : used[label] + wanted]
                used[label] += len(taken)
                wanted -= len(taken)
                drawn.append(taken)
        indices.append(np.concatenate(drawn))
    return indices


def _dirichlet(y: np.ndarray, clients: int, alpha: float, stream: np.random.Generator) -> list[np.ndarray]:
    shares: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in np.unique(y):
        members = stream.permutation(np.flatnonzero(y == label))
        sizes = _apportion(stream.dirichlet(np.full(clients, alpha)), len(members))
        for client, share in enumerate(np.split(members, np.cumsum(sizes)[:-1])):
            shares[client].append(share)
    indices = [np.concatenate(share) for share in shares]
    # A strong skew leaves clients without samples. Each of them gets one sample of the largest client.
    for client, part in enumerate(indices):
        if len(part) == 0:
            richest = max(range(clients), key=lambda other: len(indices[other]))
            indices[richest], indices[client] = indices[richest][:-1], indices[richest][-1:]
    return indices


def _by_group(groups: np.ndarray | None, n: int, clients: int, kind: str) -> list[np.ndarray]:
    if groups is None:
        raise DataError(
            f"partition '{kind}': this dataset does not know its {kind}s. Use femnist, mnist with "
            "qmnist_writers.npz, or Dataset.from_arrays(..., groups=...)."
        )
    if len(groups) != n:
        raise DataError(
            f"partition '{kind}': {len(groups)} {kind}s for {n} samples, expected one per sample."
        )
    order = np.argsort(groups, kind="stable")
    _, starts = np.unique(groups[order], return_index=True)
    if clients > len(starts):
        raise DataError(
            f"partition '{kind}': {clients} clients but only {len(starts)} {kind}s. "
            f"Use at most {len(starts)} clients."
        )
    return np.split(order, starts[1:])[:clients]


def _apportion(shares: np.ndarray, total: int) -> np.ndarray:
    """Return integer sizes that add up to `total`, each at most 1 away from its share."""
    edges = np.round(np.cumsum(shares) * total).astype(np.int64)
    edges[-1] = total  # the sum of the shares is 1 only up to rounding
    return np.diff(np.minimum(edges, total), prepend=0)


def _finish(indices: Sequence[np.ndarray], n: int, name: str) -> Partition:
    # Sorted: batches are drawn by their own stream, so the order here carries no information.
    indices = [np.sort(part).astype(np.int64) for part in indices]
    uses = np.bincount(np.concatenate(indices), minlength=n)
    return Partition(indices, float((uses > 1).sum() / n), name)
