"""Histograms in the privacy ledger: charged once, beside the model's epsilon or inside it, never lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("dp_accounting", reason='needs pip install "hiflash[dp]"')

import dp_accounting
from dp_accounting.rdp import RdpAccountant

import hiflash
from hiflash.errors import ConfigError, Paused
from hiflash.report.privacy import spent_words
from hiflash.sim.sent_histograms import sent_histograms
from tiny import TINY, assert_same_run, make_tiny_data, make_tiny_model

DATA = make_tiny_data()
NOISED: dict[str, Any] = {**TINY, "federation.association": "heterogeneity", "privacy.epsilon": 2.0}
PRIVATE: dict[str, Any] = {"dp.unit": "client", "dp.noise": 1.0}
FEW = {"stop.communications": 8}


def run(directory: Any = None, pause: Any = None, **settings: Any) -> hiflash.Result:
    given = {"method": "hifl", **NOISED, **FEW, **settings}
    given = {key: value for key, value in given.items() if value is not None}
    return hiflash.run(data=DATA, model=make_tiny_model, directory=directory, pause=pause, **given)


def composed(*events: Any) -> float:
    accountant = RdpAccountant()
    for event, times in events:
        accountant.compose(event, times)
    return float(accountant.get_epsilon(1e-5))


def test_a_run_without_other_noise_says_what_its_histograms_cost() -> None:
    result = run()
    sent = {"noise": "laplace", "epsilon": 2.0, "delta": 0.0, "unit": "sample", "clients": 12}
    assert result.privacy == {"histograms": sent}
    assert spent_words(result.privacy) == "label histograms epsilon 2 for a sample (laplace noise)"


@pytest.mark.parametrize(
    "settings", [{"privacy.epsilon": None}, {"federation.association": "random", "privacy.epsilon": None}]
)
def test_exact_or_unasked_histograms_are_no_charge(settings: dict[str, Any]) -> None:
    assert run(**settings).privacy == {}


def test_another_unit_stands_beside_and_touches_no_budget() -> None:
    result = run(**PRIVATE, **{"dp.epsilon": 10.0, "stop.communications": 60})
    privacy = result.privacy
    # Three rounds fit into 10, as without histograms.
    assert privacy["epsilon"] == pytest.approx(composed((dp_accounting.GaussianDpEvent(1.0), 3)), abs=1e-6)
    assert privacy["unit"] == "client"
    assert privacy["entries"]["label histogram"] == {
        "noise": 0.5,  # a scale of 1 / 2 over a sensitivity of 1
        "kind": "laplace",
        "sampling": 1.0,
        "seen_by": ["models", "participation"],
        "unit": "sample",
    }
    alone = composed((dp_accounting.LaplaceDpEvent(0.5), 1))
    assert privacy["other_units"] == {
        "sample": {
            "epsilon": pytest.approx(alone, abs=1e-6),
            "epsilon_participation": pytest.approx(alone, abs=1e-6),
        }
    }
    assert [group["charges"] for group in privacy["groups"]] == [{"edge round": 3, "label histogram": 1}]
    assert privacy["not_covered"] == []
    assert "for a client" in spent_words(privacy)
    assert "label histograms epsilon 2 for a sample" in spent_words(privacy)


def test_the_same_unit_composes_and_leaves_less_for_rounds() -> None:
    """A histogram of unit client with epsilon 4 leaves room for one round of 4.7 instead of three."""
    result = run(**PRIVATE, **{"dp.epsilon": 10.0, "privacy.unit": "client", "privacy.epsilon": 4.0})
    events = [(dp_accounting.LaplaceDpEvent(0.25), 1), (dp_accounting.GaussianDpEvent(1.0), 1)]
    assert {group["charges"]["edge round"] for group in result.privacy["groups"]} == {1}
    assert result.privacy["epsilon"] == pytest.approx(composed(*events), abs=1e-6)
    events[1] = (events[1][0], 2)
    assert composed(*events) > 10
    assert result.privacy["other_units"] == {}


def test_calibrated_noise_pays_for_the_histogram_too() -> None:
    auto = {"dp.unit": "client", "dp.epsilon": 8.0, "dp.rounds": 5, "privacy.unit": "client"}
    with_it = run(**auto, trainer="none")
    without = run(**{**auto, "privacy.unit": None}, trainer="none")
    assert with_it.privacy["noise"] > without.privacy["noise"]
    events = [
        (dp_accounting.LaplaceDpEvent(0.5), 1),
        (dp_accounting.GaussianDpEvent(with_it.privacy["noise"]), 5),
    ]
    assert 7.99 < composed(*events) <= 8


def test_a_histogram_that_costs_the_whole_budget_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"used up by the label histogram of a client.*lower privacy.epsilon"
    ):
        run(**PRIVATE, **{"dp.epsilon": 3.0, "privacy.unit": "client", "privacy.epsilon": 4.0})


def test_exact_histograms_beside_noise_are_named_and_groups_as_such() -> None:
    exact = run(**PRIVATE, **{"privacy.epsilon": None}).privacy
    assert exact["not_covered"] == ['federation.association = "heterogeneity" read label counts of clients']
    pytest.importorskip("Crypto", reason='needs pip install "hiflash[serve]"')
    groups = {"privacy.epsilon": None, "privacy.histograms": "group"}
    told = run(**PRIVATE, **groups).privacy["not_covered"]
    assert told == ['federation.association = "heterogeneity" read label counts of groups of 3 clients']


def test_joins_and_repairs_ask_for_histograms_too() -> None:
    moving = {"federation.association": "random", "mobility.moves_per_s": 1.0, "mobility.repair_s": 1.0}
    assert run(**moving).privacy["histograms"]["clients"] == 12


def test_labels_that_place_moving_clients_are_named_or_charged(tmp_path: Any) -> None:
    (tmp_path / "availability.csv").write_text("time_s,client,event\n1,0,leave\n2,0,join\n")
    random = {"federation.association": "random", "privacy.epsilon": None}
    note = "clients that join or are moved were placed by their label counts"
    assert run(**PRIVATE, **random).privacy["not_covered"] == []
    assert run(**PRIVATE, **random, **{"mobility.repair_s": 1.0}).privacy["not_covered"] == [note]
    listed = {"federation.files": str(tmp_path)}
    assert run(**PRIVATE, **random, **listed).privacy["not_covered"] == [note]
    # With noise, whoever joins has sent a histogram once, and everybody is charged for it.
    charged = run(**PRIVATE, **listed).privacy
    assert charged["not_covered"] == []
    assert {group["charges"]["label histogram"] for group in charged["groups"]} == {1}
    with pytest.raises(ConfigError, match="opens no single histogram"):
        run(**listed, **{"privacy.histograms": "group", "privacy.epsilon": None})


def test_a_delta_that_lets_clients_be_given_away_is_named() -> None:
    off = {"federation.association": "random", "privacy.epsilon": None}
    assert run(**PRIVATE, **off, **{"dp.delta": 0.08}).privacy["not_covered"] == []
    (note,) = run(**PRIVATE, **off, **{"dp.delta": 0.1}).privacy["not_covered"]
    assert note.startswith("dp.delta = 0.1 is not below 1 / 12 clients")


def test_a_resumed_run_charges_histograms_once(tmp_path: Any) -> None:
    whole = run(**PRIVATE)
    calls = iter(range(10**9))
    with pytest.raises(Paused):
        run(directory=tmp_path / "run", pause=lambda: next(calls) == 20, **PRIVATE)
    resumed = hiflash.resume(tmp_path / "run", data=DATA, model=make_tiny_model)
    assert_same_run(whole, resumed)
    assert {group["charges"]["label histogram"] for group in resumed.privacy["groups"]} == {1}


def test_gaussian_histograms_of_clients_have_their_multiplier() -> None:
    settings = {"privacy.noise": "gaussian", "privacy.unit": "client", "privacy.epsilon": 1.0}
    config = hiflash.Config(**{"federation.association": "data", **settings})
    sent = sent_histograms(config, 100, deployed=False)
    assert sent is not None
    # Deviation 3.7306 for a sensitivity of 1 (Balle and Wang 2018 at epsilon 1, delta 1e-5), whatever it is.
    assert sent.mechanism.noise == pytest.approx(3.7306, abs=1e-3)
    assert sent.release.scale == pytest.approx(np.sqrt(2) * 3.7306, abs=2e-3)


def test_deployed_clients_have_sent_one_if_their_association_was_given(tmp_path: Any) -> None:
    (tmp_path / "association.csv").write_text("client,edge\n0,0\n1,0\n2,1\n3,1\n")
    files = {"federation.files": str(tmp_path)}
    own = {**files, "serve.data": "own"}
    for settings, sends in (
        ({**own, "federation.association": "given"}, True),
        ({**own, "federation.association": "random"}, False),
        ({**own, "federation.association": "given", "privacy.epsilon": "off"}, False),
        ({**files, "federation.association": "given"}, False),
    ):
        sent = sent_histograms(hiflash.Config(**settings), 10, deployed=True)
        assert (sent is not None) == sends, settings
    default = sent_histograms(hiflash.Config(**own, **{"federation.association": "given"}), 10, deployed=True)
    assert default is not None
    assert default.report()["epsilon"] == 1.0
