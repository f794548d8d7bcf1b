"""The command line as a person uses it, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hiflash.cli import main
from hiflash.cli.words import values

SMALL = ["--federation.clients=20", "--federation.edges=4", "--client.batch=8"]
QUICK = [*SMALL, "--stop.communications=30"]
LONG = [
    *SMALL,
    "--client.local_steps=1",
    "--evaluate.every=50",
    "--stop.target=none",
    "--stop.communications=200",
    "--checkpoint_s=0.2",
]


def hiflash(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hiflash", *words], cwd=cwd, capture_output=True, text=True, timeout=240
    )


def test_help_needs_no_heavy_import() -> None:
    code = (
        "import sys; from hiflash.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'pydantic', 'rich', 'gymnasium'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_run_help_lists_every_setting(tmp_path: Path) -> None:
    from hiflash.config.tree import describe_keys

    text = hiflash("run", "--help", cwd=tmp_path).stdout
    assert all(f"--{key}" in text for key, *_ in describe_keys())


def test_json_is_one_object_and_nothing_else_on_stdout(tmp_path: Path) -> None:
    done = hiflash("run", *QUICK, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    saved = json.loads((tmp_path / "runs/hifl-mnist5k-noniid2-s0/result.json").read_text())
    assert result == saved
    wanted = (
        "method seed digest trainer version communications client_uploads client_steps wasted_client_steps "
        "virtual_s wan_bytes lan_bytes compute_cost send_cost total_cost response_latency_ms waiting_ms "
        "total_js accuracy best_accuracy evaluations targets targets_stable staleness thresholds "
        "grants_per_edge applied_per_edge refused waited cancelled discarded wall_s"
    )
    assert set(wanted.split()) <= set(result)
    assert set(result["staleness"]) == {"mean", "max", "histogram"}
    assert "hifl-mnist5k-noniid2-s0: started" in done.stderr


def test_a_table_the_paths_and_the_digest_are_shown_at_the_end(tmp_path: Path) -> None:
    done = hiflash("run", *QUICK, "--method=fedavg", "--name", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "FedAvg on mnist5k" in done.stdout
    assert "runs/mine/figure.png" in done.stdout
    digest = json.loads((tmp_path / "runs/mine/result.json").read_text())["digest"]
    assert f"digest {digest}" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    again = hiflash("run", *QUICK, "--name", "mine", cwd=tmp_path)
    assert again.returncode == 2
    assert "runs/mine exists already; resume it (--resume runs/mine) or choose another --name" in again.stderr


def test_bad_input_ends_the_process_with_code_2_and_one_clear_error(tmp_path: Path) -> None:
    done = hiflash("run", "--cloud.alpha", "1.5", cwd=tmp_path)
    assert done.returncode == 2
    assert "cloud.alpha must be in (0, 1], got 1.5" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--cloud.alpha", "1.5"], "cloud.alpha must be in (0, 1], got 1.5"),
        (["run", "--cloud.stalness", "1"], "unknown key cloud.stalness"),
        (["run", "--metod", "hifl"], "unknown key metod; did you mean method?"),
        (["run", "--seed"], "--seed needs a value"),
        (["run", "--name", "../x"], "a run name has"),
        (["run", "nowhere.toml"], "nowhere.toml does not exist"),
        (["run", "--resume", "runs/nope"], "runs/nope is not a run directory"),
        (["run", "--resume", "runs/nope", "--seed", "3"], "leave out seed"),
        (["run", "--data.name", "mnist", "--data.dir", "/nowhere"], "dataset 'mnist' was not found"),
        (["run", "--data.partition", "noniid0"], "noniid0"),
        (["run", "--federation.clients", "5000"], "client"),
        (["compare", "--methods", "fedavg,nope"], "got nope"),
        (["compare", "--seeds", "x"], "--seeds must be"),
        (["data", "check", "nope"], "nope"),
        (["compare", "--partitions", "iid,nope"], "unknown partition 'nope'"),
        (["compare", "--partitions", ","], "partitions must be a list"),
        (["compare", "--variant", "hifl"], "--variant must be like 'delta=hifl"),
        (["compare", "--variant", "a=hifl x"], "--variant must be like"),
        (["compare", "--variant", "a=hifl", "--variant", "a=hifl"], "--variant a is given twice"),
        (["compare", "--variant", "a=hifl cloud.alpha=2"], "cloud.alpha must be in (0, 1], got 2"),
        (["sweep"], "a sweep needs settings to vary"),
        (["sweep", "--set", "cloud.alpha"], "--set must be like cloud.alpha=0.5,0.7,0.9"),
        (["sweep", "--set", "cloud.alpha="], "cloud.alpha needs a list of values"),
        (["sweep", "--set", "a=1", "--set", "a=2"], "--set a is given twice"),
        (["sweep", "--set", "cloud.alfa=1"], "unknown key cloud.alfa"),
        (["sweep", "--set", "cloud.alpha=1", "--by", "speed"], "got speed"),
    ],
)
def test_bad_input_is_one_clear_error_with_code_2_and_writes_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("HIFLASH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5,0.7,1", [0.5, 0.7, 1]),
        ("[1],[1,2, 3]", [[1], [1, 2, 3]]),
        ("inf,random,2", ["inf", "random", 2]),
        ("true, false", [True, False]),
        ("", []),
    ],
)
def test_commas_separate_values_and_brackets_hold_lists_together(text: str, expected: list[object]) -> None:
    assert values(text) == expected


def test_data_list_shows_what_is_there(tmp_path: Path) -> None:
    done = hiflash("data", "list", cwd=tmp_path)
    assert done.returncode == 0
    assert "mnist5k" in done.stdout
    assert hiflash("data", "check", "mnist5k", cwd=tmp_path).returncode == 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    done = hiflash("run", *LONG, "--workers=1", "--name", "whole", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs/whole"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_resumes_to_the_same_digest_and_events(
    number: int, whole: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "hiflash", "run", *LONG, "--workers=1", "--name=parts"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    events = tmp_path / "runs/parts/events.jsonl"
    deadline = time.monotonic() + 60
    while not (events.exists() and events.stat().st_size > 8_000) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130, err
        assert "resume with: hiflash run --resume runs/parts" in err
        assert not list((tmp_path / "runs/parts").glob(".*"))
    assert not (tmp_path / "runs/parts/result.json").exists()
    done = hiflash("run", "--resume", "runs/parts", "--workers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("events.jsonl", "model.safetensors"):
        assert (tmp_path / "runs/parts" / name).read_bytes() == (whole / name).read_bytes()
    assert not list((tmp_path / "runs/parts").glob(".*"))


def test_an_interrupted_compare_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    words = ["compare", *LONG, "--methods", "fedavg,hifl", "--seeds", "1", "--name", "c", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hiflash", *words],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list((tmp_path / "runs").glob("c/*/checkpoint.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "give the same command again" in err
    children = [
        entry for entry in Path("/proc").glob("[0-9]*/cmdline")
        if str(tmp_path).encode() in _cwd(entry) and os.getpid() != int(entry.parent.name)
    ]  # fmt: skip
    assert children == []
    done = hiflash(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [cell["method"] for cell in json.loads(done.stdout)["cells"]] == ["fedavg", "hifl"]
    assert json.loads((tmp_path / "runs/c/compare.json").read_text()) == json.loads(done.stdout)
    assert (tmp_path / "runs/c/compare.png").stat().st_size > 10_000


def test_compare_shows_tables_of_variants_and_partitions_and_where_the_files_are(tmp_path: Path) -> None:
    variant = "delta=hifl cloud.mixing=delta cloud.alpha=1 edge.edge_rounds=1,2"
    words = [*QUICK, "--methods", "hifl", "--variant", variant, "--partitions", "iid,noniid1", "--seeds", "1"]
    done = hiflash("compare", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for partition in ("iid", "noniid1"):
        assert f"mnist5k, {partition}: to 90% accuracy" in done.stdout
        config = (tmp_path / f"runs/compare-mnist5k/delta-{partition}-s0/config.toml").read_text()
        assert 'mixing = "delta"' in config
        assert "edge_rounds = [1, 2]" in config
    assert done.stdout.splitlines()[-1] == "runs/compare-mnist5k/latency.pdf"
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_sweep_sorts_points_and_says_where_the_files_are(tmp_path: Path) -> None:
    words = ["sweep", *QUICK, "--set", "edge.edge_rounds=[1],[1,2]", "--by", "best_accuracy", "--name", "s"]
    done = hiflash(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "by best accuracy" in done.stdout
    assert "runs/s/sweep.png" in done.stdout
    again = hiflash(*words, "--json", cwd=tmp_path)
    swept = json.loads(again.stdout)
    assert [cell["point"] for cell in swept["cells"]] == [
        {"edge.edge_rounds": [1]}, {"edge.edge_rounds": [1, 2]},
    ]  # fmt: skip
    first, second = (row["best_accuracy_mean"] for row in swept["rows"])
    assert first >= second
    assert "started" not in again.stderr


def _cwd(entry: Path) -> bytes:
    try:
        return os.readlink(entry.parent / "cwd").encode()
    except OSError:
        return b""
