"""Who signs what a client says, and who checks it.

Deployed, a client signs with the key of its certificate, and the others check it against the federation's CA
(`serve/signing.py`). In the simulator the keys follow from a seed.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hiflash.privacy.randomness import SeededRandomness
from hiflash.privacy.sums.messages import Refused

__all__ = ["SeededSigner", "SeededVerifier", "Signer", "Verifier"]


class Signer(Protocol):
    """Signs in the name of one client."""

    @property
    def credential(self) -> bytes:
        """Return what others need to know whose signatures these are."""
        ...

    def sign(self, content: bytes) -> bytes:
        """Return a signature."""
        ...


class Verifier(Protocol):
    """Knows who the clients of a federation are."""

    def check(self, client: int, credential: bytes, content: bytes, signature: bytes) -> None:
        """Raise `Refused`, with the client's name, unless it has signed the content."""
        ...


class SeededSigner:
    """Signs with an Ed25519 key that anybody with the seed has: for simulations and tests."""

    credential = b""

    def __init__(self, seed: int, client: int) -> None:
        self._key = _key(seed, client)

    def sign(self, content: bytes) -> bytes:
        """Return a signature."""
        return self._key.sign(content)


class SeededVerifier:
    """Checks the signatures of `SeededSigner`. Each is checked once for all simulated clients."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._good: set[bytes] = set()

    def check(self, client: int, credential: bytes, content: bytes, signature: bytes) -> None:
        """Raise `Refused` unless the client has signed the content."""
        known = hashlib.sha256(b"%d %s %s" % (client, hashlib.sha256(content).digest(), signature)).digest()
        if known in self._good:
            return
        try:
            _key(self.seed, client).public_key().verify(signature, content)
        except InvalidSignature:
            raise Refused("its signature is wrong", client) from None
        self._good.add(known)


@lru_cache(maxsize=4096)
def _key(seed: int, client: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(SeededRandomness(seed, "signing key", client).take(32))
