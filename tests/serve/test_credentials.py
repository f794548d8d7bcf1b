from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from hiflash.errors import IdentityError
from hiflash.serve.authority import make_request, make_throwaway_federation
from hiflash.serve.certificates import new_key, utc_now
from hiflash.serve.credentials import Credentials
from hiflash.serve.identity import Identity


@pytest.fixture
def folder(federation: Path, tmp_path: Path) -> Path:
    """Return a copy of the federation's certificates, to damage."""
    shutil.copytree(federation, tmp_path / "certs")
    return tmp_path / "certs"


def refused(folder: Path, who: str, said: str, **more: object) -> None:
    with pytest.raises(IdentityError, match=said) as caught:
        Credentials.load(folder, who, **more)  # type: ignore[arg-type]
    assert "PRIVATE KEY" not in str(caught.value)


def test_credentials_are_the_bytes_of_the_files(federation: Path) -> None:
    credentials = Credentials.load(federation, "edge/1")
    assert credentials.identity == Identity("hospitals", "edge", 1)
    assert credentials.ca == (federation / "ca.crt").read_bytes()
    assert credentials.certificate == (federation / "edge-1.crt").read_bytes()
    assert credentials.key == (federation / "edge-1.key").read_bytes()


def test_a_key_is_not_shown(federation: Path) -> None:
    """R21: neither its PEM nor a part of it is in what people print."""
    credentials = Credentials.load(federation, "cloud")
    secret = credentials.key.decode().splitlines()[1]
    for shown in (repr(credentials), str(credentials), f"{credentials}"):
        assert shown == "Credentials(identity=Identity(federation='hospitals', role='cloud', number=0))"
        assert secret not in shown


def test_a_role_alone_means_the_only_node_of_that_role(folder: Path) -> None:
    refused(folder, "edge", "must hold the key of one edge, or name one, like edge/3; found edge/0, edge/1")
    (folder / "edge-0.key").unlink()
    assert Credentials.load(folder, "edge").identity.label == "edge/1"
    (folder / "edge-1.key").unlink()
    refused(folder, "edge", "found none")


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ("ca.crt", r"ca\.crt is missing; copy it from the folder of the federation's CA"),
        (
            "edge-1.crt",
            r"edge-1\.crt is missing; make a request .*hiflash certs request edge/1 --name hospitals",
        ),
        ("edge-1.key", r"edge-1\.key is missing; it stays on the machine that made it"),
    ],
)
def test_a_missing_file_is_named_with_the_way_to_it(removed: str, said: str, folder: Path) -> None:
    (folder / removed).unlink()
    refused(folder, "edge/1", said)


def test_a_request_that_waits_for_approval_is_mentioned(folder: Path) -> None:
    make_request(folder, Identity("hospitals", "edge", 7))
    refused(folder, "edge/7", r"have the request approved: hiflash certs approve CA_FOLDER .*edge-7\.csr")
    (folder / "cloud.crt").unlink()
    refused(folder, "cloud", r"cloud\.crt is missing; hiflash certs init makes it")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_a_key_that_others_may_touch_is_refused(mode: int, folder: Path) -> None:
    (folder / "edge-1.key").chmod(mode)
    refused(folder, "edge/1", rf"open to other users \(mode {mode:o}\); run: chmod 600 .*edge-1\.key")


def test_a_key_of_another_node_is_refused(folder: Path) -> None:
    shutil.copy(folder / "edge-0.key", folder / "edge-1.key")
    refused(folder, "edge/1", r"edge-1\.key is not the key of .*edge-1\.crt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nonsense", "is not a key"),
        (b"x" * 65537, "is larger than 65536 bytes"),
        (
            new_key().private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            ),
            "is encrypted",
        ),
        (
            ed25519.Ed25519PrivateKey.generate().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            "is not a P-256 key",
        ),
    ],
    ids=["nonsense", "large", "encrypted", "ed25519"],
)
def test_what_is_no_usable_key_is_refused(content: bytes, said: str, folder: Path) -> None:
    (folder / "edge-1.key").write_bytes(content)
    refused(folder, "edge/1", said)


def test_a_certificate_of_another_ca_is_refused_even_if_it_has_the_same_name(
    folder: Path, tmp_path: Path
) -> None:
    make_throwaway_federation(tmp_path / "other", "hospitals", edges=2, clients=0)
    shutil.copy(tmp_path / "other/edge-1.crt", folder)
    refused(folder, "edge/1", r"edge-1\.crt was signed by another CA than .*ca\.crt")


@pytest.mark.parametrize(
    ("taken", "said"),
    [("client-1", "is for role client, not edge"), ("edge-0", "is for edge/0, not edge/1")],
)
def test_a_certificate_of_another_role_or_number_is_refused(taken: str, said: str, folder: Path) -> None:
    for suffix in ("crt", "key"):
        shutil.copy(folder / f"{taken}.{suffix}", folder / f"edge-1.{suffix}")
    refused(folder, "edge/1", said)


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (
            timedelta(days=93, minutes=1),
            r"edge-1\.crt expired 3 days ago; have it renewed: hiflash certs approve",
        ),
        (timedelta(days=90, hours=1, minutes=1), r"edge-1\.crt expired 1 hour ago"),
        (timedelta(days=3654), r"ca\.crt expired .* ago; make a new federation"),
        (timedelta(hours=-3), r"ca\.crt is not valid for another \d (hour|minute)s?; set the clock"),
    ],
)
def test_dates_are_checked_and_the_difference_is_said(later: timedelta, said: str, federation: Path) -> None:
    refused(federation, "edge/1", said, now=utc_now() + later)


def test_a_certificate_that_is_no_ca_is_not_trusted(folder: Path) -> None:
    shutil.copy(folder / "cloud.crt", folder / "ca.crt")
    refused(folder, "edge/1", r"ca\.crt is not the certificate of a CA")
    (folder / "ca.crt").write_text("nonsense")
    refused(folder, "edge/1", r"ca\.crt cannot be read")


def test_a_folder_in_place_of_a_file_is_one_error(folder: Path) -> None:
    (folder / "edge-1.crt").unlink()
    (folder / "edge-1.crt").mkdir()
    refused(folder, "edge/1", r"edge-1\.crt cannot be read: Is a directory")
