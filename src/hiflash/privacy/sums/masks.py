"""Keys and masks: X25519 agreements, HKDF with all that a key is for, and ChaCha20 key streams.

Seeds have 256 bits from end to end. A mask is the key stream itself, taken as words modulo 2^32.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hiflash.privacy.sums.messages import KEY_BYTES, Refused, Terms, Words, pack

__all__ = [
    "SecretKey",
    "add_mask",
    "commit",
    "common_secret",
    "load_key",
    "open_box",
    "pair_key",
    "public_key",
    "seal",
    "self_key",
    "tag",
    "usable",
]

CHUNK_BYTES = 1 << 18  # of a key stream at once: it stays in the cache
_ZEROS = bytes(CHUNK_BYTES)
_NONCE = bytes(12)  # every key is used once
_ANY_SECRET = bytes(range(32))  # with any secret key, a point of small order gives zero
SecretKey: TypeAlias = X25519PrivateKey


def load_key(secret: bytes) -> SecretKey:
    """Return a secret key, ready for many agreements."""
    return X25519PrivateKey.from_private_bytes(secret)


def public_key(secret: SecretKey) -> bytes:
    """Return the public key that belongs to a secret one."""
    return secret.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def pair_key(secret: SecretKey, peer: bytes, terms: Terms, one: int, other: int) -> bytes:
    """Return the key of the mask that two clients share; it is the same on both sides."""
    return _derive(common_secret(secret, peer), terms, "pair mask", min(one, other), max(one, other))


def self_key(seed: bytes, terms: Terms, client: int) -> bytes:
    """Return the key of a client's own mask."""
    return _derive(seed, terms, "self mask", client, client)


def commit(seed: bytes, terms: Terms, client: int) -> bytes:
    """Return a hash that binds a client to the seed of its own mask, and does not tell it."""
    return hashlib.sha256(pack(b"commit", terms.context(), client, seed)).digest()


def add_mask(vector: Words, key: bytes, *, minus: bool = False) -> None:
    """Add the mask of a key to a vector in place, or take it away."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    buffer = bytearray(CHUNK_BYTES)
    mask, zeros = np.frombuffer(buffer, "<u4"), memoryview(_ZEROS)
    combine = np.subtract if minus else np.add
    for start in range(0, vector.size, mask.size):
        part = vector[start : start + mask.size]
        stream.update_into(zeros[: part.nbytes], buffer)
        combine(part, mask[: part.size], out=part)


def common_secret(secret: SecretKey, peer: bytes) -> bytes:
    """Return the secret that two key pairs have in common, which keys are derived from."""
    try:
        return secret.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:  # a point of small order, which gives the same secret to everybody
        raise Refused("a public key cannot be used") from None


@lru_cache(maxsize=4096)  # all clients of a simulation look at the same keys
def usable(public: bytes) -> bool:
    """Return whether a public key gives secrets: a point of small order gives the same one to everybody."""
    try:
        common_secret(load_key(_ANY_SECRET), public)
    except Refused:
        return False
    return True


def seal(common: bytes, terms: Terms, sender: int, receiver: int, about: bytes, content: bytes) -> bytes:
    """Return content that only the receiver can open, and that only the sender can have sealed.

    `common` is their common secret. Both must have seen the same `about`.
    """
    key = _derive(common, terms, "box", sender, receiver)
    return ChaCha20Poly1305(key).encrypt(_NONCE, content, pack(about, sender, receiver))


def open_box(common: bytes, terms: Terms, sender: int, receiver: int, about: bytes, sealed: bytes) -> bytes:
    """Return the content of a box, or raise `Refused` with the sender's name."""
    key = _derive(common, terms, "box", sender, receiver)
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, pack(about, sender, receiver))
    except (InvalidTag, ValueError):
        raise Refused(f"its box for client {receiver} cannot be opened", sender) from None


def tag(common: bytes, terms: Terms, sender: int, receiver: int, content: bytes) -> bytes:
    """Return what proves to the receiver that the sender has seen the same content."""
    key = _derive(common, terms, "tag", sender, receiver)
    return hmac.digest(key, content, "sha256")


def _derive(secret: bytes, terms: Terms, purpose: str, one: int, other: int) -> bytes:
    about = pack(purpose, terms.context(), one, other)
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=about).derive(secret)
