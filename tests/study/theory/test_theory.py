"""`hiflash theory`: the check on a small federation, its verdicts, files, calculator and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import hiflash
from hiflash.cli import main
from hiflash.errors import ConfigError
from hiflash.sim.made_by import made_by
from hiflash.study.theory.bounds import Constants, Schedule, strongly_convex_bound
from hiflash.study.theory.claims import judge
from hiflash.study.theory.plan import theory_plan
from hiflash.study.theory.settings import check_setting
from hiflash.study.theory.study import TheoryStudy
from tiny import make_tiny_data

FEW: dict[str, Any] = {"federation.clients": 12, "federation.edges": 4}
PAPER = ["lemma2", "lemma2_loss", "theorem1", "theorem1_informative", "theorem2", "theorem2_informative",
         "remark1", "remark2", "remark3_premise", "remark3"]  # fmt: skip


@pytest.fixture(scope="module")
def study() -> TheoryStudy:
    return hiflash.theory(
        data=make_tiny_data(), taus=[2, 0], updates=30,
        associations=["edge-iid", "edge-noniid"], **FEW, **{"federation.classes_per_edge": 2},
    )  # fmt: skip


def test_the_lemma_and_the_bounds_hold_and_theorem_1_says_nothing(study: TheoryStudy) -> None:
    holds = study.holds
    assert list(holds)[: len(PAPER)] == PAPER
    for name in ("lemma2", "lemma2_own", "lemma2_convex", "lemma2_loss", "theorem1", "delayed", "remark1"):
        assert holds[name] is True, name
    for name in ("theorem1_informative", "remark3_premise", "remark3"):
        assert holds[name] is False, name


def test_settings_are_in_the_order_of_associations_and_tau(study: TheoryStudy) -> None:
    assert [(setting.association, setting.tau) for setting in study.settings] == [
        ("edge-iid", 0), ("edge-iid", 2), ("edge-noniid", 0), ("edge-noniid", 2),
    ]  # fmt: skip
    for setting in study.settings:
        assert setting.updates == 30
        assert setting.staleness_max <= setting.tau
        assert len(setting.trial.staleness) == 30
        assert setting.gap[0] == pytest.approx(np.log(4) - study.task["loss_best"])
        assert setting.gap.min() > 0  # nothing is better than the optimum


def test_theorem_1_is_never_below_the_first_gap(study: TheoryStudy) -> None:
    """C2 <= |grad F(w0)|^2 / 2 mu <= V / 2 mu <= A1 V / B <= C3."""
    for setting in study.settings:
        bound = setting.theorem1
        visited = next(f.visited for f in study.federations if f.association == setting.association)
        assert bound.C2 <= visited.V / (2 * visited.mu) <= bound.A1 * visited.V / bound.B <= bound.C3
        curve = [bound.after(version) for version in range(31)]
        assert curve == sorted(curve)
        assert curve[0] == pytest.approx(setting.gap[0])


def test_the_verdict_on_lemma_2_is_no_if_the_divergence_is_understated(study: TheoryStudy) -> None:
    setting, federation = study.settings[0], study.federations[0]
    schedule = Schedule(*(study.task[name] for name in ("eta", "c", "H_min", "H_max")))
    small = replace(federation.visited, delta_max=0.9 * setting.lemma2.used * federation.visited.delta_max)
    wrong = check_setting(
        setting.trial, small, federation.gradient, schedule, setting.alpha_tau, study.task["loss_best"]
    )
    assert not wrong.lemma2.holds
    claims = {claim.name: claim.holds for claim in judge([wrong, *study.settings[1:]])}
    assert claims["lemma2"] is False


def test_a_bound_below_the_gap_is_found(study: TheoryStudy) -> None:
    setting = study.settings[0]
    low = strongly_convex_bound(
        Constants(1.0, 0.5, 0.0, 0.0, 0.0, 0.0), Schedule(0.9, 3, 3, 3), 1.0, float(setting.gap[0])
    )
    assert not setting.bound_holds(low).holds
    claims = judge([replace(setting, theorem1=low), *study.settings[1:]])
    assert next(claim.holds for claim in claims if claim.name == "theorem1") is False


def test_one_setting_cannot_tell_what_several_could() -> None:
    study = hiflash.theory(data=make_tiny_data(), taus=[1], associations=["random"], updates=5, **FEW)
    unknown = [name for name, holds in study.holds.items() if holds is None]
    assert unknown == ["remark1", "remark2", "remark3", "gap_rises_with_tau", "edge_iid_is_better",
                       "delayed_rises_with_tau"]  # fmt: skip


def test_the_trial_is_what_real_training_gives() -> None:
    """The same federation, trained by torch through `hiflash.run`, ends at the same loss."""
    raw = make_tiny_data()
    x = raw.x.reshape(len(raw.x), -1).astype(np.float64)
    x -= x.mean(axis=0)
    x /= np.sqrt(np.square(x).sum(axis=1).mean())
    data = hiflash.Dataset.from_arrays(
        x.astype(np.float32), raw.y, raw.x_test.reshape(len(raw.y_test), -1), raw.y_test, classes=4
    )
    common = {**FEW, "data.partition": "iid", "client.lr": 0.5, "client.weight_decay": 0.02}
    checked = hiflash.theory(data=data, taus=[2], associations=["random"], updates=25, **common)

    def model() -> nn.Module:
        linear = nn.Linear(36, 4, bias=False)
        nn.init.zeros_(linear.weight)
        return linear

    result = hiflash.run(
        data=data, model=model, **common, trainer="torch", workers=1,
        **{"cloud.threshold": 2, "client.batch": 1000, "client.lr_decay": 1.0, "data.normalise": "none",
           "stop.target": "none", "stop.communications": 25},
    )  # fmt: skip
    assert result.version == 25
    weights = result.weights.reshape(4, 36).astype(np.float64)
    logits = data.x @ weights.T
    tops = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(data.y)), data.y]
    loss = tops.mean() + 0.01 * np.square(weights).sum()
    assert loss - checked.task["loss_best"] == pytest.approx(checked.settings[0].gap[-1], abs=1e-6)


def test_the_same_check_gives_the_same_numbers_and_files(tmp_path: Path) -> None:
    def numbers(name: str) -> tuple[Mapping[str, Any], dict[str, bytes]]:
        found = hiflash.theory(
            data=make_tiny_data(), taus=[0, 1], updates=5, associations=["edge-iid"],
            directory=tmp_path / name, **FEW,
        )  # fmt: skip
        return found.to_json(), {path.name: path.read_bytes() for path in found.files}

    (one, files), (other, again) = numbers("a"), numbers("b")
    assert one == other
    assert files == again
    assert set(files) == {"theory.json", "curves.csv", "rounds.csv", "theory.png", "theory.pdf"}
    assert json.loads(files["theory.json"]) == json.loads(json.dumps(one))
    assert one["made_by"] == made_by()


def test_theorem_2_fails_on_real_digits_if_clients_hardly_move() -> None:
    """After 10 updates with eta = 0.001 nearly the first gap is left, and the bound is a quarter of it."""
    study = hiflash.theory(taus=[0], associations=["edge-iid"], updates=10, client={"lr": 0.001})
    (setting,) = study.settings
    assert study.holds["theorem2"] is False
    assert setting.gap[-1] > 0.99 * setting.gap[0] > 3 * setting.theorem2.after(10)
    assert study.holds["lemma2"] is True
    assert study.holds["theorem1"] is True
    assert study.holds["delayed"] is True


def test_one_local_step_has_no_drift() -> None:
    study = hiflash.theory(
        data=make_tiny_data(), taus=[0, 3], updates=10, associations=["edge-iid"],
        **FEW, **{"client.local_steps": 1},
    )  # fmt: skip
    assert study.holds["lemma2"] is True
    assert study.settings[0].lemma2.used == 0  # g(1) is 0, and so is the distance
    assert study.settings[0].delayed.client_part == 0


def test_the_command_prints_one_object_with_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("[theory]\ntaus = [0, 1]\nupdates = 4\n[data]\npartition = 'iid'\n")
    words = [
        "theory",
        "mine.toml",
        "--associations=random",
        "--federation.clients=40",
        "--edge.edge_rounds=[1]",
    ]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["holds"]["lemma2"] is True
    assert [setting["tau"] for setting in told["settings"]] == [0, 1]
    assert (told["task"]["updates"], told["task"]["H_max"]) == (4, 1)
    same = hiflash.theory(
        "mine.toml",
        associations=["random"],
        directory="runs/here",
        federation={"clients": 40},
        edge={"edge_rounds": [1]},
    )
    assert json.loads(json.dumps(same.to_json())) == told
    there = tmp_path / "runs/theory-mnist5k-iid"
    assert {path.name for path in there.iterdir()} == {path.name for path in same.files}
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "does it hold?" in printed
    assert "runs/theory-mnist5k-iid/theory.png" in printed


NUMBERS = "eta=0.25,beta=2,mu=1,rho=3,delta_max=4,Delta=0.8,V=9,c=2,H_min=1,H_max=2,gap=10,T=2"


def test_the_calculator_on_the_command_line_and_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"{NUMBERS},alpha=0.5,upsilon=1,tau=1,mu_weak=1,mu_tilde=3,beta_tilde=4,rho_tilde=5"
    assert main(["theory", "--calculate", f"{words},delta_tilde=2,Delta_tilde=0.5,V_tilde=8", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["g"] == [0.0, 0.0, 0.5]  # tests/study/theory/test_bounds.py has the working
    assert told["theorem1"]["C3"] == pytest.approx(7.9 / 0.4375)
    assert told["theorem2"]["C3"] == pytest.approx(236 / 0.4375)
    assert told["delayed"]["C1"] == pytest.approx(0.78125**0.5)
    given = {name: float(value) for name, value in (each.split("=") for each in NUMBERS.split(","))}
    assert hiflash.theory_bounds(**given, alpha=0.5, upsilon=1, tau=1)["theorem1"] == told["theorem1"]
    assert main(["theory", "--calculate", NUMBERS]) == 0
    assert "theorem1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--calculate", "eta=1"], "the calculator needs beta, mu, rho,"),
        (["--calculate", f"{NUMBERS},gamma=1"], "the calculator does not know gamma; it knows eta,"),
        (["--calculate", "eta"], "--calculate must be like eta=0.1,beta=2,..., got eta"),
        (["--calculate", "eta=1,eta=2"], "--calculate has eta twice"),
        (["--calculate", NUMBERS.replace("c=2", "c=1.5")], "c must be a whole number"),
        (["--calculate", NUMBERS.replace("V=9", "V=-9")], "V must be a number >= 0, got -9"),
        (["--calculate", NUMBERS.replace("c=2", "c=2000")], "g grows as (eta beta + 1)^c = 1.5^2000"),
        (["--calculate", f"{NUMBERS},mu_tilde=1".replace("rho=3", "rho=1e200")], "use constants nearer to 1"),
        (["--calculate", f"{NUMBERS},mu_tilde=1e-200"], "a term of the bounds is beyond the range"),
        (
            ["--calculate", NUMBERS.replace("mu=1", "mu=1e-300").replace("V=9", "V=1e299"), "--json"],
            "theorem1.C3, theorem1.U would be beyond the range of numbers",
        ),
        (["--calculate", NUMBERS, "--associations="], "and --associations would do nothing"),
        (["--associations=,"], "associations must name at least one, like edge-iid,edge-noniid; got none"),
        (["--associations="], "associations must name at least one"),
        (["--calculate", NUMBERS, "--taus=1"], "--calculate runs nothing, and --taus would do nothing"),
        (["--cloud.threshold=2"], "cloud.threshold does nothing here: the theory is checked for several"),
        (["--stop.communications=2"], "stop.communications does nothing here: use --updates"),
        (["--client.momentum=0.9"], "the theory assumes plain gradient steps, and client.momentum is 0.9"),
        (["--cloud.mixing=delta"], "the theory assumes Eq. 8, and cloud.mixing is delta"),
        (
            ["--method=fedavg"],
            "the theory is of asynchronous methods with edges, and fedavg is none; use hifl",
        ),
        (["--mobility.moves_per_s=1"], "the theory assumes clients that stay, and mobility.* is set"),
        (["--client.weight_decay=0"], "Theorem 1 needs strong convexity; set client.weight_decay above 0"),
        (["--client.lr=10"], "Theorem 1 needs client.lr < 1 / beta = "),
        (["--taus=-1"], "taus must be whole numbers >= 0, like [0, 1, 2, 4, 8], got [-1]"),
        (["--taus=1,1"], "taus has a number twice"),
        (["--updates=0"], "updates must be a whole number in 1..100,000, got 0"),
        (["--associations=nearest"], "federation.association must be"),
        (["--data.name=none"], 'data.name = "none" needs trainer = "none"'),
        (["--method=none"], "method must be"),
        (["--federation.classes_per_edge=2", "--associations=random"], "federation.classes_per_edge is for"),
    ],
)
def test_what_the_theory_does_not_cover_is_an_error(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["theory", *words]) == 2
    assert said in capsys.readouterr().err


def test_arguments_from_python_are_checked() -> None:
    with pytest.raises(ConfigError, match="taus must be whole numbers"):
        hiflash.theory(taus="2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="updates must be a whole number"):
        theory_plan(updates=True)
    numbers = hiflash.Dataset.from_arrays(np.ones((20, 2)), np.arange(20.0), task="regression")
    with pytest.raises(ConfigError, match="samples of numbers with one class each"):
        hiflash.theory(data=numbers, **FEW)
    with pytest.raises(ConfigError, match="data must be a Dataset"):
        hiflash.theory(data="mnist")  # type: ignore[arg-type]
