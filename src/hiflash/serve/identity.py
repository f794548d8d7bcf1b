"""Who a node of a federation is: a role and a number, written as a URI in its certificate."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast, get_args

from hiflash.errors import IdentityError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

__all__ = [
    "MAX_NUMBER",
    "ROLES",
    "SERVER_DOMAIN",
    "Identity",
    "Role",
    "check_peer",
    "fingerprint",
    "identity_of",
    "parse_identity",
    "parse_label",
    "reading",
]

Role = Literal["cloud", "edge", "client"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_NUMBER = 999_999_999
SERVER_DOMAIN = "hiflash.internal"  # .internal is reserved for names that the public DNS does not have
SHOWN = 100  # characters of a wrong value in an error

_FEDERATION = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"  # one label of a DNS name
_LABEL = "(cloud)|(edge|client)/(0|[1-9][0-9]{0,8})"


@dataclass(frozen=True)
class Identity:
    """A node of a federation; there is one cloud, and its number is 0.

    >>> Identity("hospitals", "edge", 3).uri
    'spiffe://hospitals/edge/3'
    >>> Identity("hospitals", "cloud", 0).uri
    'spiffe://hospitals/cloud'
    """

    federation: str
    role: Role
    number: int

    def __post_init__(self) -> None:
        if not isinstance(self.federation, str) or not re.fullmatch(_FEDERATION, self.federation):
            raise IdentityError(
                "the name of a federation has 1 to 63 lower-case letters, digits and hyphens, and no hyphen "
                f"at its ends, got {_shown(self.federation)}"
            )
        if self.role not in ROLES:
            raise IdentityError(f"a role is one of {', '.join(ROLES)}, got {_shown(self.role)}")
        largest = 0 if self.role == "cloud" else MAX_NUMBER
        if type(self.number) is not int or not 0 <= self.number <= largest:
            raise IdentityError(
                f"the number of this {self.role} must be in 0..{largest}, got {_shown(self.number)}"
            )

    @property
    def label(self) -> str:
        """Role and number, as people write them: `edge/3`."""
        return self.role if self.role == "cloud" else f"{self.role}/{self.number}"

    @property
    def uri(self) -> str:
        """The URI in the certificate."""
        return f"spiffe://{self.federation}/{self.label}"

    @property
    def stem(self) -> str:
        """The name of the node's files, without a suffix: `edge-3`."""
        return self.label.replace("/", "-")

    @property
    def server_name(self) -> str:
        """The DNS name that the certificate of a cloud or edge has beside its hosts.

        A caller that asks TLS for this name instead of the host's gets this node and no other, wherever it
        runs. gRPC shows a caller no certificate of the server, so a name is the only thing it can check.
        """
        return f"{self.stem}.{self.federation}.{SERVER_DOMAIN}"

    def __str__(self) -> str:
        return self.uri


def parse_identity(uri: str) -> Identity:
    """Return the identity that a URI names; whatever `Identity.uri` would not print is an error.

    >>> parse_identity("spiffe://hospitals/client/17").label
    'client/17'
    """
    found = re.fullmatch(f"spiffe://({_FEDERATION})/(?:{_LABEL})", uri) if isinstance(uri, str) else None
    if found is None:
        raise IdentityError(
            "an identity is like spiffe://FEDERATION/cloud, spiffe://FEDERATION/edge/3 or "
            f"spiffe://FEDERATION/client/17, got {_shown(uri)}"
        )
    federation, cloud, role, number = found.groups()
    return Identity(federation, cast(Role, cloud or role), int(number or 0))


def parse_label(label: str, federation: str) -> Identity:
    """Return the identity that a label such as `edge/3` names in a federation."""
    found = re.fullmatch(_LABEL, label)
    if found is None:
        raise IdentityError(f"a node is cloud, or like edge/3 or client/17, got {_shown(label)}")
    return Identity(federation, cast(Role, found[1] or found[2]), int(found[3] or 0))


def identity_of(certificate: bytes) -> Identity:
    """Return the identity in a certificate (PEM or DER), which must hold exactly one URI.

    This reads and does not verify: use it on a certificate that TLS has accepted.
    """
    from cryptography import x509

    with reading("the certificate"):
        try:
            names = _parsed(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        except x509.ExtensionNotFound:
            uris = []
    if len(uris) != 1:
        raise IdentityError(f"a certificate names one identity, this one names {len(uris)}")
    return parse_identity(uris[0])


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate (PEM or DER) in hexadecimal digits, as other tools count it."""
    from cryptography.hazmat.primitives.hashes import SHA256

    with reading("the certificate"):
        return _parsed(certificate).fingerprint(SHA256()).hex()


def check_peer(
    certificate: bytes, federation: str, roles: Collection[Role], denied: Collection[str] = ()
) -> Identity:
    """Return who the peer of a TLS connection is, if it has one of these roles and was not denied.

    TLS has verified the certificate's signature and dates. `denied` holds fingerprints.
    """
    identity = identity_of(certificate)
    if identity.federation != federation:
        raise IdentityError(f"{identity} is of another federation than {federation}")
    if identity.role not in roles:
        raise IdentityError(f"{identity.label} may not do this: it is for {' and '.join(sorted(roles))}")
    if denied and fingerprint(certificate) in denied:
        raise IdentityError(f"{identity.label} was denied")
    return identity


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what `cryptography` raises on malformed bytes into one `IdentityError`."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        yield
    except (
        ValueError,
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise IdentityError(f"{what} cannot be read: {error}") from None


def _parsed(certificate: bytes) -> Certificate:
    from cryptography import x509

    if certificate.lstrip().startswith(b"-----BEGIN"):
        return x509.load_pem_x509_certificate(certificate)
    return x509.load_der_x509_certificate(certificate)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
