from __future__ import annotations

import os
import re
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

from cryptography import x509

from hiflash.errors import IdentityError, StorageError
from hiflash.serve.approvals import Approval, read_approvals, read_denylist
from hiflash.serve.authority import create_federation, make_request, make_throwaway_federation, opened
from hiflash.serve.certificates import utc_now
from hiflash.serve.credentials import Credentials
from hiflash.serve.identity import Identity, fingerprint, identity_of, parse_label
from x509_samples import request_with


def request(folder: Path, label: str, *hosts: str, federation: str = "hospitals") -> Path:
    identity = parse_label(label, federation)
    make_request(folder, identity, hosts)
    return folder / f"{identity.stem}.csr"


def approve(
    ca_folder: Path, path: Path, *hosts: str, renew: bool = False, key: str | None = None
) -> Approval:
    with opened(ca_folder) as ca:
        return ca.sign(ca.examine(path, hosts=hosts, renew=renew, key=key))


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in [folder, *folder.rglob("*")]
    }


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_federation_has_a_ca_and_a_cloud(ca_folder: Path) -> None:
    assert modes(ca_folder) == {
        ".": 0o700,
        "ca.key": 0o600,
        "ca.crt": 0o644,
        "approved.jsonl": 0o644,
        "cloud": 0o700,
        "cloud/ca.crt": 0o644,
        "cloud/cloud.csr": 0o644,
        "cloud/cloud.crt": 0o644,
        "cloud/cloud.key": 0o600,
    }
    assert Credentials.load(ca_folder / "cloud", "cloud").identity == Identity("hospitals", "cloud", 0)
    assert [entry.name for entry in ca_folder.parent.iterdir()] == ["federation"]


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_keys_are_created_closed_and_never_opened(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R21: the mode is that of the first moment; nothing changes it afterwards."""
    created: dict[str, int] = {}
    really_open = os.open

    def note(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        if flags & os.O_CREAT:
            created[str(path)] = mode
        return really_open(path, flags, mode, **more)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a mode was changed")

    monkeypatch.setattr(os, "open", note)
    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)
    before = os.umask(umask)
    try:
        create_federation(tmp_path / "federation", "hospitals")
        make_request(tmp_path / "node", Identity("hospitals", "edge", 3))
        make_throwaway_federation(tmp_path / "up", "try", 1, 1)
    finally:
        os.umask(before)
    keys = [mode for path, mode in created.items() if ".key" in path]
    assert keys == [0o600] * 6  # CA, cloud, edge/3; cloud, edge/0, client/0
    for path in tmp_path.rglob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("federation", "node", "up")] == [
        0o700
    ] * 3


def test_a_key_never_leaves_the_folder_of_its_node(ca_folder: Path, tmp_path: Path) -> None:
    """R21: no private key in a request, a certificate, the index or the folder of the CA."""
    approve(ca_folder, request(tmp_path / "node", "edge/3"))
    secrets = {path: path.read_bytes().splitlines()[1] for path in tmp_path.rglob("*.key")}
    assert len(secrets) == 3
    for key, secret in secrets.items():
        holders = [path for path, content in contents(tmp_path).items() if secret in content]
        assert holders == [key]


@pytest.mark.parametrize("there", ["ca.key", "notes.txt"])
def test_a_folder_with_files_is_not_made_a_federation(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(IdentityError, match="exists already, and a federation needs a new folder"):
        create_federation(tmp_path, "hospitals")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {there: "mine"}


def test_an_empty_folder_becomes_a_closed_one(tmp_path: Path) -> None:
    (tmp_path / "federation").mkdir(mode=0o755)
    create_federation(tmp_path / "federation", "hospitals")
    assert modes(tmp_path / "federation")["."] == 0o700


def test_a_federation_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    fsync = os.fsync

    def fail_later(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 7:
            raise OSError(28, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fail_later)
    with pytest.raises(StorageError, match="No space left on device; make room"):
        create_federation(tmp_path / "federation", "hospitals")
    assert list(tmp_path.iterdir()) == []


def test_an_approved_node_has_credentials(ca_folder: Path, tmp_path: Path) -> None:
    path = request(tmp_path / "node", "edge/3", "edge3.example.org", "10.0.0.7")
    approval = approve(ca_folder, path)
    assert approval.identity == Identity("hospitals", "edge", 3)
    assert approval.hosts == ("edge3.example.org", "10.0.0.7")
    assert read_approvals(ca_folder)[1:] == [approval]
    certificate = (tmp_path / "node/edge-3.crt").read_bytes()
    assert approval.fingerprint == fingerprint(certificate)
    assert int(approval.serial, 16) == x509.load_pem_x509_certificate(certificate).serial_number
    assert abs(approval.not_after - utc_now() - timedelta(days=90)) < timedelta(minutes=1)
    assert Credentials.load(tmp_path / "node", "edge/3").certificate == certificate


def test_the_approver_may_replace_the_hosts(ca_folder: Path, tmp_path: Path) -> None:
    path = request(tmp_path / "node", "edge/3", "edge3.example.org")
    assert approve(ca_folder, path, "10.0.0.7").hosts == ("10.0.0.7",)
    names = x509.load_pem_x509_certificate((tmp_path / "node/edge-3.crt").read_bytes()).extensions
    assert "edge3.example.org" not in str(names.get_extension_for_class(x509.SubjectAlternativeName))
    with pytest.raises(IdentityError, match="client/1 serves nobody"):
        approve(ca_folder, request(tmp_path / "node", "client/1"), "10.0.0.7")


def test_a_request_of_another_federation_is_refused(ca_folder: Path, tmp_path: Path) -> None:
    path = request(tmp_path / "node", "edge/3", federation="banks")
    refused(ca_folder, path, "the request is for federation banks, and this CA for hospitals")


def test_a_request_for_the_cloud_is_refused_unless_it_renews_the_same_key(
    ca_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(IdentityError, match="hiflash certs init makes the cloud's key"):
        make_request(tmp_path / "node", Identity("hospitals", "cloud", 0))
    (tmp_path / "cloud.csr").write_bytes(
        request_with([x509.UniformResourceIdentifier("spiffe://hospitals/cloud")])
    )
    refused(ca_folder, tmp_path / "cloud.csr", "the cloud's certificate comes from hiflash certs init")
    refused(ca_folder, tmp_path / "cloud.csr", "the cloud's certificate comes from", renew=True)
    refused(ca_folder, ca_folder / "cloud/cloud.csr", "the cloud's certificate comes from")
    before = (ca_folder / "cloud/cloud.crt").read_bytes()
    approve(ca_folder, ca_folder / "cloud/cloud.csr", renew=True)
    assert Credentials.load(ca_folder / "cloud", "cloud").certificate != before


def test_a_request_that_is_refused_in_memory_is_refused_here(ca_folder: Path, tmp_path: Path) -> None:
    """The reasons are in test_certificates.py; one of each way to fail is enough here."""
    uri = x509.UniformResourceIdentifier("spiffe://hospitals/edge/3")
    path = tmp_path / "edge-3.csr"
    path.write_bytes(request_with([uri], x509.BasicConstraints(ca=True, path_length=None)))
    refused(ca_folder, path, "other extensions")
    path.write_bytes(b"nonsense")
    refused(ca_folder, path, "the request cannot be read")


def test_another_key_than_the_expected_one_is_refused(ca_folder: Path, tmp_path: Path) -> None:
    path = request(tmp_path / "node", "edge/3")
    refused(ca_folder, path, "it is not the one you expect", key="00" * 32)
    key = make_request(tmp_path / "other", Identity("hospitals", "edge", 4))
    spelled = ":".join(re.findall("..", key.upper()))  # as openssl prints it
    assert approve(ca_folder, tmp_path / "other/edge-4.csr", key=spelled).key == key


def test_a_node_is_approved_once_unless_it_is_renewed(ca_folder: Path, tmp_path: Path) -> None:
    path = request(tmp_path / "node", "edge/3")
    refused(ca_folder, path, "edge/3 was never approved; leave out --renew", renew=True)
    first = approve(ca_folder, path)
    refused(
        ca_folder, path, r"edge/3 was approved already, until \d{4}-\d\d-\d\d; choose another number, or give"
    )
    refused(ca_folder, request(tmp_path / "other", "edge/3"), "edge/3 was approved already")
    again = approve(ca_folder, path, renew=True)
    assert again.key == first.key
    assert again.serial != first.serial
    assert fingerprint((tmp_path / "node/edge-3.crt").read_bytes()) == again.fingerprint


def test_files_of_others_are_not_overwritten(ca_folder: Path, tmp_path: Path) -> None:
    path = request(tmp_path / "node", "edge/3")
    with pytest.raises(IdentityError, match=r"edge-3\.key exists already; to renew its certificate"):
        make_request(tmp_path / "node", Identity("hospitals", "edge", 3))
    (tmp_path / "node/edge-3.crt").write_text("mine")
    refused(ca_folder, path, r"edge-3\.crt exists already; move it away")
    (tmp_path / "node/edge-3.crt").unlink()
    (tmp_path / "node/ca.crt").write_text("mine")
    refused(ca_folder, path, r"ca\.crt is there and of another CA")


def test_a_certificate_that_cannot_be_written_is_in_the_index_and_can_be_renewed(
    ca_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = request(tmp_path / "node", "edge/3")
    rename = os.replace

    def fail(source: Path, target: Path) -> None:
        if target.suffix == ".crt":
            raise OSError(28, "No space left on device")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(
            StorageError, match="make room on the disk, then give the same command again with --renew"
        ):
            approve(ca_folder, path)
    assert sorted(entry.name for entry in (tmp_path / "node").iterdir()) == ["edge-3.csr", "edge-3.key"]
    approve(ca_folder, path, renew=True)
    assert Credentials.load(tmp_path / "node", "edge/3").identity.label == "edge/3"
    assert (
        len(read_approvals(ca_folder)) == 3
    )  # the cloud, the certificate that was lost, the one that is there


def test_a_denied_node_needs_a_new_key(ca_folder: Path, tmp_path: Path) -> None:
    path = request(tmp_path / "node", "client/17")
    approvals = [approve(ca_folder, path), approve(ca_folder, path, renew=True)]
    approve(ca_folder, request(tmp_path / "node", "client/18"))
    assert read_denylist(ca_folder) == frozenset()
    with opened(ca_folder) as ca:
        assert ca.deny("client/17") == approvals
        assert ca.deny("client/17") == []
        with pytest.raises(IdentityError, match="client/19 was never approved"):
            ca.deny("client/19")
        with pytest.raises(IdentityError, match="nobody can go on without the cloud"):
            ca.deny("cloud")
    assert read_denylist(ca_folder) == {approval.fingerprint for approval in approvals}
    refused(ca_folder, path, "this key was denied with client/17; make a request with a new key", renew=True)
    renewed = approve(ca_folder, request(tmp_path / "new", "client/17"), renew=True)
    assert renewed.fingerprint not in read_denylist(ca_folder)


def test_a_damaged_index_or_denylist_is_named(ca_folder: Path) -> None:
    (ca_folder / "denylist.txt").write_text(f"{'0' * 64} somebody\nedge/3\n")
    with pytest.raises(
        IdentityError, match=r"denylist\.txt, line 2 must begin with a fingerprint of 64 digits"
    ):
        read_denylist(ca_folder)
    with (ca_folder / "approved.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(IdentityError, match=r"approved\.jsonl, line 2 is damaged"):
        read_approvals(ca_folder)


@pytest.mark.parametrize(
    ("removed", "said"), [("ca.crt", "ca.crt is missing"), ("ca.key", "ca.key is missing")]
)
def test_a_folder_without_a_ca_is_named(removed: str, said: str, ca_folder: Path) -> None:
    (ca_folder / removed).unlink()
    with (
        pytest.raises(IdentityError, match=f"{said}; hiflash certs init makes the folder"),
        opened(ca_folder),
    ):
        pass


def test_the_key_of_another_ca_is_noticed(ca_folder: Path, tmp_path: Path) -> None:
    create_federation(tmp_path / "other", "hospitals")
    (tmp_path / "other/ca.key").replace(ca_folder / "ca.key")
    with pytest.raises(IdentityError, match=r"ca\.key is not the key of .*ca\.crt"), opened(ca_folder):
        pass


def test_a_second_approval_waits_for_the_first(ca_folder: Path, tmp_path: Path) -> None:
    paths = [request(tmp_path / "node", f"client/{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as threads:  # the lock is of the open folder, so it holds between threads too
        list(threads.map(approve, [ca_folder] * 8, paths))
    listed = {approval.identity.label for approval in read_approvals(ca_folder)}
    assert listed == {"cloud", *(f"client/{number}" for number in range(8))}


def test_a_throwaway_federation_is_complete_fast_and_closed(tmp_path: Path) -> None:
    start = time.perf_counter()
    make_throwaway_federation(tmp_path / "up", "try", edges=3, clients=12)
    assert time.perf_counter() - start < 1
    nodes = ["cloud", *(f"edge/{n}" for n in range(3)), *(f"client/{n}" for n in range(12))]
    for label in nodes:
        assert Credentials.load(tmp_path / "up", label).identity == parse_label(label, "try")
    assert not (tmp_path / "up/ca.key").exists()
    assert len(list((tmp_path / "up").iterdir())) == 1 + 2 * len(nodes)
    with pytest.raises(StorageError, match="File exists"):
        make_throwaway_federation(tmp_path / "up", "try", edges=3, clients=12)


def refused(ca_folder: Path, path: Path, said: str, renew: bool = False, key: str | None = None) -> None:
    """Check that a request is refused and nothing is written."""
    before = contents(ca_folder.parent)
    with pytest.raises(IdentityError, match=said):
        approve(ca_folder, path, renew=renew, key=key)
    assert contents(ca_folder.parent) == before


def test_the_identity_of_a_certificate_is_the_approved_one(ca_folder: Path, tmp_path: Path) -> None:
    approve(ca_folder, request(tmp_path / "node", "client/17"))
    assert identity_of((tmp_path / "node/client-17.crt").read_bytes()) == Identity("hospitals", "client", 17)
