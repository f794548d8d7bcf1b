"""Histograms of groups of clients: sums that are opened without any single one, by the protocol of `sums/`.

What members send is rounded to steps of a power of two (`FixedPoint`): with groups of up to a thousand
clients steps are half a sample or finer, so exact counts stay exact. Only very strong noise makes them
coarser.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from hiflash.errors import ConfigError, ProtocolError
from hiflash.privacy.histograms import Counts, Floats, Histograms
from hiflash.privacy.randomness import Stream
from hiflash.privacy.sums.messages import LEAST_CLIENTS, MOST_CLIENTS
from hiflash.privacy.sums.packages import require_packages

__all__ = ["group_histograms", "sum_of_group"]

MOST_SAMPLES = 2.0**20  # of one class on one client
TAIL = 40.0  # scales of noise that a value has room for; more have a chance of e^-40


def group_histograms(
    counts: Counts,
    groups: Sequence[Sequence[int]],
    histograms: Histograms,
    stream: Stream,
    least: int,
    seed: int = 0,
) -> Counts:
    """Return the histogram of every group, opened as one sum; no member's own is ever seen.

    Noise is sized for `least` members, so that it suffices if some drop out. The keys follow from the seed.
    """
    require_packages('privacy.histograms = "group"')
    sent = histograms.sent(counts, stream, shares=least)
    release = histograms.release
    if release is None and counts.max(initial=0) > MOST_SAMPLES:  # noise would hide it, and counts be wrong
        raise ConfigError(
            f'privacy.histograms = "group" adds up at most {MOST_SAMPLES:,.0f} samples of one class from '
            'each client, and a client has more; use privacy.histograms = "single"'
        )
    bound = MOST_SAMPLES if release is None or release.unit == "sample" else 1.0
    bound += 0.0 if release is None else TAIL * release.scale
    rows: list[Floats] = []
    for index, group in enumerate(groups):
        vectors = {client: sent[client] for client in group}
        total = sum_of_group(vectors, least, bound, seed, index)
        if total is None:
            raise ProtocolError(f"a group of {len(group)} clients is not added; {least} are the fewest")
        rows.append(total)
    members = np.array([len(group) for group in groups], np.float64)
    return histograms.read(np.array(rows), members)


def sum_of_group(
    vectors: Mapping[int, Floats],
    least: int,
    bound: float,
    seed: int = 0,
    index: int = 0,
    dropped: Collection[int] = (),
) -> Floats | None:
    """Return the sum of a group's vectors without those who drop out; None if too few are left.

    At least `least` members and two thirds of all must be left. Values lie in `[-bound, bound]`. `index`
    numbers the sums of a seed: no two share their keys.
    """
    from hiflash.privacy.sums.edge import Opened
    from hiflash.privacy.sums.fixed_point import FixedPoint, Summed
    from hiflash.privacy.sums.in_memory import sum_in_memory
    from hiflash.privacy.sums.messages import Terms

    members = tuple(sorted(vectors))
    if len(members) < max(least, LEAST_CLIENTS):
        return None
    if len(members) > MOST_CLIENTS:
        raise ConfigError(
            f"a group has {len(members)} clients, and a secure sum at most {MOST_CLIENTS}; use a smaller "
            "privacy.group, or a larger federation.reach"
        )
    size = len(vectors[members[0]])
    terms = Terms("histograms", 0, 0, index, members, size, bound, len(members))
    form = FixedPoint.of(terms)
    opened = sum_in_memory(
        terms, seed, lambda client: form.encode(vectors[client], 1), {"masked": dropped}, quorum=least
    )
    if not isinstance(opened, Opened) or not isinstance(opened.summed, Summed):
        return None
    steps = np.rint(opened.summed.mean * (opened.summed.examples * form.scale))  # whole numbers, again
    return np.asarray(steps / form.scale, np.float64)
