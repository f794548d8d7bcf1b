from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hiflash.config import Config
from hiflash.errors import ConfigError
from hiflash.study.policies.plan import parse_agents, plan


def test_the_full_evaluation_has_every_policy_condition_and_seed() -> None:
    full = plan()
    # 2 associations x 2 modes x 2 dynamics x (12 policies x 5 seeds + 6 fixed thresholds x 3 choice seeds)
    assert len(full.cells) == len({cell.name for cell in full.cells}) == 8 * (12 * 5 + 6 * 3)
    assert (full.seeds, full.choice_seeds) == ([0, 1, 2, 3, 4], [100, 101, 102])
    on_choice_seeds = {cell.tags["policy"] for cell in full.cells if cell.config.seed >= 100}
    assert on_choice_seeds == {"fixed-0", "fixed-1", "fixed-2", "fixed-4", "fixed-8", "fixed-16"}


def test_a_cell_is_what_its_name_says() -> None:
    cells = {cell.name: cell.config for cell in plan().cells}
    common: dict[str, Any] = {"method": "hiflash", "data.name": "mnist", "stop.communications": 2000}
    assert cells["aware-admit-static-random-s3"] == Config(seed=3, workers=1, **common,
        **{"federation.association": "heterogeneity", "cloud.enforce": "admit",
           "resources.fluctuation": "off", "cloud.threshold": "random"})  # fmt: skip
    assert cells["noniid-discard-fluctuating-skip-5-s0"] == Config(seed=0, workers=1, **common,
        **{"federation.association": "edge-noniid", "cloud.enforce": "discard",
           "resources.fluctuation": "on", "cloud.threshold": "skip_slowest", "cloud.skipped": 5})  # fmt: skip
    assert cells["aware-admit-static-fixed-16-s100"].cloud.threshold == 16


def test_quick_is_one_seed_of_a_few_policies_in_the_main_condition() -> None:
    quick = plan(quick=True, policies="random,fixed-0,fixed-2,fixed-8,parallel")
    assert [cell.name for cell in quick.cells] == [
        f"aware-admit-static-{policy}-s0"
        for policy in ("random", "fixed-0", "fixed-2", "fixed-8", "parallel")
    ]
    assert quick.choice_seeds == []


def test_the_file_in_experiments_is_the_full_evaluation() -> None:
    file = Path(__file__).parents[3] / "experiments" / "evaluate_agent.toml"
    here, there = plan(), plan(file)
    assert [(cell.name, cell.config) for cell in here.cells] == [
        (cell.name, cell.config) for cell in there.cells
    ]


def test_a_file_and_what_is_given_replace_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'data.name = "mnist5k"\nclient.lr = 0.05\n'
        '[evaluate_agent]\npolicies = ["fixed-3"]\nseeds = [7]\nchoice_seeds = []\nenforce = ["cancel"]\n'
    )
    mine = plan(file, dynamics="static", associations="noniid", settings={"client.lr": 0.1})
    assert [cell.name for cell in mine.cells] == ["noniid-cancel-static-fixed-3-s7"]
    config = mine.cells[0].config
    assert (config.data.name, config.client.lr, config.cloud.threshold) == ("mnist5k", 0.1, 3)


def test_an_agent_is_for_all_or_for_some_conditions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "mine.safetensors")
    assert parse_agents("auto") == {"": "auto"}
    assert parse_agents("mine.safetensors") == {"": file}
    assert parse_agents("aware=mine.safetensors, noniid-discard=mnist") == {
        "": "auto", "aware": file, "noniid-discard": "mnist",
    }  # fmt: skip
    assert parse_agents({"aware-discard": "mnist"}) == {"": "auto", "aware-discard": "mnist"}
    cells = plan(policies="agent", dynamics="static", seeds=1, agent="mnist,aware=mine.safetensors").cells
    assert [(cell.name, cell.config.cloud.threshold, cell.config.cloud.agent) for cell in cells] == [
        ("aware-admit-static-agent-s0", "agent", file), ("aware-discard-static-agent-s0", "agent", file),
        ("noniid-admit-static-agent-s0", "agent", "mnist"),
        ("noniid-discard-static-agent-s0", "agent", "mnist"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "settings", "said"),
    [
        ({"policies": "random,best"}, {}, "policies must be some of random, fixed-0"),
        ({"policies": "fixed-x"}, {}, "got fixed-x"),
        ({"policies": ","}, {}, "got none"),
        ({"associations": "random"}, {}, "associations must be some of aware, noniid, got random"),
        ({"enforce": "strict"}, {}, "enforce must be some of admit, discard, cancel, got strict"),
        ({"dynamics": "off"}, {}, "dynamics must be some of static, fluctuating, got off"),
        ({"seeds": [0, 100]}, {}, "seeds and choice_seeds both have 100"),
        ({"seeds": [9_000]}, {}, "seeds must be below 9000, got 9000: training uses"),
        ({"choice_seeds": [10_000]}, {}, "seeds must be below 9000, got 10000"),
        ({"choice_seeds": 1.5}, {}, "choice_seeds must be a list of seeds, got 1.5"),
        ({"agent": 5}, {}, "agent must be a name, a file or a table of them by condition, got 5"),
        ({"choice_seeds": 3}, {}, "choice_seeds must be a list of seeds, got 3"),
        ({"agent": "nobody=x"}, {}, "got nobody=x"),
        ({"agent": "x,y"}, {}, "names the agent of one condition twice"),
        ({"agent": "aware="}, {}, "got aware="),
        ({}, {"seed": 3}, "an evaluation varies seed itself; use --seeds"),
        ({}, {"cloud": {"threshold": 2}}, "use --policies"),
        ({}, {"stop.target": "none"}, "reach stop.target"),
        ({}, {"trainer": "none"}, "trainer is none"),
        ({}, {"method": "fedavg"}, "cloud.threshold is for asynchronous methods"),
        ({}, {"client.lr": -1}, "client.lr must be"),
    ],
)
def test_what_is_wrong_is_said(wanted: dict[str, Any], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(**wanted, settings=settings)
