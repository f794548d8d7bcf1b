"""What a node shows and trusts on TLS connections, read from its folder and checked before it is used."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hiflash.errors import IdentityError
from hiflash.serve.certificates import federation_of, key_fingerprint, utc_now
from hiflash.serve.identity import ROLES, Identity, identity_of, parse_label, reading

__all__ = ["CA_FILE", "MAX_BYTES", "Credentials", "check_validity", "read_ca", "read_file", "read_key"]

CA_FILE = "ca.crt"
MAX_BYTES = 65536  # of any file here: a certificate has about 1,000


@dataclass(frozen=True)
class Credentials:
    """A node's identity, the CA that it trusts, its certificate and its key, all three as PEM."""

    identity: Identity
    ca: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @classmethod
    def load(cls, folder: Path, who: str, now: datetime | None = None) -> Credentials:
        """Return the credentials of a node such as `cloud` or `edge/3` from a folder.

        A role alone, such as `edge`, means the only node of that role in the folder. Errors say which file
        is missing or wrong, and what helps.
        """
        now = now or utc_now()
        ca_pem = read_file(folder / CA_FILE, "copy it from the folder of the federation's CA")
        ca = read_ca(folder / CA_FILE, ca_pem)
        expected = parse_label(_only_node(folder, who), federation_of(ca))
        path = folder / f"{expected.stem}.crt"
        certificate_pem = read_file(path, _way_to_a_certificate(folder, expected))
        with reading(str(path)):
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        try:
            certificate.verify_directly_issued_by(ca)
        except (ValueError, TypeError, InvalidSignature):
            raise IdentityError(
                f"{path} was signed by another CA than {folder / CA_FILE}; copy both from the same federation"
            ) from None
        _check_identity(path, identity_of(certificate_pem), expected)
        check_validity(folder / CA_FILE, ca, now, "make a new federation: hiflash certs init")
        again = f"have it renewed: hiflash certs approve CA_FOLDER {expected.stem}.csr --renew"
        check_validity(path, certificate, now, again)
        key_path = folder / f"{expected.stem}.key"
        key_pem, key = read_key(key_path)
        if key_fingerprint(key.public_key()) != _key_fingerprint_of(path, certificate):
            raise IdentityError(f"{key_path} is not the key of {path}; put back the key of its request")
        return cls(expected, ca_pem, certificate_pem, key_pem)


def read_file(path: Path, otherwise: str) -> bytes:
    """Return the content of a small file; `otherwise` says what helps if it is not there."""
    return _read(path, otherwise, private=False)


def read_key(path: Path) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """Return a key as PEM and as an object; its file must be closed to everybody but its owner."""
    pem = _read(path, "it stays on the machine that made it; make a new one with a new request", private=True)
    try:
        key = serialization.load_pem_private_key(pem, None)
    except TypeError:
        raise IdentityError(
            f"{path} is encrypted; HiFlash reads keys that are guarded by their mode"
        ) from None
    except ValueError:  # says nothing about the content: it is a key
        raise IdentityError(f"{path} is not a key; put back the file, or make a new request") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError(f"{path} is not a P-256 key; make one with hiflash certs request")
    return pem, key


def read_ca(path: Path, pem: bytes) -> x509.Certificate:
    """Return the certificate of a federation's CA."""
    with reading(str(path)):
        ca = x509.load_pem_x509_certificate(pem)
        try:
            ca.verify_directly_issued_by(ca)
            constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints).value
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            constraints = None
    if constraints is None or not constraints.ca:
        raise IdentityError(f"{path} is not the certificate of a CA; copy it from the folder of the CA")
    return ca


def check_validity(path: Path, certificate: x509.Certificate, now: datetime, otherwise: str) -> None:
    """Raise, and say by how much, if a certificate is not valid yet or no longer."""
    if now > certificate.not_valid_after_utc:
        ago = _span(now - certificate.not_valid_after_utc)
        raise IdentityError(f"{path} expired {ago} ago; {otherwise}")
    if now < certificate.not_valid_before_utc:
        wait = _span(certificate.not_valid_before_utc - now)
        raise IdentityError(f"{path} is not valid for another {wait}; set the clock of this machine")


def _read(path: Path, otherwise: str, private: bool) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if private and stat.S_IMODE(mode) & 0o077:
                raise IdentityError(
                    f"{path} is open to other users (mode {stat.S_IMODE(mode):o}); run: chmod 600 {path}"
                )
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise IdentityError(f"{path} is missing; {otherwise}") from None
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise IdentityError(f"{path} is larger than {MAX_BYTES} bytes: it is something else")
    return data


def _only_node(folder: Path, who: str) -> str:
    """Return the label of a node; for a role alone, that of the only such node in the folder."""
    if who not in ROLES or who == "cloud":
        return who
    stems = sorted(path.stem for path in folder.glob(f"{who}-*.key"))
    if len(stems) != 1:
        found = ", ".join(stem.replace("-", "/") for stem in stems[:10]) or "none"
        raise IdentityError(
            f"{folder} must hold the key of one {who}, or name one, like {who}/3; found {found}"
        )
    return stems[0].replace("-", "/")


def _way_to_a_certificate(folder: Path, identity: Identity) -> str:
    request = folder / f"{identity.stem}.csr"
    if request.is_file():
        return f"have the request approved: hiflash certs approve CA_FOLDER {request}"
    if identity.role == "cloud":
        return "hiflash certs init makes it"
    return (
        "make a request and have it approved: "
        f"hiflash certs request {identity.label} --name {identity.federation} --out {folder}"
    )


def _check_identity(path: Path, found: Identity, expected: Identity) -> None:
    if found.federation != expected.federation:
        raise IdentityError(f"{path} is for federation {found.federation}, not {expected.federation}")
    if found.role != expected.role:
        raise IdentityError(
            f"{path} is for role {found.role}, not {expected.role}; use the files of the node"
        )
    if found != expected:
        raise IdentityError(f"{path} is for {found.label}, not {expected.label}; use the files of the node")


def _key_fingerprint_of(path: Path, certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise IdentityError(f"{path} is not for a P-256 key; make one with hiflash certs request")
    return key_fingerprint(key)


def _span(time: timedelta) -> str:
    """Return a time in its largest unit: 3 days, 5 hours."""
    seconds = int(time.total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}{'s' if seconds >= 2 * length else ''}"
    return f"{seconds} second{'' if seconds == 1 else 's'}"
