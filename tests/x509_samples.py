"""Certificates and requests that HiFlash itself would never make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

__all__ = ["certificate_with", "request_with"]


@lru_cache
def certificate_with(*uris: str) -> bytes:
    """Return a certificate, signed by itself, with any URIs and a DNS name."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    names = [x509.DNSName("localhost"), *map(x509.UniformResourceIdentifier, uris)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def request_with(
    names: list[x509.GeneralName],
    *extensions: x509.ExtensionType,
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | None = None,
) -> bytes:
    """Return a request with these names, if any, and other extensions."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    for extension in ([x509.SubjectAlternativeName(names)] if names else []) + list(extensions):
        builder = builder.add_extension(extension, critical=False)
    key = key or ec.generate_private_key(ec.SECP256R1())
    hash_of = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, hash_of).public_bytes(serialization.Encoding.PEM)
