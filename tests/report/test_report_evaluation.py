"""Tables and figures of an evaluation, from made-up runs."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hiflash.report.agent_figures import draw_sigma, draw_threshold_boxes
from hiflash.report.evaluation import evaluation_tables, markdown, tables_of, verdicts
from hiflash.report.evaluation_figures import _normalised, draw_evaluation
from hiflash.study.policies.summary import judge, table

COSTS = {"random": 200.0, "fixed-0": 130.0, "fixed-2": 120.0, "agent": 90.0}


def row(policy: str, kind: str, seed: int) -> dict[str, Any]:
    total = COSTS[policy] + 10 * (seed % 2)
    return {
        "policy": policy, "dynamics": kind, "seed": seed, "reached": (policy, seed) != ("fixed-0", 1),
        "total_cost": total, "compute_cost": 0.5 * total, "send_cost": 0.2 * total, "time_cost": 0.3 * total,
        "communications": total / 2, "virtual_s": total / 10, "client_steps": 100 * total,
        "worst_edge_accuracy": 0.85, "applied_share": [0.75, 0.25], "waited_rate": [0.0, 0.0],
        "refused_rate": [0.0, 0.5] if policy == "agent" else [0.0, 0.0],
    }  # fmt: skip


@pytest.fixture
def told() -> dict[str, Any]:
    kinds = ("static", "fluctuating")
    rows = [row(policy, kind, seed) for policy in COSTS for kind in kinds for seed in (0, 1)]
    judged = {
        kind: judge(
            [each for each in rows if each["dynamics"] == kind],
            [row(policy, kind, 100) for policy in ("fixed-0", "fixed-2")],
        )
        for kind in kinds
    }
    return {
        **table(rows), "main": "aware-admit", "conditions": {"noniid-discard": table(rows[:4])},
        "comparisons": {"aware-admit": judged}, "seeds": [0, 1], "choice_seeds": [100],
        "agents": {"aware-admit": {"agent": "auto", "digest": "0123456789abcdef"}}, "missing": 3,
        "data": "mnist", "partition": "noniid2", "target": 0.9,
    }  # fmt: skip


def test_the_policies_on_top_are_those_of_the_main_condition(told: dict[str, Any]) -> None:
    assert {name: list(policies) for name, policies in tables_of(told).items()} == {
        "aware-admit": list(COSTS), "noniid-discard": ["random"],
    }  # fmt: skip


@pytest.mark.parametrize("width", [80, 160])
def test_tables_fit_and_mark_what_did_not_reach_the_target(told: dict[str, Any], width: int) -> None:
    console = Console(width=width, record=True, file=StringIO())
    for each in evaluation_tables(told, width):
        console.print(each)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "135±7*" in text  # fixed-0: 130 and 140, of which the latter is below the target
    assert "heterogeneity-aware, admit, fluctuating: to 90% accuracy" in text
    assert "Edge-NonIID, discard, static: to 90% accuracy" in text
    assert "85.0±0.0%" in text


def test_verdicts_say_what_was_met_and_how_the_best_was_chosen(told: dict[str, Any]) -> None:
    said = verdicts(told)
    assert list(said) == ["heterogeneity-aware, admit, static", "heterogeneity-aware, admit, fluctuating"]
    first, *bars = said["heterogeneity-aware, admit, fluctuating"]
    assert first == "best fixed threshold fixed-2, chosen on seeds 100 (mean cost: fixed-0 130, fixed-2 120)"
    # agent 90 and 100 against random 200 and 210: -110 of 205; against fixed-2 120 and 130: -30 of 125
    assert [bar.split(":")[0] for bar in bars] == ["MET", "MET", "MET"]
    assert "cost -53.7 % [-53.7, -53.7], 2 seeds, against random thresholds" in bars[0]
    assert "better than the best fixed threshold: cost -24.0 %" in bars[1]


def test_the_page_has_tables_verdicts_and_what_is_missing(told: dict[str, Any]) -> None:
    page = markdown(told)
    assert "**3 runs are missing.**" in page
    assert "Agents: aware-admit auto (0123456789ab)." in page
    assert "- MET: at least 25 % below random thresholds" in page
    assert "| agent | 2/2 | **95.0±7.1** |" in page
    assert "| fixed-0 | 1/2 | 135±7\\* |" in page
    # Only policies that refuse anybody are in that table.
    refused = page.split("admit, static: check-ins refused by the policy")[1].split("##")[0]
    assert "| agent | 0.0% | 50.0% |" in refused
    assert "random" not in refused
    assert "check-ins not admitted" not in page


def test_one_seed_is_not_called_a_mean(told: dict[str, Any]) -> None:
    several = markdown(told)
    assert "Seeds 0, 1; mean±deviation of the sample. The best" in several
    assert "## heterogeneity-aware, admit, static: to 90% accuracy, mean±deviation over seeds" in several
    assert "edges from the fastest to the slowest; mean over seeds" in several
    rows = [row(policy, "static", 0) for policy in COSTS]
    alone = markdown({**told, **table(rows), "conditions": {}, "comparisons": {}, "seeds": [0]})
    assert "Seed 0 alone. The best" in alone
    assert "## heterogeneity-aware, admit, static: to 90% accuracy, one seed" in alone
    assert "edges from the fastest to the slowest; one seed" in alone
    assert "mean" not in alone


def test_nothing_is_named_after_a_method_with_another_association(told: dict[str, Any]) -> None:
    figure = _normalised(tables_of(told)["aware-admit"], ["static"], "x")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["random thresholds", "learned thresholds"]


def test_figures_are_saved_for_every_condition(told: dict[str, Any], tmp_path: Path) -> None:
    names = [path.name for path in draw_evaluation(told, tmp_path)]
    assert names == [
        f"{name}.{kind}"
        for name in ("cost-aware-admit", "normalised-aware-admit", "cost-noniid-discard")
        for kind in ("png", "pdf")
    ]
    assert all((tmp_path / name).stat().st_size > 5_000 for name in names)


def test_thresholds_over_episodes_and_under_other_weights_are_drawn(tmp_path: Path) -> None:
    episodes = [{"episode": 0, "thresholds": [-1, 0, 8, 16]}, {"episode": 150, "thresholds": [-1]}]
    sigma = [
        {"sigma": [5, 5], "label": "resource-heavy", "thresholds": [0, 1], "parallelism": 1.5},
        {"sigma": [0.2, 0.2], "label": "time-heavy", "thresholds": [4, 9], "parallelism": 6.0},
    ]
    paths = draw_threshold_boxes(episodes, tmp_path / "boxes") + draw_sigma(sigma, tmp_path / "sigma")
    assert [path.name for path in paths] == ["boxes.png", "boxes.pdf", "sigma.png", "sigma.pdf"]
    assert all(path.stat().st_size > 5_000 for path in paths)
