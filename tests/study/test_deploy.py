"""Nodes from the command line and from Python: real processes, own data, state folders, wrong input."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

import hiflash
from hiflash.cli import main
from hiflash.errors import ConfigError, DamageError, DataError, RunError
from hiflash.serve.samples import read_samples
from hiflash.serve.state import StateFolder

SMALL = ["--edges", "2", "--clients", "2", "--stop.communications", "6"]


def hiflash_process(*words: str, **more) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "hiflash", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def result_of(*words: str, timeout: float = 120) -> dict:
    process = hiflash_process(*words)
    out, error = process.communicate(timeout=timeout)
    assert process.returncode == 0, error
    return json.loads(out)


def living(group: int) -> list[str]:
    """Return the processes of a group that have not ended; the dead may wait for somebody to notice."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(stat.parent.name)
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Return the state folder of a finished HierFAVG run of `hiflash up`."""
    state = tmp_path_factory.mktemp("up") / "state"
    told = result_of("up", "--method", "hierfavg", *SMALL, "--json", "--dir", str(state))
    assert told["communications"] == 6
    return state


def test_up_ends_with_the_simulators_digest_and_its_journal_replays(finished):
    told = json.loads((finished / "result.json").read_text())
    sizes = {"federation": {"edges": 2, "clients": 4}, "stop": {"communications": 6}}
    assert hiflash.run(method="hierfavg", **sizes).digest == told["digest"]
    again = hiflash.replay(finished)
    assert (again["digest"], again["version"], again["communications"]) == (
        told["digest"],
        told["version"],
        6,
    )
    assert again["matches_result"]


def test_commands_read_a_finished_state(finished, capsys):
    assert main(["status", str(finished), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["running"], told["complete"], told["communications"]) == (False, True, 6)
    assert main(["status", str(finished)]) == 0
    assert "finished: 6 communications used up" in capsys.readouterr().out
    assert main(["replay", str(finished)]) == 0
    assert "the same model as result.json" in capsys.readouterr().out
    assert main(["cloud", "--dir", str(finished), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["communications"] == 6
    assert main(["run", "--resume", str(finished), "--json"]) == 0


def test_a_changed_byte_in_the_journal_is_named(finished, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    base = sqlite3.connect(copy / "journal.sqlite")
    (body,) = base.execute("SELECT body FROM input WHERE number = 5").fetchone()
    base.execute("UPDATE input SET body = ? WHERE number = 5", (body[:-1] + bytes([body[-1] ^ 1]),))
    base.commit()
    base.close()
    with pytest.raises(DamageError, match=r"journal\.sqlite is damaged at row 5"):
        hiflash.replay(copy)


def test_a_state_that_is_not_finished_is_no_run_to_resume(tmp_path, capsys):
    state = tmp_path / "state"
    process = hiflash_process(
        "cloud", "--dir", str(state), "--listen", "127.0.0.1:0", "--federation.edges", "2"
    )
    try:
        until = time.monotonic() + 60
        while not (state / "status.json").exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        told = hiflash.status(state)
        assert (told["running"], told["started"], told["complete"]) == (True, False, False)
    finally:
        process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    _, said = process.communicate(timeout=20)
    assert time.monotonic() - begun < 5
    assert process.returncode == 130
    assert f"go on with: hiflash cloud --dir {state}" in said
    assert not hiflash.status(state)["running"]
    assert main(["run", "--resume", str(state)]) == 2
    assert "hiflash cloud --dir" in capsys.readouterr().err


def test_ctrl_c_ends_up_and_leaves_nothing(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = ["--edges", "2", "--clients", "2", "--stop.target", "none"]
    process = hiflash_process("up", *words, env=environment, start_new_session=True)
    line = ""
    while "first cloud update" not in line:
        line = process.stderr.readline()
        assert line, "it ended too early"
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: the whole group gets it
    process.communicate(timeout=20)
    assert time.monotonic() - begun < 5
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())
    assert not living(process.pid)


def test_killing_up_ends_its_processes_and_leaves_nothing(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = hiflash_process("up", *SMALL[:4], env=environment, start_new_session=True)
    while "first cloud update" not in process.stderr.readline():
        assert process.poll() is None
    process.kill()
    process.communicate()
    until = time.monotonic() + 10
    while list(tmp_path.iterdir()) or living(process.pid):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_clients_may_bring_their_own_samples(tmp_path):
    """One client has a folder, the other a function; they hold other samples than the configuration's."""
    stream = np.random.default_rng(3)
    images = stream.integers(0, 256, (40, 1, 28, 28)).astype(np.uint8)
    (tmp_path / "folder").mkdir()
    np.savez(tmp_path / "folder" / "a.npz", x=images[:10], y=np.arange(10) % 10)
    np.savez(tmp_path / "folder" / "b.npz", x=images[10:30], y=np.arange(20) % 10)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def samples(client):\n"
        "    stream = np.random.default_rng(client)\n"
        "    return stream.integers(0, 256, (25, 1, 28, 28)).astype(np.uint8), np.arange(25) % 10\n"
    )
    config = tmp_path / "own.toml"
    config.write_text(
        '[federation]\nclients = 2\nedges = 1\n[serve]\ndata = "own"\n[stop]\ncommunications = 4\n'
    )
    state = tmp_path / "state"
    cloud = hiflash_process("cloud", str(config), "--dir", str(state), "--listen", "127.0.0.1:0", "--json")
    nodes = []
    try:
        address = cloud.stderr.readline().split("listening on ")[1].split(",")[0]
        common = (str(config), "--cloud", address)
        nodes.append(hiflash_process("edge", *common, "--node", "edge/0"))
        for number, data in ((0, tmp_path / "folder"), (1, f"{tmp_path / 'mine.py'}:samples")):
            words = ("--node", f"client/{number}", "--data", str(data), "--dir", str(tmp_path / f"c{number}"))
            nodes.append(hiflash_process("client", *common, *words))
        out, error = cloud.communicate(timeout=100)
        assert cloud.returncode == 0, error
        told = json.loads(out)
        assert told["communications"] == 4
        assert told["client_steps"] == 4 * 2 * 3 * told["staleness"]["histogram"].get("0", 4) / 4 * _rounds(
            state
        )
        for node in nodes:
            _, error = node.communicate(timeout=30)
            assert node.returncode == 0, error
    finally:
        for process in (cloud, *nodes):
            process.kill()
            process.wait()


def _rounds(state: Path) -> int:
    rows = [json.loads(line) for line in (state / "events.jsonl").read_text().splitlines()]
    return next(row["rounds"] for row in rows if row["event"] == "grant")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cloud", "--dir", "nowhere"], "give a configuration"),
        (["cloud"], "needs --dir"),
        (["edge", "--listen", "0.0.0.0:0", "--node", "edge/0"], "--address"),
        (["edge", "--cloud", "cloud.example.org:7600", "--node", "edge/0"], "--insecure"),
        (["edge", "--cloud", "nonsense", "--node", "edge/0"], "HOST:PORT"),
        (["edge", "--node", "edge/99"], "federation.edges is 10"),
        (["edge", "--node", "0", "--method", "fedavg"], "has no edges"),
        (["client", "--node", "client/100"], "federation.clients is 100"),
        (["client", "--node", "client/0", "--data", "here"], 'serve.data = "own"'),
        (["client", "--node", "client/0", "--serve.data", "own"], "give --data"),
        (["client", "--node", "somebody"], "somebody"),
        (["client", "--certs", "nowhere", "--node", "client/0"], "ca.crt is missing"),
        (["up", "--edges", "0"], "federation.edges"),
        (["up", "--federation.edges", "3"], "--edges"),
        (["up", "--method", "fedavg"], "serve.keep_client_updates"),
        (["up", "--method", "centralized"], "nothing to deploy"),
        (["up", "--serve.lease_s", "0.1"], "serve.lease_s"),
        (["up", "--serve.data", "own"], "leave out serve.data"),
        (["edge", "--node", "0", "--address", "edge.example.org:1"], "--insecure"),
        (["status", "nowhere"], "journal.sqlite"),
        (["replay", "nowhere"], "journal.sqlite"),
        (["cloud", "--dir", "bad/../../name?", "--seed", "1"], "run name"),
    ],
)
def test_wrong_input_is_one_clear_error_and_nothing_is_written(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_a_cloud_that_cannot_listen_leaves_nothing(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["cloud", "--dir", str(tmp_path / "state"), "--seed", "1", "--listen", address]) == 2
    assert "cannot listen there" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_up_refuses_a_state_that_was_begun_with_another_configuration(finished):
    with pytest.raises(RunError, match="begun with another configuration"):
        hiflash.up(edges=2, clients=2, seed=9, directory=finished)


def test_samples_that_cannot_be_read_say_which_and_why(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        read_samples(str(tmp_path / "nothing"), 0)
    with pytest.raises(DataError, match="no npz files"):
        read_samples(str(tmp_path), 0)
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=np.zeros(2))
    with pytest.raises(DataError, match="3 samples and 2 answers"):
        read_samples(str(tmp_path), 0)
    np.savez(tmp_path / "a.npz", z=np.zeros(3))
    with pytest.raises(DataError, match="must hold the arrays x and y"):
        read_samples(str(tmp_path), 0)
    (tmp_path / "a.npz").write_bytes(b"PK rubbish")
    with pytest.raises(DataError, match="cannot be read"):
        read_samples(str(tmp_path), 0)
    (tmp_path / "mine.py").write_text("def wrong(client):\n    return 5\n")
    with pytest.raises(ConfigError, match="must return a pair"):
        read_samples(f"{tmp_path / 'mine.py'}:wrong", 0)


def test_another_configuration_for_a_state_is_refused(tmp_path):
    StateFolder.open(tmp_path / "state", hiflash.Config(seed=8).to_toml(), "all").close()
    with pytest.raises(RunError, match="begun with another configuration"):
        hiflash.serve_cloud(hiflash.Config(seed=9), tmp_path / "state")
