"""Rules of the paper's claims on results worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hiflash.study.compare import comparison_cells
from hiflash.study.paper.accuracy_rules import accuracy_claims
from hiflash.study.paper.claims import Found, judge
from hiflash.study.paper.example import associate_example
from hiflash.study.paper.items import NAMES, load_item
from hiflash.study.paper.method_rules import (
    cifar10_communications,
    mnist_communications,
    trade_off_claims,
)
from hiflash.study.paper.other_rules import (
    agent_claims,
    example_claims,
    lambda_claims,
    model_claims,
    weight_claims,
)
from hiflash.study.paper.pair_rules import fewer, near, ordered, rougher, steadier
from hiflash.study.paper.rows import rows_of, with_forecast
from hiflash.study.paper.rules import CLAIMS
from hiflash.study.paper.run_rules import js_accuracy_claims, latency_claims
from hiflash.study.paper.runs import Runs
from paper_cells import cell, verdicts


def test_a_target_is_reached_between_two_evaluations() -> None:
    runs = Runs([cell("hifl", [(10, 0.8), (20, 0.84), (30, 0.92)])], 0.9)
    assert runs.to_target("hifl") == pytest.approx(27.5)  # three quarters of the way from 0.84 to 0.92
    assert runs.to_target("hifl", measure="client_steps") == pytest.approx(275)
    assert runs.to_target("hifl", target=0.95) is None
    assert runs.to_target("hifl", "iid") is None


def test_a_stable_target_is_that_of_the_mean_of_five_evaluations() -> None:
    jumps = [(10, 0.9), (20, 0.8), (30, 0.9), (40, 0.9), (50, 0.9), (60, 0.95), (70, 0.9)]
    runs = Runs([cell("hifl", jumps)], 0.9)
    assert (runs.to_target("hifl"), runs.stable("hifl")) == (10, 70)  # 0.87 at 50, 0.89 at 60, 0.91 at 70
    assert runs.stable("hifl", target=0.95) is None
    assert Runs([cell("hifl", jumps), cell("hifl", jumps[:4])], 0.9).stable("hifl") is None


def test_a_target_counts_if_every_seed_reached_it() -> None:
    both = Runs([cell("hifl", [(10, 0.9)]), cell("hifl", [(30, 0.9)])], 0.9)
    one = Runs([cell("hifl", [(10, 0.9)]), cell("hifl", [(30, 0.8)])], 0.9)
    assert (both.to_target("hifl"), one.to_target("hifl")) == (20, None)


@pytest.mark.parametrize(
    ("ours", "theirs", "holds", "change"),
    [(30, 40, True, -25.0), (50, 40, False, 25.0), (30, None, True, None), (None, 40, False, None),
     (None, None, None, None), (130, None, None, None), (None, 130, None, None)],  # 100 were spent
)  # fmt: skip
def test_fewer(ours: int | None, theirs: int | None, holds: bool | None, change: float | None) -> None:
    cells = [
        cell(label, [(100, 0.1)] if at is None else [(at, 0.9)]) for label, at in (("a", ours), ("b", theirs))
    ]
    found = fewer("a", "b")(Runs(cells, 0.9))
    assert found.holds is holds
    assert found.ours == (None if change is None else pytest.approx(change))


def test_accuracies_are_compared_at_the_work_that_both_did() -> None:
    long = cell("hifl", [(10, 0.5), (20, 0.6), (30, 0.99)])
    short = cell("fedavg", [(10, 0.5), (20, 0.58)])
    found = near("hifl", "fedavg")(Runs([long, short]))
    assert found.holds
    assert found.ours == pytest.approx(1.0)  # means of 0.5 and 0.6, and of 0.5 and 0.58, in points
    other = Runs([cell("hifl", [(10, 0.5)]), cell("fedavg", [(10, 0.515)])])
    assert near("hifl", "fedavg")(other).holds is False
    assert near("hifl", "fedavg", points=2.0)(other).holds is True
    assert near("hifl", "fedavg", points=1.0)(other).holds is False


def test_only_falls_are_fluctuation() -> None:
    calm = cell("calm", [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)])
    wild = cell("wild", [(1, 0.1), (2, 0.2), (3, 0.5), (4, 0.4)])
    runs = Runs([calm, wild])
    assert runs.fluctuation("calm") == 0
    assert runs.fluctuation("wild") == pytest.approx(0.1)  # of the second half, 0.5 and 0.4
    assert steadier("calm", "wild")(runs).holds is True
    assert steadier("wild", "calm")(runs).holds is False


def test_fluctuations_are_compared_at_equal_client_work() -> None:
    """Every eight evaluations of `often` span the client work of four of `seldom`."""
    seldom = cell("seldom", [(20 * i, 0.5 - 0.1 * (i % 2)) for i in range(1, 17)])
    often = cell("often", [(10 * i, 0.5 - 0.05 * (i % 4)) for i in range(1, 33)])
    runs = Runs([seldom, often])
    assert (runs.spacing("seldom"), runs.spacing("often")) == (200, 100)
    assert runs.fluctuation("seldom") == pytest.approx(0.3 / 7)  # 0.4, 0.5, ..., 0.5: three falls of 0.1
    assert runs.fluctuation("seldom", apart=200) == runs.fluctuation("seldom")
    assert runs.fluctuation("often", apart=200) == pytest.approx(0.3 / 7)  # 0.4, 0.5, ...: every second one
    assert runs.fluctuation("often", apart=100) == runs.fluctuation("often") == pytest.approx(0.55 / 15)


def test_what_the_spacing_decides_cannot_be_told() -> None:
    """`wild` falls from each evaluation to the next but one, and never from one to the next but three."""
    wild = cell("wild", [(10 * i, 0.5 - 0.1 * (i % 2)) for i in range(1, 33)])
    calm = cell("calm", [(10 * i, 0.5) for i in range(1, 33)])
    falling = cell("falling", [(10 * i, 0.9 - 0.01 * i) for i in range(1, 33)])
    found = rougher("wild", "calm")(Runs([wild, calm]))
    assert found.holds is None  # 100 steps apart it falls, 200 and 400 steps apart it does not
    assert "evaluations 100 client steps apart wild 4.67, calm 0.00 points; 200 client" in found.words
    assert rougher("falling", "calm")(Runs([falling, calm])).holds is True
    assert rougher("calm", "falling")(Runs([falling, calm])).holds is False
    assert rougher("wild", "nobody")(Runs([wild])).holds is None


def test_an_order_with_one_that_never_arrives() -> None:
    cells = [cell("a", [(10, 0.9)]), cell("b", [(20, 0.9)]), cell("c", [(90, 0.1)])]
    rule = ordered(("a", "b", "c"), "communications")
    assert rule(Runs(cells, 0.9)) == Found(True, 100.0, "communications to 90 %: a 10, b 20, c not reached")
    assert ordered(("a", "b"), "communications", rising=False)(Runs(cells, 0.9)).holds is False
    assert rule(Runs(cells, 0.95)).holds is None


def test_a_label_that_some_seeds_miss_needs_at_least_their_budget() -> None:
    early = [cell("a", [(100, 0.9)], seed=seed) for seed in range(3)]
    late = [cell("b", [(10, 0.9)]), cell("b", [(10, 0.9)]), cell("b", [(120, 0.5)])]
    runs = Runs([*early, *late], 0.9)
    assert runs.at_least("b") == pytest.approx((10 + 10 + 120) / 3)
    assert runs.less("a", "b") is None  # b needs more than 47 in the mean
    assert runs.less("b", "a") is None
    slower = Runs([*early, *late[:2], cell("b", [(300, 0.5)])], 0.9)
    assert (slower.less("a", "b"), slower.less("b", "a")) == (True, False)  # more than 107


@pytest.mark.parametrize(("spent", "holds"), [(20_000, False), (5000, None)])
def test_a_number_of_communications_that_is_missed_by_far(spent: int, holds: bool | None) -> None:
    runs = Runs([cell("hiflash", [(spent, 0.5)], "noniid1")], None, (0.6,))
    assert verdicts(cifar10_communications(), runs)["hiflash_communications_noniid1"] == (holds, None)


def test_the_worked_example_of_the_association() -> None:
    """Edge 1 holds classes 0 and 1. Client 3 makes that (2, 1, 0) / 3, client 4 the same of all three."""
    plan = load_item("association-example").plan("small")
    rows = associate_example(*(plan[key] for key in ("classes", "latency_ms", "capacity", "lambdas")))
    assert [row["clusters"] for row in rows] == [[[1, 2, 3], [4, 5, 6]], [[1, 2, 4], [3, 5, 6]]]
    assert rows[0]["costs_ms"] == {"3": 30, "4": 40}
    assert rows[1]["costs_ms"] == {"3": pytest.approx(30 + 300 * 0.2075187), "4": pytest.approx(40)}
    assert verdicts(example_claims(), rows) == {"takes_client_4": (True, 4), "takes_client_3": (True, 3)}


def test_communications_on_mnist() -> None:
    needs = {"hifl": 681, "fedat": 1000, "hierfavg": 500, "fedavg": 3000, "hiflash": 600}
    cells = [cell(label, [(at, 0.9)]) for label, at in needs.items()]
    cells += [cell("fedasync", [(5000, 0.85)]), cell("fedasync-exp", [(5000, 0.91)])]
    cells += [cell("hifl", [(1000, 0.9)], "noniid1"), cell("hiflash", [(900, 0.9)], "noniid1")]
    cells += [cell("fedasync", [(5000, 0.6)], "noniid1")]
    found = verdicts(mnist_communications(), Runs(cells, 0.9))
    assert found["hifl_below_fedat_noniid2"] == (True, pytest.approx(-31.9))
    assert found["hifl_below_hierfavg_noniid2"] == (False, pytest.approx(36.2))
    assert found["hifl_below_fedavg_noniid2"] == (True, pytest.approx(-77.3))
    assert found["fedasync_misses_90_noniid2"] == (True, 0.85)
    assert found["fedasync_exp_misses_90_noniid2"] == (False, 0.91)
    assert found["fedasync_misses_70_noniid1"] == (True, 0.6)
    assert found["hiflash_below_hifl_noniid1"] == (True, pytest.approx(-10.0))
    assert found["fedasync_below_hifl_iid"] == (None, None)
    assert found["hifl_is_best_noniid2"] == (False, 2)  # HierFAVG is before it


def test_nobody_misses_a_target_that_the_budget_was_too_small_for() -> None:
    cells = [cell("hifl", [(50, 0.5)]), cell("fedasync", [(50, 0.4)])]
    assert verdicts(mnist_communications(), Runs(cells, 0.9))["fedasync_misses_90_noniid2"] == (None, 0.4)


def test_the_trade_off_is_about_the_highest_accuracy_that_both_reach() -> None:
    cells = [cell("hiflash", [(100, 0.4), (120, 0.6), (130, 0.5)]),
             cell("fedavg", [(900, 0.5), (1020, 0.62)]),
             cell("fedat", [(90, 0.4)]), cell("fedasync", [(5000, 0.7)])]  # fmt: skip
    found = verdicts(trade_off_claims(), Runs(cells))
    assert found["fewer_than_fedavg"] == (True, pytest.approx(-88))  # 120 and 1,000 to 60 %
    assert found["accuracy_near_fedavg"] == (True, pytest.approx(-2))
    assert found["fewer_than_fedat"] == (False, pytest.approx(100 / 9))  # 100 and 90 to 40 %
    assert found["accuracy_above_fedat"] == (True, pytest.approx(20))
    assert found["accuracy_above_fedasync"] == (False, pytest.approx(-10))
    assert found["fewer_than_hierfavg"] == (None, None)


def test_a_slight_loss_of_accuracy_is_at_most_three_points() -> None:
    cells = [cell("hiflash", [(100, 0.6)]), cell("fedavg", [(900, 0.635)])]
    assert verdicts(trade_off_claims(), Runs(cells))["accuracy_near_fedavg"] == (False, pytest.approx(-3.5))


def test_needs_and_the_lead_move_with_heterogeneity() -> None:
    needs = {"fedavg": (100, 200, 400), "hierfavg": (50, 100, 200), "fedat": (40, 90, 200),
             "hifl": (30, 60, 90), "hiflash": (20, 39, 70)}  # fmt: skip
    parts = ("iid", "noniid2", "noniid1")
    cells = [
        cell(k, [(v, 0.9)], part) for k, each in needs.items() for v, part in zip(each, parts, strict=True)
    ]
    runs = Runs(cells, 0.9, (0.9, 0.95))
    found = verdicts(mnist_communications(), runs)
    assert found["needs_grow_with_heterogeneity"] == (True, 100)
    assert found["lead_grows_with_heterogeneity"] == (True, 100)  # of HierFAVG 40, 39, 35 %
    again = Runs([*cells[:-1], cell("hiflash", [(80, 0.9)], "noniid1")], 0.9, (0.9,))
    found = verdicts(mnist_communications(), again)  # 40 % of HierFAVG again; 43 and 40 % of FedAT
    assert found["lead_grows_with_heterogeneity"] == (False, pytest.approx(100 * 4 / 6))
    assert found["hierfavg_below_fedavg_noniid2"] == (True, pytest.approx(-50))


def test_pooled_data_are_compared_with_every_partition() -> None:
    cells = [cell("centralized", [(0, 0.9)], "pooled"), cell("fedavg", [(9, 0.8)], "iid"),
             cell("hifl", [(9, 0.95)], "noniid1")]  # fmt: skip
    found = verdicts(accuracy_claims(("iid", "noniid1")), Runs(cells))
    assert found["centralized_is_the_upper_bound"] == (False, pytest.approx(-5))


def test_latency() -> None:
    ms = {"fedasync": 10, "fedavg": 10, "hierfavg": 50, "fedat": 12, "hifl": 50, "hiflash": 20}
    cells = [cell(k, [(1, 0)], response_latency_ms=v, waiting_ms=-v) for k, v in ms.items()]
    found = verdicts(latency_claims(), Runs(cells))
    assert found["fedasync_lowest_latency"] == (True, 10)  # a flat client of FedAvg has no edge to wait at
    assert found["fedasync_lowest_waiting"] == (False, -10)
    assert found["fedat_below_hiflash_latency"] == (True, 12)


def test_who_ties_is_not_the_lowest() -> None:
    cells = [cell(k, [(1, 0)], response_latency_ms=10, waiting_ms=0) for k in
             ("fedasync", "hierfavg", "fedat", "hifl", "hiflash")]  # fmt: skip
    assert verdicts(latency_claims(), Runs(cells))["fedasync_lowest_latency"] == (False, 10)


def test_accuracy_against_divergence() -> None:
    js = {"a": (0.4, 0.77), "b": (1.0, 0.7), "c": (1.9, 0.65), "d": (6.0, 0.2)}
    cells = [cell(k, [(10, accuracy)], total_js=v) for k, (v, accuracy) in js.items()]
    cells.append(cell("hidelta", [(10, 0.99)], total_js=3.0, method="hidelta"))  # not the paper's method
    found = verdicts(js_accuracy_claims(), Runs(cells))
    assert found["accuracy_falls_with_js"] == (True, pytest.approx(-1))
    assert found["drop"] == (True, pytest.approx(-57))
    assert found["drop_in_range"] == (True, pytest.approx(-12))


def test_lambda() -> None:
    rows = [
        {"lambda": value, "total_js": 2 - value, "mean_latency_ms": 40 + (value == 0)} for value in (0, 1, 2)
    ]
    found = verdicts(lambda_claims(), {"noniid1": rows})
    assert found["js_falls_noniid1"] == (True, pytest.approx(-1))
    assert found["latency_rises_noniid1"][0] is False  # it falls once
    assert found["js_falls_noniid2"] == (None, None)


def test_models() -> None:
    sizes = {"lenet": 21_840, "femnist_cnn": 1, "resnet": 3_504_554, "resnet18": 11_173_962,
             "agent-16": 4_638, "agent-4": 4_235}  # fmt: skip
    found = verdicts(model_claims(), sizes)
    assert [name for name, (holds, _) in found.items() if holds] == [
        "mnist_lenet", "cifar10_resnet", "agent_cifar10",
    ]  # fmt: skip


def training(thresholds: list[int], parallelism: float = 1.0) -> dict[str, Any]:
    return {
        "episodes": [{}] * 20,
        "checks": [
            {"policy": "random", "episode": 0, "cost": 9, "thresholds": [0, 16], "parallelism": 5},
            {
                "policy": "agent",
                "episode": 10,
                "cost": 5,
                "thresholds": thresholds,
                "parallelism": parallelism,
            },
            {"policy": "agent", "episode": 20, "cost": 6, "thresholds": [16], "parallelism": 9},  # dearer
        ],
    }


def test_agents() -> None:
    found = verdicts(agent_claims(), {"agent": training([-1, -1, -1, 11])})
    assert found["decisions_shrink"] == (True, 2)
    assert found["median_shrinks"] == (True, -1)
    assert found["granted_shrink"] == found["granted_median_shrinks"] == (False, 11)  # 8 at random
    assert found["last_shrinks"] == found["granted_last_shrinks"] == (False, 16)
    records = {"resources": training([-1, 3]), "balanced": training([1, 3], 2), "time": training([3, 3], 1.5)}
    found = verdicts(weight_claims(), records)
    assert found["decisions_follow_weights"] == (True, 2)  # 1, 2, 3
    assert found["granted_follow_weights"] == (False, 0)  # 3, 2, 3
    assert found["parallelism_follows_weights"] == (False, 0.5)  # 1, 2, 1.5


def test_every_item_has_claims_with_names_of_their_own() -> None:
    assert {*CLAIMS, "bounds"} == set(NAMES)
    for item, claims in CLAIMS.items():
        assert claims, item
        assert len({claim.name for claim in claims}) == len(claims), item


def test_without_a_target_two_labels_are_compared_at_the_highest_that_both_reach() -> None:
    cells = [cell("a", [(10, 0.5), (20, 0.7), (40, 0.9)]), cell("b", [(20, 0.5), (30, 0.7), (50, 0.8)])]
    runs = Runs(cells, targets=(0.5, 0.7, 0.9))
    assert runs.goal(("a", "b")) == 0.7
    found = fewer("a", "b")(runs)
    assert (found.holds, found.ours) == (True, pytest.approx(100 * (20 / 30 - 1)))
    assert fewer("a", "b")(Runs(cells, targets=(0.95,))).holds is None


def test_the_fewest_for_every_target_and_partition() -> None:
    claims = [claim for claim in mnist_communications() if claim.name == "hifl_is_best_everywhere"]
    rivals = [cell(label, [(50, 0.7), (90, 0.9)], part) for label in ("fedavg", "hierfavg", "fedat")
              for part in ("iid", "noniid2", "noniid1")]  # fmt: skip
    ours = [cell("hifl", [(40, 0.7), (100, 0.9)], "iid"), cell("hifl", [(40, 0.7), (80, 0.8)], "noniid2"),
            cell("hifl", [(9, 0.1)], "noniid1")]  # fmt: skip
    found = judge(claims, Runs([*rivals, *ours], targets=(0.7, 0.9)))[0]
    assert (found.holds, found.ours) == (False, pytest.approx(200 / 3))  # 90 % on IID data is the exception
    assert "2 of 3" in found.found


def test_needs_that_grow_with_heterogeneity() -> None:
    claims = [claim for claim in mnist_communications() if claim.name == "needs_grow_with_heterogeneity"]

    def verdict(*at: int) -> bool | None:
        cells = [
            cell(label, [(x, 0.9)], part)
            for label in ("fedavg", "hierfavg", "fedat", "hifl", "hiflash")
            for x, part in zip(at, ("iid", "noniid2", "noniid1"), strict=False)
        ]
        return judge(claims, Runs(cells, 0.9))[0].holds

    assert (verdict(10, 20, 30), verdict(10, 30, 20), verdict(10, 20)) == (True, False, None)


def test_a_reading_names_the_claim_that_it_repeats() -> None:
    for item, claims in CLAIMS.items():
        for claim in claims:
            assert bool(claim.of) <= bool(claim.reading)
            if claim.of:
                home, _, name = claim.of.rpartition("/")
                original = {other.name: other for other in CLAIMS[home or item]}[name]
                assert not original.of, f"{item}/{claim.name}"


def test_rows_have_what_every_target_took() -> None:
    (row,) = rows_of(Runs([cell("hifl", [(10, 0.5), (30, 0.7)], response_latency_ms=1, waiting_ms=2)],
                          0.6, (0.5, 0.9)))  # fmt: skip
    assert (row["communications"], row["client_steps"], row["spent"]) == (20, 200, 30)
    assert [(each["target"], each["communications"]) for each in row["to"]] == [(0.5, 10), (0.9, None)]


def test_a_forecast_stands_beside_the_rows_where_the_law_knows_the_task() -> None:
    plan: dict[str, Any] = {"methods": ["centralized", "hierfavg"], "seeds": 1}
    # Runs that go on to their budget have no target of their own, and the constant of IID data is not known.
    cells = comparison_cells(**plan, partitions=["iid", "noniid2"], settings={"stop.target": "none"})
    rows = [{"partition": part, "label": label} for part, label in (
        ("noniid2", "hierfavg"), ("noniid2", "other"), ("iid", "hierfavg"))]  # fmt: skip
    known, *others = with_forecast(rows, cells, 0.9)
    assert known["forecast"]["communications"] > 0
    assert [row["forecast"] for row in others] == [None, None]
    assert (
        with_forecast(rows[:1], cells, 0.95)[0]["forecast"]["communications"]
        > (known["forecast"]["communications"])
    )
