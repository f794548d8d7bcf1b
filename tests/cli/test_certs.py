"""`hiflash certs` as a person uses it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hiflash.cli import main

pytestmark = pytest.mark.usefixtures("_here")


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def certs(capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Return a function that runs `hiflash certs` and returns what it printed."""
    pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')

    def run(line: str) -> str:
        assert main(["certs", *line.split()]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def test_each_command_says_the_next_one_until_a_node_has_all(certs: Callable[[str], str]) -> None:
    said = certs("init federation --name hospitals --host cloud.example.org 10.0.0.5")
    assert "CA fingerprint" in said
    assert "cloud.example.org, 10.0.0.5" in said
    assert "Keep federation/ca.key here" in said
    assert "hiflash certs request edge/0 --name hospitals" in said
    said = certs("request edge/3 --name hospitals --host edge3.example.org --host 10.0.0.7 --out node")
    assert "spiffe://hospitals/edge/3" in said
    key = said.split("--key ")[1].strip()
    assert f"hiflash certs approve CA_FOLDER edge-3.csr --key {key}" in said
    Path("inbox").mkdir()
    Path("node/edge-3.csr").rename("inbox/edge-3.csr")
    said = certs(f"approve federation inbox/edge-3.csr --key {key}")
    assert said.index("signing for federation hospitals") < said.index("wrote inbox/edge-3.crt")
    assert "edge3.example.org, 10.0.0.7" in said
    assert "copy inbox/edge-3.crt and inbox/ca.crt to the folder with the key" in said
    assert "Compare" not in said
    said = certs("request client/17 --name hospitals --out node")
    assert "Compare the key fingerprint" in certs("approve federation node/client-17.csr --days 7")
    assert "node has all that client/17 needs" in certs("approve federation node/client-17.csr --renew")
    assert "denied 2 certificates of client/17" in certs("deny federation client/17")
    assert "client/17 was denied already" in certs("deny federation client/17")
    rows = [line for line in certs("list federation").splitlines() if "valid" in line or "denied" in line][1:]
    assert [line.split()[1] for line in rows] == ["cloud", "edge/3", "client/17", "client/17"]
    assert ["denied" in line for line in rows] == [False, False, True, True]


def test_json_is_one_object_and_nothing_else(certs: Callable[[str], str]) -> None:
    made = json.loads(certs("init federation --name hospitals --json"))
    assert made["identity"] == "spiffe://hospitals/cloud"
    assert len(made["ca_fingerprint"]) == 64
    asked = json.loads(certs("request client/17 --name hospitals --out node --json"))
    assert asked["request"] == "node/client-17.csr"
    signed = json.loads(certs(f"approve federation node/client-17.csr --key {asked['key']} --json"))
    assert set(signed) == {"identity", "hosts", "key", "serial", "fingerprint", "not_after", "certificate"}
    assert signed["certificate"] == "node/client-17.crt"
    listed = json.loads(certs("list federation --json"))["certificates"]
    assert [(row["identity"], row["state"]) for row in listed] == [
        ("spiffe://hospitals/cloud", "valid"),
        ("spiffe://hospitals/client/17", "valid"),
    ]
    denied = json.loads(certs("deny federation client/17 --json"))["denied"]
    assert [row["fingerprint"] for row in denied] == [signed["fingerprint"]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("init f --name Hospitals", "the name of a federation has 1 to 63 lower-case letters"),
        ("init f --name hospitals --host 0.0.0.0", "a host is an address that others dial, got 0.0.0.0"),
        (
            "request edge --name hospitals --out node",
            "a node is cloud, or like edge/3 or client/17, got 'edge'",
        ),
        ("request cloud --name hospitals --out node", "hiflash certs init makes the cloud's key"),
        ("request client/1 --name hospitals --out node --host a.org", "client/1 serves nobody"),
        (
            "approve federation edge-3.csr",
            "federation/ca.crt is missing; hiflash certs init makes the folder",
        ),
        (
            "deny federation edge/3",
            "federation/ca.crt is missing; hiflash certs init makes the folder of a CA",
        ),
        (
            "list federation",
            "federation/approved.jsonl is missing; hiflash certs init makes the folder of a CA",
        ),
    ],
)
def test_bad_input_is_one_clear_error_with_code_2_and_writes_nothing(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography", reason='needs pip install "hiflash[serve]"')
    assert main(["certs", *line.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {said}")
    assert len(printed.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("days", [0, 4000])
def test_days_beyond_the_ca_are_refused_and_nothing_is_signed(
    days: int,
    certs: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    certs("init federation --name hospitals")
    certs("request client/17 --name hospitals --out node")
    index = Path("federation/approved.jsonl").read_bytes()
    assert main(["certs", "approve", "federation", "node/client-17.csr", f"--days={days}"]) == 2
    printed = capsys.readouterr()
    assert re.search(f"valid for 1 to 365[23] days, as long as its CA, got {days};", printed.err)
    assert printed.out == ""
    assert not Path("node/client-17.crt").exists()
    assert Path("federation/approved.jsonl").read_bytes() == index


def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["certs", "init", "federation", "--name", "hospitals"]) == 2
    said = 'error: hiflash certs needs the package cryptography: pip install "hiflash[serve]"\n'
    assert capsys.readouterr().err == said
    assert list(tmp_path.iterdir()) == []
