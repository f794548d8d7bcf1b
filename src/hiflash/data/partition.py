"""Deals the training samples out to clients: evenly, by class, by Dirichlet draws, by size or by group."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core.registry import Key, Part, by_name
from ..errors import DataError
from .shards import deal_shards

__all__ = [
    "NAME",
    "PARTITIONS",
    "Partition",
    "Samples",
    "label_counts",
    "own_indices",
    "parse_name",
    "partition",
    "split_name",
    "usual_name",
    "usual_names",
]

NAME = r"([a-z][a-z_]*)([0-9.]*)(-[a-z]+)?"  # a number stands before the suffix: noniid2-balanced
_NAME = re.compile(NAME)
_NUMBERS = {int: re.compile(r"[1-9]\d{0,5}"), float: re.compile(r"\d+(?:\.\d+)?")}


@dataclass(frozen=True, eq=False)
class Partition:
    """The sample indices of every client, and the share of all samples that are used more than once."""

    indices: list[np.ndarray]
    overlap: float
    name: str


class Samples(NamedTuple):
    """The training samples as a partition sees them: categories, their number, and groups if known.

    A category is a label, or what takes its place (`Dataset.categories`).
    """

    y: np.ndarray
    classes: int
    groups: np.ndarray | None


def partition(
    name: str,
    y: np.ndarray,
    clients: int,
    stream: np.random.Generator,
    *,
    classes: int,
    groups: np.ndarray | None = None,
    config: Any = None,
) -> Partition:
    """Return the partition `name` of the samples with labels `y`; the same stream gives the same indices.

    >>> dealt = partition("iid", np.array([0, 1, 0, 1]), 2, np.random.default_rng(0), classes=2)
    >>> [len(part) for part in dealt.indices], dealt.overlap
    ([2, 2], 0.0)
    """
    kind, number = parse_name(name)
    if clients < 1:
        raise DataError(f"partition '{name}': needs at least 1 client, got {clients}.")
    if clients > len(y):
        raise DataError(
            f"partition '{name}': {clients} clients but only {len(y)} training samples, so some client "
            "would be empty. Use fewer clients or more data."
        )
    dealt = PARTITIONS[kind].build(config, Samples(y, classes, groups), clients, number, stream)
    checked = own_indices(dealt, len(y), name)
    if len(checked.indices) != clients:
        raise DataError(f"partition '{name}': deals to {len(checked.indices)} clients, not to {clients}.")
    return checked


def own_indices(indices: Sequence[Any], n: int, name: str = "own") -> Partition:
    """Return your own lists of sample indices (one per client, of `n` samples) as a checked partition."""
    what = "own partition" if name == "own" else f"partition '{name}'"
    if isinstance(indices, str | bytes | Mapping) or not hasattr(indices, "__len__"):
        raise DataError(
            f"{what}: expected a list with the sample indices of every client, got {type(indices).__name__}."
        )
    if len(indices) == 0:
        raise DataError(f"{what}: it has no clients. Give one list of sample indices per client.")
    checked = []
    for client, part in enumerate(indices):
        try:
            own = np.asarray(part)
        except ValueError as error:
            raise DataError(f"{what}: client {client} is not a flat list of indices.") from error
        if own.ndim != 1:
            raise DataError(f"{what}: client {client} has shape {own.shape}, expected a flat list.")
        if len(own) == 0:
            raise DataError(f"{what}: client {client} has no samples. Leave it out or give it some.")
        if own.dtype.kind not in "ui":
            raise DataError(
                f"{what}: client {client} has indices of type {own.dtype}, expected integers "
                "(use np.flatnonzero for a mask)."
            )
        bad = own[(own < 0) | (own >= n)]
        if len(bad):
            raise DataError(f"{what}: client {client} has index {bad[0]}, outside 0..{n - 1} of the data.")
        checked.append(own)
    return _finish(checked, n, name)


def label_counts(y: np.ndarray, indices: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """Return how many samples of each class each client holds, as int64 `[clients, classes]`."""
    return np.stack([np.bincount(y[part], minlength=classes) for part in indices]).astype(np.int64)


def usual_names() -> list[str]:
    """Return the name of every partition, with its usual number if it takes one."""
    return [usual_name(part) for part in PARTITIONS.values()]


def usual_name(part: Part) -> str:
    """Return the name of a partition with its usual number, if it takes one.

    >>> usual_name(PARTITIONS["noniid-balanced"])
    'noniid2-balanced'
    """
    stem, dash, suffix = part.name.partition("-")
    return f"{stem}{part.number.default if part.number else ''}{dash}{suffix}"


def split_name(name: str) -> tuple[str, str]:
    """Return the part that a name chooses and the number in it, as text: empty strings if it has none.

    >>> split_name("noniid2-balanced"), split_name("iid"), split_name("2")
    (('noniid-balanced', '2'), ('iid', ''), ('', ''))
    """
    match = _NAME.fullmatch(name)
    return (match[1] + (match[3] or ""), match[2]) if match else ("", "")


def parse_name(name: str) -> tuple[str, float]:
    """Return kind and number of a partition name (0 if it has none), or raise `DataError`."""
    kind, text = split_name(name)
    part = PARTITIONS.get(kind)
    if part is not None and part.number is None and not text:
        return part.name, 0.0
    if part is not None and part.number is not None:
        key = part.number
        if not text and key.kind is float:
            return part.name, float(key.default)
        if _NUMBERS[key.kind].fullmatch(text):
            value = float(text)
            if not (key.low or 0.0) <= value <= (key.high or math.inf):
                raise DataError(
                    f"partition '{name}': the number must lie in {key.low:g}..{key.high:g}, got {value:g}."
                )
            return part.name, value
    by_spelling = {known.replace("-", ""): known for known in usual_names()}
    close = difflib.get_close_matches(name.lower().replace("-", ""), by_spelling, 1, 0.5)
    hint = f" Did you mean '{by_spelling[close[0]]}'?" if close else ""
    raise DataError(f"unknown partition '{name}'.{hint} Known: {', '.join(usual_names())}.")


def _iid(
    config: Any, samples: Samples, clients: int, number: float, stream: np.random.Generator
) -> list[np.ndarray]:
    return np.array_split(stream.permutation(len(samples.y)), clients)


def _quantity(
    config: Any, samples: Samples, clients: int, number: float, stream: np.random.Generator
) -> list[np.ndarray]:
    shares = stream.dirichlet(np.full(clients, number))
    sizes = 1 + _apportion(shares, len(samples.y) - clients)  # one sample each first: no client is empty
    return np.split(stream.permutation(len(samples.y)), np.cumsum(sizes)[:-1])


def _by_classes(
    config: Any, samples: Samples, clients: int, number: float, stream: np.random.Generator
) -> list[np.ndarray]:
    y, classes, k = samples.y, samples.classes, int(number)
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


def _dirichlet(
    config: Any, samples: Samples, clients: int, number: float, stream: np.random.Generator
) -> list[np.ndarray]:
    y = samples.y
    shares: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in np.unique(y):
        members = stream.permutation(np.flatnonzero(y == label))
        sizes = _apportion(stream.dirichlet(np.full(clients, number)), len(members))
        for client, share in enumerate(np.split(members, np.cumsum(sizes)[:-1])):
            shares[client].append(share)
    indices = [np.concatenate(share) for share in shares]
    # A strong skew leaves clients without samples. Each of them gets one sample of the largest client.
    for client, part in enumerate(indices):
        if len(part) == 0:
            richest = max(range(clients), key=lambda other: len(indices[other]))
            indices[richest], indices[client] = indices[richest][:-1], indices[richest][-1:]
    return indices


def _by_group(kind: str) -> Callable[..., list[np.ndarray]]:
    """Return the partition by groups, under the name that its messages use."""

    def deal(
        config: Any, samples: Samples, clients: int, number: float, stream: np.random.Generator
    ) -> list[np.ndarray]:
        groups, n = samples.groups, len(samples.y)
        if groups is None:
            raise DataError(
                f"partition '{kind}': this dataset does not know its {kind}s. Use femnist, mnist with "
                "qmnist_writers.npz, or Dataset.from_arrays(..., groups=...)."
            )
        if len(groups) != n:
            raise DataError(f"partition '{kind}': {len(groups)} {kind}s for {n} samples, expected one each.")
        order = np.argsort(groups, kind="stable")
        _, starts = np.unique(groups[order], return_index=True)
        if clients > len(starts):
            raise DataError(
                f"partition '{kind}': {clients} clients but only {len(starts)} {kind}s. "
                f"Use at most {len(starts)} clients."
            )
        return np.split(order, starts[1:])[:clients]

    return deal


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


def _concentration(name: str) -> Key:
    """Return the number of a Dirichlet draw: outside its bounds the draw is one-hot or uniform."""
    return Key(name, float, default=0.5, low=0.001, high=1e6, about="concentration of the Dirichlet draws")


CLASSES = Key("k", int, default=2, low=1, high=999_999, about="classes per client")

PARTITIONS = by_name(
    Part("iid", "equal shares of all classes", _iid),
    Part(
        "noniid",
        "k random classes per client (noniid1, noniid2, ...), equal sizes",
        _by_classes,
        number=CLASSES,
    ),
    Part(
        "noniid-balanced",
        "k shards of different classes per client (noniid1-balanced, ...); every sample once",
        deal_shards,
        number=CLASSES,
    ),
    Part(
        "dirichlet",
        "every class split by Dirichlet(alpha) shares; a small alpha is a strong skew",
        _dirichlet,
        number=_concentration("alpha"),
    ),
    Part(
        "quantity",
        "the same class mix everywhere, sizes by Dirichlet(beta) shares",
        _quantity,
        number=_concentration("beta"),
    ),
    Part("group", "one client per group, for data that has groups", _by_group("group")),
    Part("writer", "the same, under the name that suits femnist and mnist", _by_group("writer")),
)
