"""Nothing of a single client is left behind (R21): markers are planted, and every file is searched for them.

A client has a conspicuous histogram, number of samples and update. Runs, simulated and deployed, end; then
everything that they have written is searched: folders of runs, state, journals, snapshots, memories, logs.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')
pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')

import hiflash
from hiflash.cli import main
from hiflash.errors import Paused
from hiflash.privacy.sums.fixed_point import FixedPoint
from hiflash.privacy.sums.keys import Keys
from hiflash.serve import nodes
from hiflash.serve import wire_pb2 as pb
from hiflash.serve.assemble import Deployment
from hiflash.serve.journal import SqliteJournal
from hiflash.serve.state import JOURNAL
from hiflash.sim.federation import build
from hiflash.study.run import resume
from serve.inside import Inside, tiny_config
from tiny import make_tiny_model

ODD = [9001, 37, 3307, 2]  # the labels of client 0
TOTAL = 12_347  # 9001 + 37 + 3307 + 2
CLIENTS, OTHERS = 6, 40
MARKER = np.float32(0.12345679)


def odd_data() -> tuple[hiflash.Dataset, list[np.ndarray]]:
    """Return samples, and those of every client: client 0 has a conspicuous histogram."""
    stream = np.random.default_rng(0)
    y = np.concatenate([np.repeat(np.arange(4), ODD), np.arange(OTHERS * (CLIENTS - 1)) % 4])
    x = (y[:, None, None] + stream.normal(size=(len(y), 6, 6))).astype(np.float32)
    indices = [np.arange(TOTAL), *np.split(TOTAL + np.arange(OTHERS * (CLIENTS - 1)), CLIENTS - 1)]
    return hiflash.Dataset.from_arrays(x, y, x[:100], y[:100], classes=4), indices


def forms(counts: list[int]) -> list[bytes]:
    """Return the ways in which a histogram could be written, as text or as bytes."""
    array, total = np.array(counts), sum(counts)
    found = [between.join(map(str, counts)).encode() for between in (",", ", ", " ", "\n", ";", "\t")]
    for kind in ("<i2", "<i4", "<i8", "<f4", "<f8", ">i4", ">i8", ">f8"):
        found.append(array.astype(kind).tobytes())
    found += [(array / total).astype(kind).tobytes() for kind in ("<f4", "<f8")]
    found.append(", ".join(repr(count / total) for count in counts).encode())
    found.append(b"".join(varint(count) for count in counts))  # a packed field of a message
    return found


def varint(number: int) -> bytes:
    octets = []
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    return bytes([*octets, number])


def totals(number: int) -> list[bytes]:
    """Return the ways in which a number of samples could be written; two bytes are in any large file."""
    return [np.array(number).astype(kind).tobytes() for kind in ("<i4", "<i8", "<f8", ">i8")]


def everything(*folders: Path) -> dict[Path, bytes]:
    found = {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert found
    return found


def leaks(files: dict[Path, bytes], counts: list[int] = ODD) -> list[tuple[str, bytes]]:
    """Return where a histogram or its total is found."""
    number = sum(counts)
    said = re.compile(rb"(?<![\d.])(%d|%s)(?![\d.])" % (number, f"{number:,}".encode()))
    return [
        (str(path), form)
        for path, content in files.items()
        for form in [*forms(counts), *totals(number)]
        if form in content
    ] + [(str(path), b"total") for path, content in files.items() if said.search(content)]


def train_odd(model, data, context):
    """Train nothing; client 0, which has most samples, sends a conspicuous model."""
    if len(data.y) == TOTAL:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(float(MARKER))
    return {}


@pytest.mark.parametrize("form", [*range(len(forms(ODD)))])
def test_the_search_finds_a_histogram_in_every_form(form, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\x00abc" + forms(ODD)[form] + b"def")
    assert leaks(everything(tmp_path))


@pytest.mark.parametrize("text", ['{"samples": 12347}', "12,347 samples", "a\t12347\n"])
def test_the_search_finds_a_number_of_samples(text, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    assert leaks(everything(tmp_path))
    (tmp_path / "file").write_text("0.12347 and 312347 and 12347.5")
    assert not leaks(everything(tmp_path))


@pytest.mark.parametrize("privacy", [{}, {"privacy.epsilon": 1.0}, {"privacy.histograms": "group"}])
def test_a_simulated_run_writes_nothing_of_a_single_client(privacy, tmp_path: Path, capfd) -> None:
    data, indices = odd_data()
    own = {"data": data, "model": make_tiny_model, "train": train_odd}
    settings = {
        "federation.clients": CLIENTS,
        "federation.edges": 2,
        "federation.association": "heterogeneity",
        "client.algorithm": "function",
        "stop.communications": 12,
        "stop.target": "none",
        "workers": 1,
    }
    asked = iter([False] * 6)
    with pytest.raises(Paused):  # so that there is a checkpoint in the middle
        hiflash.run(**own, indices=indices, directory=tmp_path / "run", observers=["csv"],
                    pause=lambda: next(asked, True), **settings, **privacy)  # fmt: skip
    halfway = everything(tmp_path)
    result = resume(tmp_path / "run", **own, indices=indices, observers=["csv"])
    assert min(result.cluster_sizes) >= 2
    said = "".join(capfd.readouterr()).encode()
    for files in (halfway, everything(tmp_path), {tmp_path / "output": said}):
        # A checkpoint of a simulation describes the edge rounds under way, with the samples of their clients:
        # it plays all nodes at once, and none of them is anybody. A deployed cloud keeps no such thing.
        allowed = (str(tmp_path / "run" / "checkpoint.safetensors"), b"total")
        assert [leak for leak in leaks(files) if leak != allowed] == []
        marker = np.full(8, MARKER).tobytes()
        assert not [path for path, content in files.items() if marker in content]


class Odd(Inside):
    """A deployed federation whose client 0 is conspicuous."""

    def deploy(self) -> Deployment:
        data, indices = odd_data()
        return Deployment(build(self.config, data, self.make_model, indices))


@pytest.fixture
def secrets(monkeypatch) -> list[Keys]:
    """Return the keys of all secure sums; client 0 has something wrong with its first vector."""
    made: list[Keys] = []
    fresh, encode, refused = Keys.fresh.__func__, FixedPoint.encode, []

    def spying(cls, randomness):
        made.append(fresh(cls, randomness))
        return made[-1]

    def refusing(self, change, examples):
        if examples == TOTAL and not refused:
            refused.append(examples)
            raise ValueError(f"a client has 1 to {self.most_examples} samples, got {examples}")
        return encode(self, change, examples)

    monkeypatch.setattr(Keys, "fresh", classmethod(spying))
    monkeypatch.setattr(FixedPoint, "encode", refusing)
    return made


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure sums"])
def test_a_deployed_run_writes_nothing_of_a_single_client(
    secure, secrets, tmp_path: Path, monkeypatch, capfd, caplog
) -> None:
    updates: list[bytes] = []

    class Spying(nodes.LocalTraining):
        def _work(self, job, own):
            worked = super()._work(job, own)
            updates.append(worked.weights.tobytes()[:64])
            return worked

    monkeypatch.setattr(nodes, "LocalTraining", Spying)
    config = tiny_config(**{
        "federation.clients": CLIENTS, "federation.association": "heterogeneity",
        "serve.keep_client_updates": False, "serve.snapshot_rows": 5,
        "edge.secure": "secagg" if secure else "off",
    })  # fmt: skip
    inside = Odd(config, tmp_path)
    with caplog.at_level("DEBUG"):
        result = inside.run()
    assert min(result.cluster_sizes) >= 2
    files = everything(tmp_path)  # state, journal, snapshot, memories of clients, certificates
    assert {inside.state / name for name in (JOURNAL, "checkpoint.safetensors", "result.json")} <= set(files)
    files[tmp_path / "output"] = ("".join(capfd.readouterr()) + caplog.text).encode()
    assert leaks(files) == []
    assert len(secrets) > 30 if secure else not secrets
    assert ("client 0 leaves a secure sum" in caplog.text) == secure
    assert [
        path for path, content in files.items() if any(form in content for form in written(secrets))
    ] == []
    assert len(updates) > 10
    assert not [path for path, content in files.items() if any(update in content for update in updates)]
    journal = SqliteJournal(inside.state / JOURNAL)
    kinds = {"check_in": pb.CheckIn, "upload": pb.Upload}
    inputs = [row.input for row in journal.rows(0) if row.input.kind in kinds]
    told = [kinds[each.kind].FromString(each.body) for each in inputs]
    journal.close()
    assert told
    assert all(each.examples != TOTAL for each in told)  # two bytes in a message: too short to search for
    keys = list(tmp_path.rglob("*.key"))
    assert keys
    assert all(key.stat().st_mode & 0o077 == 0 for key in keys)


def written(secrets: list[Keys]) -> list[bytes]:
    """Return the ways in which secrets, and shares of them, could be written."""
    found = [value for keys in secrets for value in (keys.mask_secret, keys.box_secret, keys.seed)]
    found += [
        share for keys in secrets for pair in keys.dealt.values() for shares in pair for share in shares
    ]
    assert len(set(found)) == len(found)
    return [form for each in found for form in (each, each.hex().encode(), base64.b64encode(each))]


def test_the_processes_of_a_deployment_write_no_histogram(tmp_path: Path) -> None:
    """Real processes with their logs; every client's part of the dataset is searched for."""
    words = ["--edges", "2", "--clients", "3", "--federation.association", "heterogeneity",
             "--stop.communications", "4", "--dir", str(tmp_path / "state"), "--json"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "hiflash", "up", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["communications"] == 4
    files = everything(tmp_path)
    assert any("logs" in path.parts for path in files)
    files[tmp_path / "output"] = (done.stdout + done.stderr).encode()
    config = hiflash.Config.load(tmp_path / "state" / "config.toml")
    from hiflash.sim.federation import survey

    labels = survey(config)[1].labels
    assert labels is not None
    for counts in labels.tolist():
        # Its total is a usual number of samples: only the histogram as a whole is conspicuous.
        assert [leak for leak in leaks(files, counts) if leak[1] in forms(counts)] == []


WARD = """
import numpy as np
COUNTS = {counts}
def samples(client):
    own = COUNTS[client]
    return np.zeros((sum(own), 1, 28, 28), np.uint8), np.repeat(np.arange(10), own)
"""
WARD_TOML = """
method = "hierfavg"
[federation]
edges = 2
clients = 4
[serve]
data = "own"
[privacy]
epsilon = 0.05
[stop]
communications = 4
"""


def test_clients_with_their_own_data_leave_no_histogram_anywhere(tmp_path: Path, monkeypatch) -> None:
    """The whole way: noised histograms, an association from them, nodes as processes, and their files."""
    counts = [[137 + 11 * client, 0, 89, 0, 0, 53 + client, 0, 0, 0, 7] for client in range(4)]
    for folder, text in (("wards/ward.py", WARD.format(counts=counts)), ("here/ward.toml", WARD_TOML)):
        (tmp_path / folder).parent.mkdir()
        (tmp_path / folder).write_text(text)
    here = tmp_path / "here"
    monkeypatch.chdir(here)
    data = f"{tmp_path / 'wards/ward.py'}:samples"
    for client in range(4):
        who = ["--node", f"client/{client}", "--data", data, "--out", f"inbox/{client}.json"]
        assert main(["histogram", "ward.toml", *who]) == 0
    assert main(["associate", "ward.toml", "--histograms", "inbox", "--out", "files/association.csv"]) == 0
    written = _run_nodes(here, data)
    files = everything(here)
    files[here / "output"] = written.encode()
    assert here / "state" / JOURNAL in files
    for own in counts:
        assert [leak for leak in leaks(files, own) if leak[1] in forms(own)] == []
        known = json.loads(files[here / "inbox" / f"{counts.index(own)}.json"])
        assert known["counts"] != own  # four of noise 20 are all right with probability 4e-7
    names = {path.name for path in files if "files" in path.parts}
    assert names == {"association.csv"}  # nodes have the association alone


def _run_nodes(here: Path, data: str) -> str:
    """Run cloud, edges and clients as processes until the run is over; return all that they print."""

    def start(role: str, *words: str) -> subprocess.Popen[str]:
        common = ["ward.toml", "--federation.files", "files"]
        command = [sys.executable, "-m", "hiflash", role, *common, *words]
        return subprocess.Popen(
            command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    cloud = start("cloud", "--dir", "state", "--listen", "127.0.0.1:0")
    processes = [cloud]
    try:
        assert cloud.stdout is not None
        first = cloud.stdout.readline()
        assert "listening on " in first, first + cloud.stdout.read()
        at = ["--cloud", first.split("listening on ")[1].split(",")[0]]
        processes += [start("edge", *at, "--node", f"edge/{edge}") for edge in range(2)]
        nodes = [word for client in range(4) for word in ("--node", f"client/{client}")]
        processes.append(start("client", *at, *nodes, "--data", data, "--dir", "memory"))
        said = [process.communicate(timeout=100)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * 4, said
        return first + "".join(said)
    finally:
        for process in processes:
            process.kill()
            process.wait()
