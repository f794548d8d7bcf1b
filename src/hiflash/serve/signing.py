"""Signatures of clients in secure sums: with the keys of their certificates, checked against the CA."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hiflash.errors import IdentityError
from hiflash.privacy.sums.messages import Refused
from hiflash.serve.certificates import utc_now
from hiflash.serve.credentials import Credentials
from hiflash.serve.identity import Role, check_peer

__all__ = ["CertificateSigner", "CertificateVerifier"]

MOST_BYTES = 4096  # of a certificate
CLIENTS: tuple[Role, ...] = ("client",)


class CertificateSigner:
    """Signs with the key of a client's certificate, which goes with its signatures.

    TLS signs with this key as well. What TLS signs begins with 64 spaces, and what is signed here does not.
    """

    def __init__(self, credentials: Credentials) -> None:
        certificate = x509.load_pem_x509_certificate(credentials.certificate)
        self.credential = certificate.public_bytes(serialization.Encoding.DER)
        key = serialization.load_pem_private_key(credentials.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise IdentityError("the key of a node is a P-256 key, this one is not")
        self._key = key

    def sign(self, content: bytes) -> bytes:
        """Return a signature."""
        return self._key.sign(content, ec.ECDSA(hashes.SHA256()))


class CertificateVerifier:
    """Checks that a signature is of a client of this federation whose certificate counts.

    `denied` are fingerprints of certificates that no longer do.
    """

    def __init__(self, credentials: Credentials, denied: Collection[str] = ()) -> None:
        self.federation = credentials.identity.federation
        self.ca = x509.load_pem_x509_certificate(credentials.ca)
        self.denied = frozenset(denied)
        self._certificate = lru_cache(maxsize=4096)(self._read)  # a client has one for months

    def check(self, client: int, credential: bytes, content: bytes, signature: bytes) -> None:
        """Raise `Refused`, with the client's name, unless it has signed the content."""
        number, key, until = self._certificate(client, credential)
        if number != client:
            raise Refused(f"its certificate is that of client {number}", client)
        if utc_now() > until:
            raise Refused("its certificate has expired", client)
        try:
            key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise Refused("its signature is wrong", client) from None

    def _read(self, client: int, credential: bytes) -> tuple[int, ec.EllipticCurvePublicKey, datetime]:
        """Return whose certificate this is, its key, and how long it counts."""
        if len(credential) > MOST_BYTES:
            raise Refused(f"a certificate of {len(credential)} bytes is too long", client)
        try:
            certificate = x509.load_der_x509_certificate(credential)
            certificate.verify_directly_issued_by(self.ca)
            identity = check_peer(credential, self.federation, CLIENTS, self.denied)
            key = certificate.public_key()
        except (ValueError, TypeError, InvalidSignature, IdentityError) as error:
            said = str(error) or "it is of another CA"
            raise Refused(f"its certificate does not count: {said}", client) from None
        if not isinstance(key, ec.EllipticCurvePublicKey) or utc_now() < certificate.not_valid_before_utc:
            raise Refused("its certificate does not count", client)
        return identity.number, key, certificate.not_valid_after_utc
