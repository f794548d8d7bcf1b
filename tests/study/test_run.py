"""Whole runs on small federations: what must be equal, and what every method must report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash.errors import ConfigError, DataError, Paused, RunError
from hiflash.study.run import _check_identity
from hiflash.weights import digest
from tiny import TINY, assert_same_run, make_tiny_model

Run = Callable[..., hiflash.Result]

VARIANTS: dict[str, dict[str, Any]] = {
    "hifl-admit": {"method": "hifl"},
    "hifl-discard": {"method": "hifl", "cloud__enforce": "discard", "cloud__threshold_max": 3},
    "hifl-cancel": {"method": "hifl", "cloud__enforce": "cancel", "cloud__threshold": 1},
    "hifl-fluctuating": {"method": "hifl", "resources__fluctuation": "on", "edge__redraw": "grant"},
    "hifl-delta": {"method": "hifl", "cloud__mixing": "delta", "cloud__momentum": 0.5},
    "hifl-deadline": {"method": "hifl", "edge__deadline_s": 0.0006, "edge__quorum": 0.5, "wan": "off"},
    "hierfavg": {"method": "hierfavg"},
    "fedavg": {"method": "fedavg"},
    "fedavg-deadline": {"method": "fedavg", "cloud__deadline_s": 0.35, "cloud__quorum": 0.2},
    "fedprox-epochs": {"method": "fedprox", "client__local_epochs": 1},
    "centralized": {"method": "centralized", "stop__steps": 250},
}


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("variant", VARIANTS)
def test_same_seed_gives_the_same_run_with_one_and_two_workers(
    variant: str, run_tiny: Run, tmp_path: Path
) -> None:
    one = run_tiny(**VARIANTS[variant], directory=tmp_path / "one")
    two = run_tiny(**VARIANTS[variant], directory=tmp_path / "two", workers=2)
    assert_same_run(one, two)
    assert run_tiny(**VARIANTS[variant], seed=1).digest != one.digest


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("variant", VARIANTS)
def test_paused_and_resumed_run_equals_an_undisturbed_one(
    variant: str, run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    whole = run_tiny(**VARIANTS[variant], directory=tmp_path / "whole")
    path = tmp_path / "parts"

    def pause_after(events: int) -> Callable[[], bool]:
        left = iter(range(events))
        return lambda: next(left, None) is None

    with pytest.raises(Paused, match=r"resume with: hiflash run --resume .*parts"):
        run_tiny(**VARIANTS[variant], directory=path, pause=pause_after(2))
    pieces = 1
    while True:
        try:
            resumed = resume_tiny(path, pause=pause_after(37), workers=1 + pieces % 2)
            break
        except Paused:
            pieces += 1
    assert_same_run(whole, resumed)
    assert digest(whole.weights) == whole.digest


@pytest.mark.usefixtures("no_figures")
def test_killed_before_its_first_checkpoint_a_run_starts_again(
    run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    whole = run_tiny(directory=tmp_path / "whole")
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "killed", pause=lambda: True)
    (tmp_path / "killed" / "checkpoint.safetensors").unlink()
    (tmp_path / "killed" / ".result.json.123.tmp").write_text("half")
    assert_same_run(whole, resume_tiny(tmp_path / "killed"))
    assert not list((tmp_path / "killed").glob(".*"))


@pytest.mark.usefixtures("no_figures")
def test_events_after_the_checkpoint_are_cut_on_resume(
    run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    whole = run_tiny(directory=tmp_path / "whole")
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "killed", pause=lambda: True)
    with open(tmp_path / "killed" / "events.jsonl", "a") as events:
        events.write('{"t": 1.0, "event": "upl')  # kill -9 in the middle of a line
    assert_same_run(whole, resume_tiny(tmp_path / "killed"))


def test_resuming_with_other_data_is_refused(run_tiny: Run, tmp_path: Path, tiny_data: Any) -> None:
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "run", pause=lambda: True)
    other = hiflash.Dataset.from_arrays(tiny_data.x + 1, tiny_data.y, tiny_data.x_test, tiny_data.y_test)
    with pytest.raises(RunError, match="begun with data"):
        hiflash.resume(tmp_path / "run", data=other, model=make_tiny_model)


def test_resuming_with_what_the_run_was_begun_without_is_refused(
    run_tiny: Run, resume_tiny: Run, tmp_path: Path, tiny_data: Any
) -> None:
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "run", pause=lambda: True)
    measured = hiflash.FederationData(f_ghz=np.ones(8))
    with pytest.raises(
        ConfigError, match=r'without federation=.* \(federation.files is ""\); leave fed'
    ) as told:
        resume_tiny(tmp_path / "run", federation=measured, train=lambda model, data, context: None)
    assert "without train=... in Python (client.function" in told.value.problems[1]
    settings = {"data.name": "none", "trainer": "none", "stop.communications": 5}
    with pytest.raises(Paused):
        hiflash.run(directory=tmp_path / "bare", pause=lambda: True, **settings)
    with pytest.raises(
        ConfigError, match=r'without data=.* \(data.name is "none"\)\; leave data out'
    ) as told:
        resume_tiny(tmp_path / "bare")
    assert [problem.split("=")[0] for problem in told.value.problems] == [
        "the run was begun without data",
        "the run was begun without model",
    ]


@pytest.mark.parametrize(("saved", "now"), [("none", "abc"), ("abc", "none")])
def test_what_one_side_lacks_is_a_difference(saved: str, now: str) -> None:
    sides = [{} if side == "none" else {"federation": side} for side in (saved, now)]
    with pytest.raises(RunError, match=f"begun with federation {saved} and cannot go on with {now}"):
        _check_identity(*sides)


def test_a_damaged_checkpoint_is_named(run_tiny: Run, resume_tiny: Run, tmp_path: Path) -> None:
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "run", pause=lambda: True)
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(RunError, match=r"checkpoint\.safetensors is damaged"):
        resume_tiny(tmp_path / "run")


@pytest.mark.usefixtures("no_figures")
def test_a_finished_run_is_read_not_repeated(run_tiny: Run, resume_tiny: Run, tmp_path: Path) -> None:
    whole = run_tiny(directory=tmp_path / "run")
    before = (tmp_path / "run" / "events.jsonl").stat().st_mtime_ns
    assert resume_tiny(tmp_path / "run").digest == whole.digest
    assert (tmp_path / "run" / "events.jsonl").stat().st_mtime_ns == before


def test_two_processes_cannot_use_one_run_directory(run_tiny: Run, resume_tiny: Run, tmp_path: Path) -> None:
    from hiflash.store.run_directory import RunDirectory

    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "run", pause=lambda: True)
    holder = RunDirectory.open(tmp_path / "run")
    with pytest.raises(RunError, match="in use by another process"):
        resume_tiny(tmp_path / "run")
    holder.close()


def test_one_edge_with_one_round_is_fedavg(run_tiny: Run) -> None:
    """The same participants, and alpha 1: the cloud takes over what the only edge averaged."""
    everyone: dict[str, Any] = {"stop__communications": 240, "evaluate__every": 60}
    fedavg = run_tiny("fedavg", cloud__participants=12, **everyone)
    hifl = run_tiny(
        federation__edges=1,
        edge__edge_rounds=[1],
        cloud__alpha=1.0,
        cloud__threshold="inf",
        stop__communications=20,
        evaluate__every=5,
    )
    assert fedavg.version == hifl.version == 20
    assert hifl.digest == fedavg.digest
    assert [row["accuracy"] for row in hifl.evaluations] == [row["accuracy"] for row in fedavg.evaluations]


def test_hierfavg_with_one_round_and_all_clients_is_fedavg(run_tiny: Run) -> None:
    fedavg = run_tiny("fedavg", cloud__participants=12, stop__communications=120)
    hierfavg = run_tiny(
        "hierfavg",
        cloud__participants=4,
        edge__edge_rounds=[1],
        edge__clients_per_round="all",
        stop__communications=40,
    )
    assert fedavg.version == hierfavg.version == 10
    np.testing.assert_allclose(hierfavg.weights, fedavg.weights, atol=1e-6)


def test_fedprox_without_its_term_is_fedavg(run_tiny: Run) -> None:
    assert run_tiny("fedprox", client__mu=0.0).digest == run_tiny("fedavg").digest
    assert run_tiny("fedprox", client__mu=0.5).digest != run_tiny("fedavg").digest


@pytest.mark.usefixtures("no_figures")
def test_threshold_zero_runs_one_edge_at_a_time(run_tiny: Run, tmp_path: Path) -> None:
    result = run_tiny(cloud__threshold=0, directory=tmp_path / "run")
    open_leases: set[int] = set()
    for row in events(result):
        if row["event"] == "grant":
            open_leases.add(row["lease"])
            assert len(open_leases) == 1
        elif row["event"] == "upload":
            open_leases.remove(row["lease"])
    assert result.staleness == {"mean": 0.0, "max": 0, "histogram": {"0": result.version}}
    assert result.discarded == 0


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("enforce", ["admit", "discard", "cancel"])
def test_no_applied_upload_exceeds_its_threshold(enforce: str, run_tiny: Run, tmp_path: Path) -> None:
    result = run_tiny(
        cloud__enforce=enforce,
        cloud__threshold_max=4,
        resources__fluctuation="on",
        stop__communications=150,
        directory=tmp_path / enforce,
    )
    thresholds = {row["lease"]: float(row["threshold"]) for row in events(result) if row["event"] == "grant"}
    uploads = [row for row in events(result) if row["event"] == "upload"]
    assert all(
        (row["staleness"] <= thresholds[row["lease"]]) == (row["status"] == "applied") for row in uploads
    )
    assert sum(row["status"] == "applied" for row in uploads) == result.version
    assert len(uploads) == result.communications == 150
    if enforce != "admit":
        assert result.waited == 0
        assert result.discarded > 0
    assert (result.cancelled > 0) == (enforce == "cancel")


def test_bytes_and_communications_add_up(run_tiny: Run) -> None:
    flat, tree = run_tiny("fedavg"), run_tiny("hifl")
    model_bytes = 4 * flat.parameters
    assert flat.wan_bytes_up == flat.communications * model_bytes
    assert flat.wan_bytes_down == sum(flat.grants_per_edge) * model_bytes
    assert flat.lan_bytes == 0
    assert flat.client_uploads == flat.communications
    assert tree.lan_bytes_up == tree.client_uploads * model_bytes
    assert tree.lan_bytes_down == tree.lan_bytes_up
    assert tree.client_steps == 3 * tree.client_uploads


def test_targets_are_recorded_at_the_first_evaluation_that_reaches_them(run_tiny: Run) -> None:
    result = run_tiny(stop__target=0.7, stop__communications=2000)
    assert result.stop_reason == "target 0.7 reached"
    reached = next(row for row in result.evaluations if row["accuracy"] >= 0.7)
    assert reached is result.evaluations[-1]
    assert result.targets["0.7"] == {
        name: reached[name]
        for name in ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost")
    }
    assert result.targets["0.95"] is None


def test_virtual_seconds_end_a_run(run_tiny: Run) -> None:
    result = run_tiny(stop__virtual_s=1.5)
    assert result.stop_reason == "1.5 virtual s used up"
    assert result.virtual_s <= 1.5


def test_nothing_is_written_without_a_directory(
    run_tiny: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_tiny(stop__communications=5)
    assert list(tmp_path.iterdir()) == []


def test_a_run_directory_holds_everything(run_tiny: Run, tmp_path: Path) -> None:
    result = run_tiny(directory=tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.toml", "events.jsonl", "result.json", "model.safetensors", "checkpoint.safetensors",
        "figure.png", "figure.pdf", "SHA256SUMS",
    }  # fmt: skip
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == json.loads(
        json.dumps(result.to_dict())
    )
    text = (tmp_path / "run" / "events.jsonl").read_text()
    assert str(tmp_path) not in text
    assert "wall" not in text


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 200, "nul\0"])
def test_hostile_run_names_are_refused(name: str, run_tiny: Run, tmp_path: Path) -> None:
    from hiflash.store.run_directory import check_name

    with pytest.raises(RunError, match="a run name has"):
        check_name(name)


def test_bad_data_leaves_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        hiflash.run(directory=tmp_path / "run", **{"data.partition": "noniid77"})
    with pytest.raises(ConfigError):
        hiflash.run(
            directory=tmp_path / "run", **{"data.augment": True, "model.name": "resnet", "client.lr": -1}
        )
    assert list(tmp_path.iterdir()) == []


def test_own_indices_decide_who_holds_what(tiny_data: Any) -> None:
    indices = [range(start, start + 100) for start in (0, 100, 200)]
    settings = {**TINY, "federation.clients": 3, "federation.edges": 3, "stop.communications": 10}
    result = hiflash.run(data=tiny_data, model=make_tiny_model, indices=indices, **settings)
    assert result.partition == "own"
    with pytest.raises(DataError, match="client 1"):
        hiflash.run(data=tiny_data, model=make_tiny_model, indices=[[0], [], [1]], **settings)
    with pytest.raises(ConfigError, match="indices has 1 clients"):
        hiflash.run(data=tiny_data, model=make_tiny_model, indices=[[0]], **settings)


def events(result: hiflash.Result) -> list[dict[str, Any]]:
    assert result.path is not None
    return [json.loads(line) for line in (result.path / "events.jsonl").read_text().splitlines()]


CONTROL = {
    "hifl": {"method": "hifl"},
    "hifl-cancel": {"method": "hifl", "cloud__enforce": "cancel", "cloud__threshold": 1},
    "hifl-fluctuating": {"method": "hifl", "resources__fluctuation": "on"},
    "hifl-deadline": {"method": "hifl", "edge__deadline_s": 0.0006, "edge__quorum": 0.9, "wan": "off"},
    "hifl-sampled": {"method": "hifl", "edge__clients_per_round": 2, "edge__redraw": "grant"},
    "hierfavg": {"method": "hierfavg"},
    "fedavg": {"method": "fedavg"},
}


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("variant", CONTROL)
def test_without_training_the_same_things_happen(variant: str, run_tiny: Run, tmp_path: Path) -> None:
    trained = run_tiny(**CONTROL[variant], directory=tmp_path / "trained")
    control = run_tiny(**CONTROL[variant], directory=tmp_path / "control", trainer="none")
    kept = [row for row in events(trained) if row["event"] not in ("evaluate", "stop")]
    assert [row for row in events(control) if row["event"] != "stop"] == kept
    numbers, other = trained.to_dict(), control.to_dict()
    same = (
        "communications client_steps wasted_client_steps virtual_s total_cost staleness wan_bytes lan_bytes "
        "grants_per_edge applied_per_edge discarded waited"
    )
    for name in same.split():
        assert other[name] == numbers[name], name
    assert control.trainer == "none"
    assert control.accuracy is None


def test_without_data_every_client_counts_the_same(tmp_path: Path) -> None:
    result = hiflash.run(
        trainer="none",
        data={"name": "none"},
        federation={"clients": 5000, "edges": 50},
        stop={"communications": 300, "client_steps": "none"},
    )
    assert result.communications == 300
    assert result.parameters == 21_840
    with pytest.raises(ConfigError, match='needs trainer = "none"'):
        hiflash.run(data={"name": "none"})
    with pytest.raises(ConfigError, match="centralized only trains"):
        hiflash.run(method="centralized", trainer="none", directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_that_cannot_be_compiled_runs_on_torch_with_one_line_of_notice(
    tiny_data: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from torch import nn

    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Tanh())
    settings = {**TINY, "stop.communications": 5}
    result = hiflash.run(data=tiny_data, model=model, **settings)
    assert result.trainer == "torch"
    assert len(caplog.records) == 1
    assert "Tanh" in caplog.text
    with pytest.raises(ConfigError, match="trainer native cannot run this"):
        hiflash.run(data=tiny_data, model=model, **{**settings, "trainer": "native"})


@pytest.mark.parametrize("trainer", ["auto", "native", "torch", "stacked"])
def test_an_unknown_optimiser_is_an_error_before_a_trainer_is_chosen(
    trainer: str, run_tiny: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r'client.optimizer must be one of .*adamw.*, got "adamm"'):
        run_tiny(trainer=trainer, client__optimizer="adamm")
    assert caplog.text == ""


@pytest.mark.usefixtures("no_figures")
def test_resuming_with_another_trainer_is_refused(run_tiny: Run, resume_tiny: Run, tmp_path: Path) -> None:
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "run", pause=lambda: True, trainer="torch")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('trainer = "torch"', 'trainer = "native"'))
    with pytest.raises(RunError, match=r"config\.toml is damaged: SHA256SUMS has another checksum"):
        resume_tiny(tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS").write_text("")  # the way out for a change that is meant
    with pytest.raises(RunError, match=r"begun with (config|trainer)"):
        resume_tiny(tmp_path / "run")


@pytest.mark.parametrize("trainer", ["native", "torch", "stacked"])
def test_trainers_agree(trainer: str, run_tiny: Run) -> None:
    reference = run_tiny(trainer="torch")
    result = run_tiny(trainer=trainer)
    assert result.trainer == trainer
    np.testing.assert_allclose(result.weights, reference.weights, atol=1e-4)
