"""The secrets of one client in one secure sum: fresh in each, and ready before it begins."""

from __future__ import annotations

from dataclasses import dataclass, field

from hiflash.privacy.randomness import Randomness
from hiflash.privacy.sums.masks import load_key, public_key
from hiflash.privacy.sums.messages import KEY_BYTES
from hiflash.privacy.sums.shares import deal

__all__ = ["Keys"]


@dataclass(slots=True)
class Keys:
    """Two secret keys with their public keys, the seed of a mask, and shares of two of them.

    A client may make them while it waits for its next task: only the number of clients must be guessed.
    """

    mask_secret: bytes = field(repr=False)
    box_secret: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    mask_key: bytes = field(init=False)
    box_key: bytes = field(init=False)
    dealt: dict[tuple[int, int], tuple[list[bytes], list[bytes]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        """Compute the public keys."""
        self.mask_key, self.box_key = (
            public_key(load_key(secret)) for secret in (self.mask_secret, self.box_secret)
        )

    @classmethod
    def fresh(cls, randomness: Randomness) -> Keys:
        """Return new secrets."""
        return cls(*(randomness.take(KEY_BYTES) for _ in range(3)))

    def shares(self, needed: int, count: int) -> tuple[list[bytes], list[bytes]]:
        """Return shares of the seed and of the secret mask key, dealt once."""
        if (needed, count) not in self.dealt:
            self.dealt[needed, count] = (
                deal(self.seed, needed, count),
                deal(self.mask_secret, needed, count),
            )
        return self.dealt[needed, count]
