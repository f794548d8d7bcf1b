"""`hiflash histogram`: what a client writes of its labels, and how it becomes an association."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hiflash.cli import main
from hiflash.config import Config
from hiflash.errors import ConfigError, DataError, RunError
from hiflash.serve.deployable import check_deployable
from hiflash.study.histograms import read_histograms, write_histogram

CLIENTS, SAMPLES = 6, 400


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the configuration of a federation, and a function with its clients' samples."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward.py").write_text(
        "import numpy as np\n"
        "def samples(client):\n"
        f"    y = np.where(np.arange({SAMPLES}) < 250, client, client + 4)\n"
        f"    return np.zeros(({SAMPLES}, 1, 28, 28), np.uint8), y\n"
    )
    (tmp_path / "ward.toml").write_text(
        f'method = "hierfavg"\n[federation]\nclients = {CLIENTS}\nedges = 2\n[serve]\ndata = "own"\n'
    )
    return tmp_path


def written(client: int, *words: str, out: str = "") -> int:
    path = out or f"inbox/{client}.json"
    common = ["--node", f"client/{client}", "--data", "ward.py:samples", "--out", path]
    return main(["histogram", "ward.toml", *common, *words])


def test_a_histogram_leaves_its_client_with_noise_by_default(ward: Path, capsys) -> None:
    assert written(1, out="sent.json") == 0
    path = ward / "sent.json"
    told = json.loads(path.read_text())
    assert path.stat().st_mode & 0o077 == 0
    assert told["release"] == {"noise": "laplace", "epsilon": 1.0, "delta": 0.0, "unit": "sample"}
    assert told["client"] == 1
    assert told["counts"][1] == pytest.approx(250, abs=30)  # b = 1
    said = capsys.readouterr()
    assert "laplace noise that hides any one sample, epsilon 1" in said.err
    assert not any(str(count) in said.err + said.out for count in told["counts"] if count > 9)


def test_no_seed_repeats_the_noise_of_a_deployed_client(ward: Path) -> None:
    for name in ("one", "other"):
        assert written(1, "--privacy.epsilon", "0.05", "--seed", "7", out=name) == 0
    assert json.loads((ward / "one").read_text()) != json.loads((ward / "other").read_text())


def test_only_a_word_lets_the_exact_histogram_out(ward: Path) -> None:
    release = write_histogram(Config.load("ward.toml", {"privacy.epsilon": "off"}), 2, "ward.py:samples", "x")
    assert release is None
    told = json.loads((ward / "x").read_text())
    assert told["counts"] == [0, 0, 250, 0, 0, 0, 150, 0, 0, 0]
    assert told["release"] is None


def test_fresh_noise_does_not_replace_what_was_sent(ward: Path, capsys) -> None:
    assert written(0) == 0
    before = (ward / "inbox/0.json").read_bytes()
    assert written(0) == 2
    assert "would spend epsilon again" in capsys.readouterr().err
    assert (ward / "inbox/0.json").read_bytes() == before
    with pytest.raises(RunError, match="exists"):
        write_histogram("ward.toml", 0, "ward.py:samples", "inbox/0.json")


def test_an_association_comes_from_what_clients_sent_and_adds_no_noise(ward: Path, capsys) -> None:
    for client in range(CLIENTS):
        assert written(client, "--privacy.epsilon", "50") == 0
    words = ["associate", "ward.toml", "--histograms", "inbox", "--out", "files/association.csv", "--json"]
    capsys.readouterr()
    assert main([*words, "--privacy.epsilon", "50", "--strategy", "data"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["strategy"] == "data"
    assert sum(row["cluster_sizes"]) == CLIENTS
    rows = np.loadtxt("files/association.csv", delimiter=",", skiprows=1, dtype=int)
    # The divergence that is shown is that of what was sent, to the last digit: nothing was added.
    from hiflash.core.association.strategies import js_per_edge

    clusters = [rows[rows[:, 1] == edge, 0].tolist() for edge in range(2)]
    sent, _ = read_histograms("inbox")
    assert row["total_js"] == pytest.approx(sum(js_per_edge(sent, clusters)), abs=1e-12)
    given = Config.load("ward.toml", {"federation.files": "files"})
    assert given.federation.association == "given"
    check_deployable(given)  # nodes get the association alone


@pytest.mark.parametrize(
    ("sent", "wanted", "said"),
    [
        (
            (),
            ("--privacy.epsilon", "3"),
            "epsilon 1.0, noise laplace, unit sample, and the configuration has",
        ),
        (("--privacy.epsilon", "5"), (), "epsilon 5.0"),
        (("--privacy.epsilon", "off"), (), "histograms with no noise"),
        ((), ("--privacy.epsilon", "off"), "the configuration has no noise"),
    ],
)
def test_histograms_with_other_noise_than_ledgers_charge_are_refused(
    sent: tuple[str, ...], wanted: tuple[str, ...], said: str, ward: Path, capsys
) -> None:
    for client in range(CLIENTS):
        assert written(client, *sent) == 0
    assert main(["associate", "ward.toml", "--histograms", "inbox", "--out", "a.csv", *wanted]) == 2
    assert said in capsys.readouterr().err
    assert not (ward / "a.csv").exists()


def test_nodes_refuse_files_with_the_labels_of_single_clients(ward: Path) -> None:
    (ward / "files").mkdir()
    lines = [f"{client},{client + 5},9" for client in range(CLIENTS)]
    (ward / "files/labels.csv").write_text("client,0,1\n" + "\n".join(lines) + "\n")
    config = Config.load("ward.toml", {"federation.files": "files"})
    with pytest.raises(ConfigError, match="labels of single clients, and every node reads them"):
        check_deployable(config)
    check_deployable(config.with_settings({"privacy.epsilon": "off"}))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"privacy.histograms": "group"}, "is for simulations"),
        ({"serve.data": "partition", "federation.association": "data", "privacy.epsilon": 1.0}, "every node"),
    ],
)
def test_privacy_that_a_deployment_would_not_keep_is_refused(ward: Path, settings, said) -> None:
    association = {"federation.association": "heterogeneity"} if "privacy.histograms" in settings else {}
    config = Config.load("ward.toml", {**association, **settings})
    with pytest.raises(ConfigError, match=said):
        check_deployable(config)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--node", "edge/1"], "--node must be a client"),
        (["--node", "client/6"], "there is no client 6"),
        (["--serve.data", "partition"], 'set serve.data = "own"'),
        (["--data", "nowhere"], "there is no such folder"),
        (["--data.name", "flights", "--data.task", "regression"], "counts classes"),
    ],
)
def test_wrong_input_writes_nothing(ward: Path, words, said, capsys) -> None:
    usual = {"--node": "client/1", "--data": "ward.py:samples", "--out": "out.json"}
    usual.update(zip(words[::2], words[1::2], strict=True))
    assert main(["histogram", "ward.toml", *(word for pair in usual.items() for word in pair)]) == 2
    assert said in capsys.readouterr().err
    assert not (ward / "out.json").exists()


def test_missing_options_are_named(ward: Path, capsys) -> None:
    assert main(["histogram", "ward.toml"]) == 2
    assert "hiflash histogram needs --node" in capsys.readouterr().err


GOOD = {"format": "hiflash histogram 1", "client": 0, "release": None, "counts": [1, 2]}


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("{", "is not what hiflash histogram writes"),
        ("[1]", "another form"),
        ({"counts": [1, -2]}, "a whole number >= 0"),
        ({"counts": [1, 2.5]}, "a whole number >= 0"),
        ({"counts": []}, "a whole number >= 0"),
        ({"client": True}, "the number of a client"),
        ({"release": "good"}, "how it is protected"),
        ({"client": 0}, "both of client 0"),
        ({"client": 2}, "client 1 is missing"),
        ({"counts": [1, 2, 3]}, "differ in their number of classes: 3 and 2"),
        ({"release": {"epsilon": 9.0}}, "differ in their noise: epsilon 9.0 and no noise"),
    ],
)
def test_files_that_do_not_fit_are_named(second, said, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD))
    text = second if isinstance(second, str) else json.dumps({**GOOD, "client": 1, **second})
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_histograms(tmp_path)


def test_a_histogram_that_noise_has_emptied_counts_all_classes_alike(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**GOOD, "counts": [0, 0]}))
    assert read_histograms(tmp_path)[0].tolist() == [[1, 1]]
