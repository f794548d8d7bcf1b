"""The price of privacy: `hiflash associate --privacy.epsilon`, and runs with noised histograms and groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hiflash
from hiflash.cli import main
from hiflash.errors import ConfigError, Paused
from hiflash.study import private_association
from hiflash.study.private_association import parse_epsilons, price_of_privacy
from hiflash.study.run import resume
from tiny import TINY, assert_same_run, make_tiny_data, make_tiny_model

SMALL = ["--federation.clients=30", "--federation.edges=5", "--draws=3"]
BY_LABELS = {**TINY, "federation.association": "heterogeneity", "stop.communications": 20}


def test_noise_costs_divergence_and_groups_do_and_latency_stays_low() -> None:
    config = hiflash.Config(**{"federation.association": "heterogeneity", "privacy.epsilon": 1.0})
    study = price_of_privacy(config, epsilons=[0.1, 10.0], draws=4)
    found = {(row.histograms, row.epsilon): row for row in study.rows}
    assert set(found) == {
        *(("single", epsilon) for epsilon in (0.1, 1.0, 10.0)),
        *(("group", epsilon) for epsilon in (0.1, 1.0, 10.0, None)),
        ("exact", None),
        ("none", None),
    }
    exact, random = found["exact", None], found["none", None]
    assert exact.total_js == pytest.approx(
        hiflash.associate(config.with_settings({"privacy.epsilon": "off"})).rows[0].total_js
    )
    assert found["single", 10.0].total_js < 1.3 * exact.total_js
    assert found["single", 0.1].total_js > 2 * exact.total_js
    assert found["group", None].total_js > 1.5 * exact.total_js
    assert all(row.mean_latency_ms < random.mean_latency_ms for row in study.rows if row is not random)
    assert [row for row in study.rows if row.chosen] == [found["single", 1.0]]
    assert (exact.draws, found["single", 0.1].draws, exact.total_js_sd) == (1, 4, 0.0)
    assert study.clusters == hiflash.associate(config).clusters[0]


def test_without_the_packages_of_secure_sums_or_clients_for_groups_the_other_rows_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = {"federation.clients": 12, "federation.edges": 2, "federation.association": "data"}
    for settings, has in (({}, False), ({"federation.edges": 5}, True)):
        monkeypatch.setattr(private_association, "has_packages", lambda has=has: has)
        config = hiflash.Config(**{**few, **settings})
        rows = price_of_privacy(config, epsilons=[1.0], draws=1).rows
        assert [row.histograms for row in rows] == ["single", "exact", "none"]


def test_the_command_shows_a_table_json_and_a_figure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["associate", *SMALL, "--privacy.epsilon", "1", f"--runs={tmp_path}"]
    assert main([*words, "--json", "--out", str(tmp_path / "files/association.csv")]) == 0
    rows = json.loads(capsys.readouterr().out)
    folder = tmp_path / "associate-mnist5k-noniid2"
    assert json.loads((folder / "privacy.json").read_text()) == rows
    assert (folder / "privacy.png").stat().st_size > 10_000
    assert (folder / "privacy.pdf").exists()
    single = [row["epsilon"] for row in rows if row["histograms"] == "single"]
    assert single == [0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
    assert [row["epsilon"] for row in rows if row["chosen"]] == [1.0]
    assert (tmp_path / "files/association.csv").read_text().count("\n") == 31
    assert main([*words, "--epsilons", "0.5,inf", "--privacy.histograms", "group"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "noised, groups of 3" in said
    assert "0.5" in said
    assert "Laplace noise that hides any one sample" in said


def test_a_call_gives_the_numbers_of_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [*SMALL, "--privacy.epsilon=1", "--epsilons=0.1,1", f"--runs={tmp_path}", "--name=there"]
    assert main(["associate", *words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    small = {"clients": 30, "edges": 5}
    study = hiflash.price_of_privacy(
        federation=small, privacy={"epsilon": 1.0}, epsilons=[0.1, 1], draws=3, directory=tmp_path / "here"
    )
    assert study.to_json() == said
    assert {path.name for path in study.files} == {path.name for path in (tmp_path / "there").iterdir()}


def test_epsilons_are_numbers_or_inf() -> None:
    assert parse_epsilons("0.1, 3,inf") == [0.1, 3.0, float("inf")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epsilons", "0,1"], "epsilons must be numbers > 0"),
        (["--epsilons", "one"], "epsilons must be numbers > 0"),
        (["--epsilons", "1", "--draws", "0"], "draws must be"),
        (["--draws", "3"], "give --epsilons or --privacy.epsilon"),
        (["--epsilons", "1", "--sweep", "0,1"], "give one"),
        (["--epsilons", "1", "--strategy", "heterogeneity,data"], "one strategy"),
        (["--epsilons", "1", "--strategy", "random"], "looks at none"),
        (["--privacy.epsilon", "1", "--strategy", "random"], "privacy.epsilon is for federation.association"),
        (["--privacy.epsilon", "0"], "privacy.epsilon must be"),
        (["--histograms", "nowhere"], "nowhere has no histograms"),
    ],
)
def test_wrong_input_is_a_clear_error_and_writes_nothing(
    words, said, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["associate", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "privacy",
    [
        {"privacy.epsilon": 0.2},
        {"privacy.histograms": "group"},
        {"privacy.epsilon": 0.2, "mobility.repair_s": 0.5},
    ],
)
def test_a_run_under_privacy_goes_on_after_a_pause_to_the_same_digest(privacy, tmp_path: Path) -> None:
    settings, own = {**BY_LABELS, **privacy}, {"data": make_tiny_data(), "model": make_tiny_model}
    whole = hiflash.run(**own, directory=tmp_path / "whole", **settings)
    asked = iter([False] * 15)
    with pytest.raises(Paused):
        hiflash.run(**own, directory=tmp_path / "parts", pause=lambda: next(asked, True), **settings)
    assert_same_run(resume(tmp_path / "parts", **own), whole)


def test_results_report_the_true_divergence_of_clusters_made_from_noised_histograms() -> None:
    own = {"data": make_tiny_data(), "model": make_tiny_model}
    exact = hiflash.run(**own, **BY_LABELS)
    off = hiflash.run(**own, **BY_LABELS, **{"privacy.epsilon": "off"})
    noised = hiflash.run(**own, **BY_LABELS, **{"privacy.epsilon": 0.05})
    assert off.digest == exact.digest
    assert noised.digest != exact.digest
    assert noised.total_js > exact.total_js


def test_repairs_see_noised_histograms_and_report_the_true_divergence(tmp_path: Path) -> None:
    """With the association random, only joins and repairs look at labels."""
    moving = {**TINY, "mobility.repair_s": 0.4, "mobility.moves_per_s": 4.0, "stop.communications": 40}
    own = {"data": make_tiny_data(), "model": make_tiny_model}
    exact = hiflash.run(**own, **moving)
    noised = hiflash.run(**own, **moving, **{"privacy.epsilon": 0.05})
    before = [run.mobility["repairs"][0]["total_js_before"] for run in (exact, noised)]
    assert before[0] == before[1]  # the same clusters, measured by the true labels
    assert [each["total_js"] for each in noised.mobility["repairs"]] != [
        each["total_js"] for each in exact.mobility["repairs"]
    ]


def test_the_digest_of_a_configuration_that_hides_nothing_stays() -> None:
    plain = hiflash.Config(**{"federation.association": "heterogeneity"})
    assert not any(key.startswith("privacy.") for key in plain.decisive())
    hidden = plain.with_settings({"privacy.epsilon": 1.0})
    assert hidden.decisive()["privacy.epsilon"] == 1.0
    assert hidden.digest() != plain.digest()


def test_a_study_needs_labels() -> None:
    config = hiflash.Config(**{"federation.association": "random"})
    with pytest.raises(ConfigError, match="looks at none"):
        price_of_privacy(config)
