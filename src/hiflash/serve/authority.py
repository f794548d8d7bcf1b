"""The CA of a federation in a folder: it approves the requests of nodes, and denies nodes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from hiflash.errors import IdentityError, StorageError
from hiflash.serve.approvals import Approval, add_approval, add_denied, read_approvals, read_denylist
from hiflash.serve.certificates import (
    DAYS,
    LOOPBACK,
    Request,
    ca_certificate,
    certificate_pem,
    check_days,
    check_hosts,
    federation_of,
    key_fingerprint,
    key_pem,
    new_key,
    new_request,
    node_certificate,
    read_request,
    utc_now,
)
from hiflash.serve.credentials import CA_FILE, check_validity, read_ca, read_file, read_key
from hiflash.serve.identity import Identity, fingerprint, parse_label
from hiflash.store.files import replacing, storing, write_atomic, write_new

__all__ = [
    "Authority",
    "Proposal",
    "create_federation",
    "make_request",
    "make_throwaway_federation",
    "opened",
]

CA_KEY = "ca.key"
CLOUD = "cloud"  # the folder with the cloud's own files, to copy to its machine
PRIVATE = 0o600  # of keys; everything else may be read by all


@dataclass(frozen=True)
class Proposal:
    """What a CA is about to sign, and the folder where the certificate goes."""

    asked: Request
    days: int
    folder: Path


@dataclass(frozen=True)
class Authority:
    """A federation's CA whose folder is locked; `opened` gives one."""

    folder: Path
    ca: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def federation(self) -> str:
        """The federation that this CA is for."""
        return federation_of(self.ca)

    def examine(
        self,
        path: Path,
        *,
        hosts: Sequence[str] = (),
        days: int = DAYS,
        renew: bool = False,
        key: str | None = None,
    ) -> Proposal:
        """Return what approving a request would sign, or say why it is refused.

        `hosts` replaces the hosts that the request asks for; `key` is the fingerprint that its key must have.
        """
        asked = read_request(read_file(path, "hiflash certs request makes a request; name its file"))
        self._check_key(asked, key)
        self._check_identity(asked, renew)
        if hosts:
            asked = replace(asked, hosts=check_hosts(asked.identity, hosts))
        check_days(self.ca, days, utc_now())
        certificate, ca = path.parent / f"{asked.identity.stem}.crt", path.parent / CA_FILE
        if certificate.exists() and not renew:
            raise IdentityError(f"{certificate} exists already; move it away")
        if ca.exists() and read_file(ca, "copy it from the CA") != certificate_pem(self.ca):
            raise IdentityError(f"{ca} is there and of another CA; move the request to a folder of its own")
        return Proposal(asked, days, path.parent)

    def sign(self, proposal: Proposal) -> Approval:
        """Sign what `examine` returned; write the certificate and the CA's into the folder of the request."""
        approval, certificate = _signed(self.key, self.ca, proposal.asked, proposal.days)
        # The index first: a certificate that it does not list could not be denied.
        add_approval(self.folder, approval)
        try:
            write_atomic(proposal.folder / f"{approval.identity.stem}.crt", certificate)
            if not (proposal.folder / CA_FILE).exists():
                write_atomic(proposal.folder / CA_FILE, certificate_pem(self.ca))
        except StorageError as error:
            raise StorageError(error.what, "give the same command again with --renew") from error
        return approval

    def deny(self, who: str) -> list[Approval]:
        """Add the certificates of a node such as `edge/3` to the denylist; return the new ones there."""
        identity = parse_label(who, self.federation)
        if identity.role == "cloud":
            raise IdentityError(
                "nobody can go on without the cloud; make a new federation: hiflash certs init"
            )
        denied = read_denylist(self.folder)
        approvals = [a for a in read_approvals(self.folder) if a.identity == identity]
        if not approvals:
            raise IdentityError(
                f"{identity.label} was never approved; hiflash certs list {self.folder} shows all"
            )
        new = [approval for approval in approvals if approval.fingerprint not in denied]
        if new:
            add_denied(self.folder, new)
        return new

    def _check_key(self, asked: Request, expected: str | None) -> None:
        """Refuse another key than the expected one, and a key that was denied, with whichever identity."""
        key = key_fingerprint(asked.public_key)
        if expected is not None and expected.lower().replace(":", "") != key:
            raise IdentityError(
                f"the request has the key {key}, not {expected}: it is not the one you expect"
            )
        denied = read_denylist(self.folder)
        for approval in read_approvals(self.folder):
            if approval.key == key and approval.fingerprint in denied:
                raise IdentityError(
                    f"this key was denied with {approval.identity.label}; make a request with a new key: "
                    f"hiflash certs request {asked.identity.label} --name {self.federation} --out ANOTHER"
                )

    def _check_identity(self, asked: Request, renew: bool) -> None:
        """Refuse another federation, another cloud, and an approved identity that is not to be renewed."""
        identity = asked.identity
        if identity.federation != self.federation:
            raise IdentityError(
                f"the request is for federation {identity.federation}, and this CA for {self.federation}"
            )
        before = [approval for approval in read_approvals(self.folder) if approval.identity == identity]
        same_key = any(approval.key == key_fingerprint(asked.public_key) for approval in before)
        if identity.role == "cloud" and not (renew and same_key):
            raise IdentityError(
                "the cloud's certificate comes from hiflash certs init; a request for it is only approved to "
                f"renew it with the same key: hiflash certs approve {self.folder} "
                f"{self.folder / CLOUD / 'cloud.csr'} --renew"
            )
        if before and not renew:
            raise IdentityError(
                f"{identity.label} was approved already, until {max(a.not_after for a in before):%Y-%m-%d}; "
                "choose another number, or give --renew if it is the same node"
            )
        if renew and not before:
            raise IdentityError(f"{identity.label} was never approved; leave out --renew")


def create_federation(folder: Path, federation: str, hosts: Sequence[str] = ()) -> tuple[Approval, str]:
    """Make the folder of a new CA, with the cloud's files in `cloud/`: all of it or nothing.

    Return the approval of the cloud and the fingerprint of the CA's certificate.
    """
    identity = Identity(federation, "cloud", 0)
    checked = check_hosts(identity, hosts)
    _refuse_if_used(folder)
    key = new_key()
    ca = ca_certificate(key, federation, utc_now())
    with replacing(folder) as made:
        made.mkdir(mode=0o700)
        (made / CLOUD).mkdir(mode=0o700)
        write_atomic(made / CA_KEY, key_pem(key), PRIVATE)
        write_atomic(made / CA_FILE, certificate_pem(ca))
        cloud_key = new_key()
        _write_request(made / CLOUD, identity, cloud_key, checked)
        asked = Request(identity, checked, cloud_key.public_key())
        approval = Authority(made, ca, key).sign(Proposal(asked, DAYS, made / CLOUD))
    return approval, fingerprint(certificate_pem(ca))


@contextmanager
def opened(folder: Path) -> Iterator[Authority]:
    """Yield the CA in a folder. Other processes wait until this one is done with it."""
    otherwise = "hiflash certs init makes the folder of a CA; name that one"
    pem = read_file(folder / CA_FILE, otherwise)
    ca = read_ca(folder / CA_FILE, pem)
    check_validity(folder / CA_FILE, ca, utc_now(), "make a new federation: hiflash certs init")
    if not (folder / CA_KEY).is_file():
        raise IdentityError(f"{folder / CA_KEY} is missing; {otherwise}")
    key = read_key(folder / CA_KEY)[1]
    public = ca.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey) or key.public_key() != public:
        raise IdentityError(f"{folder / CA_KEY} is not the key of {folder / CA_FILE}; put back the right one")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield Authority(folder, ca, key)
    finally:
        os.close(handle)


def make_request(folder: Path, identity: Identity, hosts: Sequence[str] = ()) -> str:
    """Make a node's key and request in a folder on its machine; return the fingerprint of the key."""
    if identity.role == "cloud":
        raise IdentityError(
            "hiflash certs init makes the cloud's key and certificate; request edge/N or client/N"
        )
    checked = check_hosts(identity, hosts)
    for suffix in ("key", "csr", "crt"):
        path = folder / f"{identity.stem}.{suffix}"
        if path.exists():
            raise IdentityError(
                f"{path} exists already; to renew its certificate approve the request {identity.stem}.csr "
                "again with --renew, or choose another --out"
            )
    key = new_key()
    with storing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_request(folder, identity, key, checked)
    return key_fingerprint(key.public_key())


def make_throwaway_federation(
    folder: Path, federation: str, edges: int, clients: int, hosts: Sequence[str] = LOOPBACK
) -> None:
    """Make keys and certificates of a cloud, edges 0.. and clients 0.. in one folder that is soon removed.

    Nobody can join later: the key of its CA is never written. Nothing waits for the disk.
    """
    key, now = new_key(), utc_now()
    ca = ca_certificate(key, federation, now)
    nodes = [Identity(federation, "cloud", 0)]
    nodes += [Identity(federation, "edge", number) for number in range(edges)]
    nodes += [Identity(federation, "client", number) for number in range(clients)]
    with storing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(folder / CA_FILE, certificate_pem(ca))
        for identity in nodes:
            node_key = new_key()
            served = check_hosts(identity, () if identity.role == "client" else hosts)
            _, certificate = _signed(key, ca, Request(identity, served, node_key.public_key()), DAYS)
            write_new(folder / f"{identity.stem}.key", key_pem(node_key), PRIVATE)
            write_new(folder / f"{identity.stem}.crt", certificate)


def _signed(
    key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, asked: Request, days: int
) -> tuple[Approval, bytes]:
    certificate = node_certificate(key, ca, asked, utc_now(), days)
    pem = certificate_pem(certificate)
    approval = Approval(
        identity=asked.identity,
        hosts=asked.hosts,
        key=key_fingerprint(asked.public_key),
        serial=f"{certificate.serial_number:x}",
        fingerprint=fingerprint(pem),
        not_after=certificate.not_valid_after_utc,
    )
    return approval, pem


def _write_request(
    folder: Path,
    identity: Identity,
    key: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str],
) -> None:
    request = new_request(key, identity, hosts)
    write_atomic(folder / f"{identity.stem}.key", key_pem(key), PRIVATE)
    write_atomic(folder / f"{identity.stem}.csr", certificate_pem(request))


def _refuse_if_used(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise IdentityError(
            f"{folder} exists already, and a federation needs a new folder; choose another, "
            "or see what it has: hiflash certs list"
        )
