"""Changes of models as whole numbers modulo 2^32, with an error that can be stated.

A client with n samples and the change d sends `round(d n S)` for each value, and n itself. The scale S is the
largest power of two for which the sum of all clients cannot leave the range of 32 bits:

    S = 2^floor(log2((2^31 - c) / (N B)))

for c clients, N samples at most, and changes in [-B, B]. Values outside are clipped, and their number is part
of the sum. Each client rounds by at most half a step. So the mean over k clients with n samples in all is off
by at most

    k / (2 S n)  <=  k B (N / n) / (2^31 - c)

in each value. With 10 clients, B = 8 and N = 2 n this is 7.5e-8: about the precision of float32 at 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hiflash.messages import Weights
from hiflash.privacy.sums.messages import ADDED, Refused, Terms, Words
from hiflash.weights import finite

__all__ = ["FixedPoint", "Summed", "ceiling"]

COLUMNS = 1 << 16  # values at once: they stay in the cache


class Summed(NamedTuple):
    """An opened sum: the mean change weighted by samples, the samples, and the number of clipped values."""

    mean: npt.NDArray[np.float64]
    examples: int
    clipped: int

    def applied(self, base: Weights) -> Weights:
        """Return the model that the mean change leads to from `base`."""
        return (base + self.mean).astype(np.float32)


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The form of the vectors of one sum."""

    clients: int
    most_examples: int
    bound: float

    @classmethod
    def of(cls, terms: Terms) -> FixedPoint:
        """Return the form that the terms of a sum ask for."""
        return cls(len(terms.clients), terms.most_examples, terms.bound)

    @property
    def scale(self) -> float:
        """Return S, the steps that a change of 1 of one sample has.

        >>> FixedPoint(10, 6000, 8.0).scale  # 2^31 / 48,000 = 44,739
        32768.0
        """
        room = (2**31 - self.clients) / (self.most_examples * self.bound)
        return 2.0 ** math.floor(math.log2(room))

    def error(self, clients: int, examples: int) -> float:
        """Return the most that a mean over these clients with so many samples is off, in each value."""
        # Half a step for each client; the arithmetic in double precision adds less than a thousandth.
        return 0.501 * clients / (self.scale * examples)

    def encode(self, change: Weights | npt.NDArray[np.float64], examples: int) -> Words:
        """Return a client's vector: its change, its samples, and how many values were clipped."""
        if not finite(change):  # type: ignore[arg-type]  # doubles as well
            raise ValueError("a change that is not finite has no place in a sum")
        if not 1 <= examples <= self.most_examples:
            raise ValueError(f"a client has 1 to {self.most_examples} samples, got {examples}")
        words = np.empty(change.size + ADDED, np.uint32)
        factor, clipped = examples * self.scale, 0
        for start in range(0, change.size, COLUMNS):
            part = change[start : start + COLUMNS].astype(np.float64)
            clipped += int(np.count_nonzero(np.abs(part) > self.bound))
            np.clip(part, -self.bound, self.bound, out=part)
            part *= factor
            np.rint(part, out=part)
            words[start : start + part.size] = part.astype(np.int64).astype(np.uint32)
        words[change.size :] = examples, clipped
        return words

    def decode(self, total: Words, clients: int) -> Summed:
        """Return the sum of so many clients, or raise `Refused` if no such clients can have made it.

        Nobody can check a single client any more. The sum is checked instead: its samples, and every value.
        """
        examples, clipped = int(total[-2]), int(total[-1])
        if not clients <= examples <= self.most_examples:
            raise Refused(
                f"the sum has {examples} samples, and {clients} clients have {clients} to "
                f"{self.most_examples}; one of them lies"
            )
        if clipped > clients * (total.size - ADDED):
            raise Refused(
                f"the sum has {clipped} clipped values, more than its clients sent; one of them lies"
            )
        signed = total[:-ADDED].view(np.int32)
        most = self.bound * examples * self.scale + clients / 2
        outside = int(np.count_nonzero(np.abs(signed.astype(np.float64)) > most))
        if outside:
            raise Refused(
                f"{outside} values of the sum are larger than the changes of its clients may be "
                f"({self.bound:g}); one of them lies"
            )
        return Summed(signed / (self.scale * examples), examples, clipped)


def ceiling(examples: int) -> int:
    """Return the power of two that is not below a number of samples: what a client says about its own.

    >>> [ceiling(examples) for examples in (1, 2, 3, 600)]
    [1, 2, 4, 1024]
    """
    return 1 << max(0, examples - 1).bit_length()
