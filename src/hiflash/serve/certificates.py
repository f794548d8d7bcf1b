"""Keys, requests and certificates of a federation: X.509 with P-256 keys and one identity each.

This module makes and reads them in memory. `authority` keeps them in the folder of a federation's CA.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hiflash.errors import IdentityError
from hiflash.serve.identity import SERVER_DOMAIN, Identity, Role, parse_identity, reading

__all__ = [
    "CA_DAYS",
    "DAYS",
    "LOOPBACK",
    "Request",
    "ca_certificate",
    "certificate_pem",
    "check_days",
    "check_hosts",
    "federation_of",
    "key_fingerprint",
    "key_pem",
    "new_key",
    "new_request",
    "node_certificate",
    "read_request",
    "utc_now",
]

CA_DAYS = 3653  # ten years
DAYS = 90
EARLIER = timedelta(hours=1)  # a certificate is valid from an hour ago: clocks of machines differ
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MAX_HOSTS = 50
SERVING: tuple[Role, ...] = ("cloud", "edge")

_PURPOSES: dict[Role, list[x509.ObjectIdentifier]] = {  # what TLS lets a role do
    "cloud": [ExtendedKeyUsageOID.SERVER_AUTH],  # it never calls
    "edge": [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
    "client": [ExtendedKeyUsageOID.CLIENT_AUTH],
}


@dataclass(frozen=True)
class Request:
    """A request whose signature is right: the node has the key that belongs to this public key."""

    identity: Identity
    hosts: tuple[str, ...]
    public_key: ec.EllipticCurvePublicKey


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as PEM, not encrypted: the permissions of its file guard it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """Return a certificate or a request as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key (its DER) in hexadecimal digits."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def utc_now() -> datetime:
    """Return the time in whole seconds: certificates know no smaller unit."""
    return datetime.now(UTC).replace(microsecond=0)


def ca_certificate(key: ec.EllipticCurvePrivateKey, federation: str, now: datetime) -> x509.Certificate:
    """Return the certificate of a federation's CA: signed by itself, for nodes only, ten years."""
    name = _name("HiFlash", Identity(federation, "cloud", 0).federation)
    return (
        _builder(name, name, key.public_key(), key.public_key(), now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def federation_of(ca: x509.Certificate) -> str:
    """Return the federation that a CA certificate is for."""
    names = [str(name.value) for name in ca.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return Identity(names[0] if len(names) == 1 else "", "cloud", 0).federation


def node_certificate(
    ca_key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    asked: Request,
    now: datetime,
    days: int = DAYS,
) -> x509.Certificate:
    """Return the certificate of a node: its identity, its hosts, and what TLS lets its role do."""
    check_days(ca, days, now)
    identity = asked.identity
    subject = _name(identity.federation, identity.label)
    ca_public = ca.public_key()
    if not isinstance(ca_public, ec.EllipticCurvePublicKey):
        raise IdentityError("the key of a federation's CA is a P-256 key, this one is not")
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    if identity.role in SERVING:
        names += [x509.DNSName(identity.server_name), *map(_general_name, asked.hosts)]
    return (
        _builder(subject, ca.subject, asked.public_key, ca_public, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_PURPOSES[identity.role]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def check_days(ca: x509.Certificate, days: int, now: datetime) -> None:
    """Raise if a certificate of so many days would outlive its CA."""
    left_days = (ca.not_valid_after_utc - now).days
    if type(days) is not int or not 1 <= days <= left_days:
        raise IdentityError(
            f"a certificate is valid for 1 to {left_days} days, as long as its CA, got {days}; choose --days"
        )


def check_hosts(identity: Identity, hosts: Iterable[str]) -> tuple[str, ...]:
    """Return the host names and addresses that a node serves on in one spelling; loopback if none is given.

    A client serves nobody.
    """
    given = tuple(dict.fromkeys(_host(host) for host in hosts))
    if identity.role not in SERVING:
        if given:
            raise IdentityError(f"{identity.label} serves nobody and has no hosts; leave out --host")
        return ()
    if len(given) > MAX_HOSTS:
        raise IdentityError(f"{identity.label} names {len(given)} hosts; at most {MAX_HOSTS} are allowed")
    return given or LOOPBACK


def new_request(
    key: ec.EllipticCurvePrivateKey, identity: Identity, hosts: Sequence[str]
) -> x509.CertificateSigningRequest:
    """Return the request of a node, signed with its key."""
    names = [x509.UniformResourceIdentifier(identity.uri), *map(_general_name, hosts)]
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))  # the alternative name says it all
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )


def read_request(pem: bytes) -> Request:
    """Return what a request asks for; its key, signature, identity, hosts and extensions are checked."""
    with reading("the request"):
        asked = x509.load_pem_x509_csr(pem)
        key = asked.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise IdentityError("the request is not for a P-256 key; make it with hiflash certs request")
        if not asked.is_signature_valid:
            raise IdentityError(
                "the signature of the request is wrong: it was changed, or its key is another's"
            )
        extensions = list(asked.extensions)
    others = [e.oid.dotted_string for e in extensions if not isinstance(e.value, x509.SubjectAlternativeName)]
    if others:
        raise IdentityError(
            f"the request asks for other extensions than its names ({', '.join(others)}), and the CA decides "
            "on those; make it with hiflash certs request"
        )
    names = [name for extension in extensions for name in extension.value]
    uris = [name.value for name in names if isinstance(name, x509.UniformResourceIdentifier)]
    hosts = [str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress)]
    if len(uris) != 1 or len(uris) + len(hosts) != len(names):
        raise IdentityError(
            f"a request names one identity, and hosts; this one names {len(uris)} identities, {len(hosts)} "
            f"hosts and {len(names) - len(uris) - len(hosts)} others"
        )
    identity = parse_identity(uris[0])
    return Request(identity, check_hosts(identity, hosts), key)


def _host(text: str) -> str:
    """Return a host in the spelling of certificates: a DNS name in lower case, or an IP address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        name = text.lower()
        label = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
        # The last label of a name is no number: 10.0.0 or 1.2.3.4.5 is a mistyped address.
        if len(name) > 253 or not re.fullmatch(rf"({label}\.)*(?![0-9]+$){label}", name):
            raise IdentityError(
                f"a host is a DNS name like edge3.example.org or an IP address, got {text[:100]!r}"
            ) from None
        if name.endswith(SERVER_DOMAIN):  # or an edge could ask for the name of the cloud
            raise IdentityError(
                f"names in {SERVER_DOMAIN} follow from identities; leave out host {name}"
            ) from None
        return name
    if address.is_unspecified or address.is_multicast or "%" in text:
        raise IdentityError(f"a host is an address that others dial, got {text}")
    return str(address)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(organisation: str, common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
