"""Reports of saved runs: what is found, how it is grouped, what is left out, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import hiflash
from hiflash.errors import ConfigError, RunError
from hiflash.report.page.shown import ShownStudy
from hiflash.study.shown_runs import find_runs
from tiny import TINY, make_tiny_model

RunTiny = Callable[..., hiflash.Result]
SHORT = {"stop.communications": 10}


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory, tiny_data: hiflash.Dataset) -> Path:
    """Return a folder with a comparison of two variants, a sweep, and three runs of their own."""
    home = tmp_path_factory.mktemp("made") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hiflash.study.run.draw_result", lambda result, folder: None)
        settings = {**TINY, **SHORT, "data": tiny_data, "model": make_tiny_model}
        hiflash.compare(
            methods=["hifl"],
            variants={"delta": {"method": "hifl", "cloud.mixing": "delta"}},
            seeds=2,
            directory=home / "both",
            **settings,
        )
        hiflash.sweep(grid={"cloud.alpha": [0.5, 0.7]}, directory=home / "alphas", **settings)
        for name, more in (("a-s0", {}), ("b-s1", {"seed": 1}), ("c-s0", {"cloud.alpha": 0.5})):
            hiflash.run(method="hifl", directory=home / name, **{**settings, **more})
    return home


@pytest.fixture
def runs(studies: Path, tmp_path: Path) -> Path:
    """Return a copy to change."""
    return Path(shutil.copytree(studies, tmp_path / "runs"))


def labels(study: ShownStudy) -> list[tuple[str, int]]:
    return [(run.result["label"], run.result["seed"]) for run in study.runs]


def test_studies_are_found_in_a_folder_of_folders(studies: Path) -> None:
    found = find_runs([studies])
    assert [(study.path, study.kind, len(study.runs)) for study in found.studies] == [
        ("runs", "collection", 3),
        ("runs/alphas", "sweep", 2),
        ("runs/both", "comparison", 4),
    ]
    assert found.left_out == []


def test_runs_of_a_comparison_keep_their_labels_and_the_order_of_the_command(studies: Path) -> None:
    (study,) = find_runs([studies / "both"]).studies
    assert labels(study) == [("hifl", 0), ("hifl", 1), ("delta", 0), ("delta", 1)]


def test_runs_with_other_settings_are_not_averaged_as_seeds(studies: Path) -> None:
    (study,) = find_runs([studies / name for name in ("a-s0",)]).studies
    assert study.kind == "run"
    collection = find_runs([studies]).studies[0]
    assert labels(collection) == [("a", 0), ("b", 1), ("c", 0)]  # c has another alpha


def test_runs_that_differ_only_in_their_seed_share_a_label(runs: Path) -> None:
    shutil.rmtree(runs / "c-s0")
    collection = find_runs([runs]).studies[0]
    assert labels(collection) == [("hifl", 0), ("hifl", 1)]


def test_the_same_run_in_two_folders_is_not_two_seeds(runs: Path) -> None:
    shutil.rmtree(runs / "c-s0")
    shutil.copytree(runs / "a-s0", runs / "copy-s0")
    collection = find_runs([runs]).studies[0]
    assert [label for label, _ in labels(collection)] == ["a", "b", "copy"]


def test_a_folder_given_twice_counts_once(studies: Path) -> None:
    found = find_runs([studies, studies / "both", studies])
    assert sum(len(study.runs) for study in found.studies) == 9  # 3 + 2 + 4


def test_a_comparison_without_its_list_is_told_by_folders(runs: Path) -> None:
    (runs / "both/compare.json").write_text("{")
    found = find_runs([runs / "both"])
    assert [label for label, _ in labels(found.studies[0])] == [
        "delta-noniid2", "delta-noniid2", "hifl-noniid2", "hifl-noniid2",
    ]  # fmt: skip
    assert "both/compare.json cannot be read" in found.left_out[0]


def test_runs_given_one_by_one_are_compared(studies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(studies)
    (study,) = find_runs([Path("a-s0"), Path("b-s1")]).studies
    assert (study.path, study.kind) == ("runs", "collection")
    assert labels(study) == [("hifl", 0), ("hifl", 1)]


def test_folders_of_the_same_name_stay_apart(studies: Path, tmp_path: Path) -> None:
    for name in ("x", "y"):
        shutil.copytree(studies / "both", tmp_path / name / "both")
    found = find_runs([tmp_path / "x/both", tmp_path / "y/both"])
    assert [(study.path, len(study.runs)) for study in found.studies] == [("both", 4), ("y/both", 4)]


def test_damage_inside_a_result_without_checksum_is_seen(runs: Path) -> None:
    told = json.loads((runs / "a-s0/result.json").read_text())
    del told["evaluations"][0]["communications"]
    (runs / "a-s0/result.json").write_text(json.dumps(told))
    (runs / "a-s0/SHA256SUMS").unlink()
    report = hiflash.make_report([runs / "a-s0", runs / "b-s1"])
    assert report.left_out == ["a-s0/result.json is damaged (KeyError('communications'))"]


def test_damaged_and_unfinished_runs_are_named_and_left_out(runs: Path) -> None:
    one, two, three = (runs / "both" / f"{name}-s{seed}" for name, seed in _CELLS[:3])
    (one / "result.json").write_bytes((one / "result.json").read_bytes().replace(b"0", b"1", 1))
    (two / "config.toml").unlink()
    (three / "result.json").unlink()
    report = hiflash.make_report(runs / "both")
    assert [run.path for run in report.studies[0].runs] == ["both/hifl-noniid2-s1"]
    damaged, missing, unfinished = report.left_out
    assert damaged.startswith("both/delta-noniid2-s0/result.json is damaged")
    assert missing.startswith("both/delta-noniid2-s1/config.toml cannot be read")
    assert unfinished == "both/hifl-noniid2-s0 is unfinished: it has no result.json yet"
    for line in report.left_out:
        assert line.split(" ")[0] in report.html()
    assert str(runs) not in report.html()


_CELLS = [("delta-noniid2", 0), ("delta-noniid2", 1), ("hifl-noniid2", 0), ("hifl-noniid2", 1)]


def test_the_page_has_what_repeats_a_run(studies: Path, tmp_path: Path) -> None:
    report = hiflash.make_report(studies / "both", out=tmp_path / "report", title="Mine & yours")
    page, text = (path.read_text() for path in report.files[:2])
    assert page == report.html()
    assert "<title>Mine &amp; yours</title>" in page
    for study in report.studies:
        for run in study.runs:
            assert run.result["digest"] in page
            assert run.result["digest"] in text
    assert "cloud.mixing" in page  # the settings that differ
    assert "[federation]" in page
    assert page.count("<details>") == 2  # a configuration per label, not per seed
    assert "hiflash.run(CONFIG, data=..., model=...)" in page  # no command has a program's objects
    assert f"HiFlash {hiflash.__version__}" in page
    assert str(studies) not in page + text
    written = sorted(path.relative_to(tmp_path / "report").as_posix() for path in report.files)
    assert written == sorted(
        ["report.html", "report.md"]
        + [f"figures/study-1-{name}.svg" for name in ("compare", "latency", "targets", "tradeoff")]
    )
    assert all((tmp_path / "report" / name).is_file() for name in written)


def test_means_and_spread_are_those_of_the_runs(studies: Path) -> None:
    report = hiflash.make_report(studies / "both")
    rows = report.to_dict()["studies"][0]["rows"]
    row = next(row for row in rows if row["label"] == "delta" and row["target"] is None)
    times = [
        json.loads((studies / f"both/delta-noniid2-s{seed}/result.json").read_text())["virtual_s"]
        for seed in (0, 1)
    ]
    assert row["virtual_s_mean"] == pytest.approx(sum(times) / 2)
    assert row["virtual_s_std"] == pytest.approx(
        abs(times[0] - times[1]) / 2**0.5
    )  # of two: |a - b| / sqrt 2
    assert "±" in report.html()


def test_the_same_runs_give_the_same_bytes(studies: Path, tmp_path: Path) -> None:
    one, two = (hiflash.make_report(studies, out=tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in one.files] == [path.read_bytes() for path in two.files]


def test_without_a_folder_nothing_is_written(
    studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hiflash.make_report([studies / "a-s0"]).files == []
    assert list(tmp_path.iterdir()) == []


def test_claims_come_first(studies: Path) -> None:
    claim = hiflash.Claim(claim="HiFL is cheaper", ours="it is not", holds=False, why="random thresholds")
    report = hiflash.make_report(studies / "a-s0", claims=[claim])
    page = report.html()
    assert page.index("does not agree") < page.index('id="study-1"')
    assert report.to_dict()["claims"][0]["holds"] is False


def test_the_verdicts_of_an_item_of_the_paper_come_first(
    studies: Path, tmp_path: Path, no_figures: None
) -> None:
    hiflash.reproduce("models", directory=tmp_path)
    report = hiflash.make_report(tmp_path)
    assert report.studies == []
    assert {claim.holds for claim in report.claims} == {True, False}
    assert "models (Table 2)" in report.html()
    both = hiflash.make_report([tmp_path, studies / "a-s0"])
    assert (len(both.claims), len(both.studies)) == (len(report.claims), 1)


def test_an_item_without_runs_is_shown_with_its_figure_and_its_numbers(tmp_path: Path) -> None:
    hiflash.reproduce("js-lambda", directory=tmp_path / "runs", **{"data.name": "mnist5k"})  # type: ignore[arg-type]
    report = hiflash.make_report(tmp_path / "runs", out=tmp_path / "report")
    assert (report.studies, report.left_out, len(report.items)) == ([], [], 1)
    html = report.files[0].read_text()
    assert html.count("data:image/png;base64,") == 1
    assert (tmp_path / "report/figures/item-1-lambda.png").is_file()
    assert "<p>1 item of the paper.</p>" in html
    for words in ("small scale", "data.name = mnist5k", "--data.name mnist5k", "Numbers of js-lambda"):
        assert words in html
    (told,) = report.to_dict()["items"]
    assert (told["path"], told["scale"]) == ("runs/js-lambda/small", "small")
    assert told["changed"] == {"data.name": "mnist5k"}
    assert {claim["of"] for claim in report.to_dict()["claims"]} >= {"", "js_falls_noniid1"}
    (tmp_path / "runs/js-lambda/small/lambda.png").write_bytes(b"none")
    (left,) = hiflash.make_report(tmp_path / "runs").left_out
    assert left == "runs/js-lambda/small/lambda.png cannot be shown (it is no whole PNG)"


def test_figures_that_the_runs_give_are_not_shown_twice(tmp_path: Path) -> None:
    more = {"data.name": "mnist5k", "stop.communications": 3, "workers": 1}
    hiflash.reproduce("latency", directory=tmp_path, seeds=1, **more)  # type: ignore[arg-type]
    report = hiflash.make_report(tmp_path / "latency")
    assert (len(report.items), len(report.studies), report.page.pictures) == (1, 1, [])
    assert "study-1-latency" in [drawn.name for drawn in report.page.drawings]
    assert report.page.about.startswith("1 item of the paper. 7 runs in 1 study")


def test_a_finished_training_is_not_called_unfinished(studies: Path, tmp_path: Path) -> None:
    for name, file in (
        ("item/agent", "training.json"),
        ("mine", "training.json"),
        ("half", "training.safetensors"),
    ):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.toml").touch()
        (tmp_path / "runs" / name / file).touch()
    (tmp_path / "runs/item/paper.json").write_text("{}")  # its own line
    assert hiflash.make_report([tmp_path / "runs", studies / "a-s0"]).left_out == [
        "runs/half is unfinished: it has no training.json yet",
        "runs/item/paper.json cannot be read ('item')",
        "runs/mine is the training of an agent: its figures are in its folder",
    ]


def test_a_configuration_that_nests_without_end_is_left_out(runs: Path) -> None:
    (runs / "a-s0/config.toml").write_text("a = " + "[" * 100_000)
    (runs / "a-s0/SHA256SUMS").unlink()
    report = hiflash.make_report([runs / "a-s0", runs / "b-s1"])
    assert "a-s0/config.toml cannot be read" in report.left_out[0]


@pytest.mark.parametrize("content", ["{", "[]", '{"claims": [{"says": 3}]}', "[" * 100_000, '{"rows": 3}'])
def test_a_damaged_item_is_left_out(content: str, studies: Path, tmp_path: Path) -> None:
    (tmp_path / "item").mkdir()
    (tmp_path / "item/paper.json").write_text(content)
    report = hiflash.make_report([tmp_path / "item", studies / "a-s0"])
    assert "item/paper.json cannot be read" in report.left_out[0]


def test_a_deployed_run_is_replayed(runs: Path) -> None:
    (runs / "a-s0/journal.sqlite").touch()
    assert "hiflash replay a-s0" in hiflash.make_report(runs / "a-s0").html()


def test_a_run_without_training_has_no_curve(tmp_path: Path) -> None:
    hiflash.run(
        method="hifl",
        trainer="none",
        data={"name": "none"},
        stop={"communications": 5},
        directory=tmp_path / "p",
    )
    page = hiflash.make_report(tmp_path / "p").html()
    assert "nothing (trainer none)" in page
    assert "hiflash run p/config.toml --name p-again" in page


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"runs": "nowhere"}, "nowhere is not a folder"),
        ({"runs": []}, "at least one folder"),
        ({"runs": 3}, "runs must be folders"),
        ({"runs": [""]}, "at least one folder"),
        ({"title": ""}, "title must be a text"),
        ({"claims": ["yes"]}, "claims must be a list of hiflash.Claim"),
        ({"out": 3}, "out must be the path of a folder"),
    ],
)
def test_a_wrong_argument_is_said_to_be_wrong(studies: Path, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        hiflash.make_report(**{"runs": studies / "a-s0", **wrong})  # type: ignore[arg-type]


def test_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="empty has no runs"):
        hiflash.make_report(tmp_path / "empty")


def test_nothing_is_written_if_every_run_is_damaged(runs: Path, tmp_path: Path) -> None:
    (runs / "a-s0/result.json").write_text("{}")
    with pytest.raises(RunError, match=r"(?s)no run is left to report.*a-s0/result.json is damaged"):
        hiflash.make_report(runs / "a-s0", out=tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_file_in_the_way_is_named_before_anything_is_drawn(studies: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/below"):
        with pytest.raises(ConfigError, match="file is a file"):
            hiflash.make_report(studies / "a-s0", out=tmp_path / out)
    assert (tmp_path / "file").read_text() == "mine"
