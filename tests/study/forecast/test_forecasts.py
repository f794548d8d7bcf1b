"""Forecasts of whole methods, against numbers worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.study.forecast import cell
from tiny import TINY, make_tiny_model

PLAIN = {"trainer": "none", "data.name": "none"}
ONE_EDGE = {"federation.edges": 1, "federation.clients": 10, "edge.edge_rounds": [2]}


def needs(method: str, rounds: float = 20, **settings: Any) -> dict[str, Any]:
    given = {key.replace("__", "."): value for key, value in settings.items()}
    found = hiflash.forecast(methods=[method], rounds=rounds, seeds=1, **PLAIN, **given)
    (row,) = found.rows()
    return row


def test_fedavg_needs_its_rounds() -> None:
    row = needs("fedavg")
    assert row["communications"] == 200  # 20 rounds of 10 clients
    assert row["client_steps"] == 600  # 3 steps each
    assert row["wan_bytes"] == 200 * 2 * 4 * 21840  # every model down and up
    assert (row["reached"], row["staleness"], row["closed_form"]) == (1, 0, None)


def test_two_edge_rounds_count_twice() -> None:
    row = needs("hierfavg")
    assert row["communications"] == 20  # 10 rounds of 2 edges, each adds 2
    assert row["client_steps"] == 600  # 20 uploads of 2 rounds of 5 clients of 3 steps
    assert row["edge_rounds"] == 2


@pytest.mark.parametrize("every", [1, 10, 100])
def test_how_often_a_run_would_be_evaluated_does_not_matter(every: int) -> None:
    # 25 / 2 = 12.5 rounds of 2 edges. Measured needs lie between two evaluations too.
    assert needs("hierfavg", rounds=25, evaluate__every=every)["communications"] == 25
    row = needs("hifl", rounds=4.5, **ONE_EDGE, cloud__alpha=0.5, cloud__threshold=0, evaluate__every=every)
    assert row["communications"] == 4.5  # 0.5 * 2 each


def test_the_other_costs_lie_between_two_updates_as_communications_do() -> None:
    two, three, between = (needs("hierfavg", rounds=rounds) for rounds in (4, 6, 5.5))
    for name in ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost"):
        assert between[name] == pytest.approx(two[name] / 4 + three[name] * 3 / 4)


def test_momentum_adds_up() -> None:
    # After n rounds of steps 1, 1.5, 1.75, ...: 2n - 2 (1 - 0.5^n), 18.00195 at n = 10, 20.00098 at n = 11.
    row = needs("fedavgm", cloud__momentum=0.5)
    assert row["communications"] == pytest.approx(10 * (10 + (20 - 18.00195) / 1.99902), rel=1e-5)


def test_interpolation_moves_by_alpha() -> None:
    row = needs("hifl", **ONE_EDGE, cloud__alpha=0.5, cloud__threshold=0)
    assert row["communications"] == 20  # 0.5 * 2 each
    assert row["closed_form"] == pytest.approx(20)  # 20 * (1 / 0.5 + 0) / 2


def test_delta_mixing_moves_by_the_whole_change() -> None:
    delta = {"cloud.mixing": "delta", "cloud.alpha": 1.0, "cloud.threshold": 0}
    assert needs("hifl", **ONE_EDGE, **delta)["communications"] == 10
    # With momentum 0.5 the changes are 2, 3, 3.5, 3.75, ...: 16.125 after 5 updates, 20.0625 after 6.
    faster = needs("hifl", **ONE_EDGE, **delta, cloud__momentum=0.5)
    assert faster["communications"] == pytest.approx(5 + (20 - 16.125) / 3.9375)


def test_a_buffer_moves_once_for_ten() -> None:
    row = needs("fedbuff", rounds=5, cloud__concurrency=1)
    assert row["communications"] == 50  # no staleness: the mean of ten changes is 1


def test_one_tier_is_fedavg_of_all_its_clients() -> None:
    assert needs("fedat", federation__edges=1)["communications"] == 20


def test_stale_updates_that_are_refused_are_communications_too() -> None:
    row = needs("hifl", cloud__threshold=1, cloud__enforce="discard")
    assert 0 < row["accepted"] < 1
    assert row["closed_form"] == pytest.approx(row["communications"], rel=0.3)


def test_every_upload_lags_behind_by_its_staleness() -> None:
    """The simulator's own run agrees with the closed form once the start is forgotten."""
    row = needs("hifl", rounds=2000)
    assert row["staleness"] > 3
    assert row["closed_form"] == pytest.approx(row["communications"], rel=0.05)


def test_the_learned_thresholds_act() -> None:
    row = needs("hiflash", federation__association="random", cloud__threshold="agent")
    assert row["reached"] == 1
    assert row["staleness"] < needs("hifl")["staleness"]


def test_labels_of_edges_count(tiny_data: hiflash.Dataset) -> None:
    """Edges of one class must all have had their turn; edges with all classes need not."""
    settings = {**TINY, "edge.edge_rounds": [1], "cloud.threshold": 0}
    settings |= {"data.partition": "noniid1", "cloud.mixing": "delta", "cloud.alpha": 1.0}
    rows = {
        association: hiflash.forecast(
            methods=["hifl"], rounds=4, seeds=3, data=tiny_data, model=make_tiny_model,
            **{**settings, **given},
        ).rows()[0]
        for association, given in {
            "edge-iid": {"federation.association": "edge-iid"},
            "edge-noniid": {"federation.association": "edge-noniid", "federation.classes_per_edge": 1},
        }.items()
    }  # fmt: skip
    assert rows["edge-iid"]["mean_js"] < rows["edge-noniid"]["mean_js"]
    assert rows["edge-iid"]["communications"] < rows["edge-noniid"]["communications"]


@pytest.mark.parametrize(
    ("method", "settings", "reason"),
    [
        ("centralized", {}, "no federation"),
        ("fedadam", {}, "divides a change by its own size"),
        ("fedyogi", {}, "divides a change by its own size"),
        ("feddyn", {}, "corrects steps"),
        ("scaffold", {}, "corrects steps"),
        ("hifl", {"attack.kind": "sign_flip"}, "malicious"),
        ("hifl", {"edge.aggregate": "median"}, "compares models"),
        ("fedavg", {"cloud.aggregate": "median"}, "compares models"),
        ("hifl", {"cloud.norm_bound": 3.0}, "no norm"),
        ("hifl", {"client.batch_norm": "local"}, "a model of its own for every client"),
        ("hifl", {"wan.upload": "topk"}, "leaves entries of a model out"),
    ],
)
def test_what_a_number_cannot_stand_for_is_an_error(
    method: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(hiflash.ConfigError, match=reason):
        hiflash.forecast(methods=[method], rounds=20, seeds=1, **settings)


def test_among_others_it_is_left_out_with_the_reason() -> None:
    found = hiflash.forecast(methods=["hierfavg", "fedadam"], rounds=20, seeds=1, **PLAIN)
    assert [row["label"] for row in found.rows()] == ["hierfavg"]
    assert "divides a change" in found.left_out["fedadam"]


def test_all_methods_are_forecast_or_left_out_with_a_reason() -> None:
    found = hiflash.forecast(methods=["all"], rounds=3, seeds=1)
    told = {row["label"] for row in found.rows()}
    assert set(found.left_out) == {"centralized", "scaffold", "feddyn", "fedadam", "fedyogi"}
    assert told | set(found.left_out) == set(hiflash.list_methods())
    assert all(row["reached"] for row in found.rows())


def test_a_budget_does_not_end_a_forecast_but_is_told() -> None:
    row = needs("fedavg", stop__communications=50)
    assert (row["communications"], row["over_budget"]) == (200, ["communications"])


def test_a_method_that_never_gets_there_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "MOST", 1)
    row = needs("hifl", cloud__alpha=0.1)  # 20 communications bring about 2
    assert (row["reached"], row["communications"]) == (0, 20)


def test_clients_that_move_join_and_leave_are_simulated() -> None:
    row = needs("hifl", mobility__moves_per_s=1.0, mobility__leaves_per_s=0.5, mobility__joins_per_s=0.5)
    assert row["reached"] == 1


def test_more_clients_than_samples_repeat_the_samples() -> None:
    found = hiflash.forecast(methods=["hierfavg"], rounds=4, seeds=1, federation={"clients": 5000})
    (row,) = found.rows()
    assert row["notes"] == ["4,000 samples are too few: they are repeated, a batch for every client"]
    assert row["communications"] == pytest.approx(4, rel=0.1)  # 2 rounds of 2 edges, which are much alike


def test_a_flat_asynchronous_method_is_simulated_with_a_thousand_clients() -> None:
    (row,) = hiflash.forecast(
        methods=["fedasync"], rounds=4, seeds=1, federation={"clients": 20_000, "edges": 200}, **PLAIN
    ).rows()
    assert row["notes"] == ["1,000 of 20,000 clients are simulated"]


def test_a_large_federation_is_forecast_once_unless_asked() -> None:
    found = hiflash.forecast(methods=["hifl"], rounds=4, federation={"clients": 10_000}, **PLAIN)
    assert found.rows()[0]["seeds"] == 1
    assert hiflash.forecast(methods=["hifl"], rounds=4, **PLAIN).rows()[0]["seeds"] == 3


def test_the_files_hold_the_rows(tmp_path: Path) -> None:
    found = hiflash.forecast(
        methods=["fedavg", "hifl"], rounds=20, seeds=2, directory=tmp_path / "f", **PLAIN
    )
    assert [path.name for path in found.files] == ["forecast.csv", "forecast.json"]
    saved = json.loads((tmp_path / "f" / "forecast.json").read_text())
    assert saved == json.loads(json.dumps(found.to_dict()))
    assert (tmp_path / "f" / "forecast.csv").read_text().splitlines()[1].startswith("fedavg,fedavg,none")


def test_one_method_and_one_seed_may_be_settings() -> None:
    found = hiflash.forecast(method="hierfavg", seed=7, rounds=20, **PLAIN)
    assert [(each.tags["label"], each.config.seed) for each in found.cells] == [("hierfavg", 7)]


@pytest.mark.parametrize("rounds", [0, -1, True, "many", float("nan")])
def test_rounds_must_be_a_number_above_zero(rounds: Any) -> None:
    with pytest.raises(hiflash.ConfigError, match="rounds must be FedAvg's rounds"):
        hiflash.forecast(rounds=rounds, **PLAIN)


def test_a_forecast_repeats_to_the_bit() -> None:
    one, other = (hiflash.forecast(methods=["hifl", "hiflash"], rounds=20, seeds=1) for _ in range(2))
    assert one.to_dict() == other.to_dict()
