from __future__ import annotations

from typing import Any

import pytest

from hiflash.study.policies.summary import describe, judge, paired, t_quantile, table


def row(policy: str, seed: int, cost: float, **more: Any) -> dict[str, Any]:
    """Return a row whose every measure is the cost, and whose two edges share the updates evenly."""
    names = ("compute_cost", "send_cost", "time_cost", "communications", "virtual_s", "client_steps")
    return {
        "policy": policy, "dynamics": "static", "seed": seed, "reached": True, "total_cost": cost,
        **dict.fromkeys(names, cost), "worst_edge_accuracy": 0.8, "applied_share": [0.5, 0.5],
        "refused_rate": [0.0, 0.0], "waited_rate": [0.0, 0.0], **more,
    }  # fmt: skip


def rows(policy: str, costs: list[float], **more: Any) -> list[dict[str, Any]]:
    return [row(policy, seed, cost, **more) for seed, cost in enumerate(costs)]


def bars(judged: dict[str, Any]) -> list[str]:
    return [bar["outcome"] for bar in judged["bars"]]


@pytest.mark.parametrize(
    ("freedom", "confidence", "expected"),
    # From a printed table of Student's t, two-sided.
    [(1, 0.5, 1.0), (1, 0.95, 12.706), (2, 0.95, 4.303), (4, 0.95, 2.776), (9, 0.95, 2.262),
     (30, 0.95, 2.042), (9, 0.999, 4.781), (30, 0.999, 3.646)],
)  # fmt: skip
def test_quantiles_are_those_of_student(freedom: int, confidence: float, expected: float) -> None:
    assert t_quantile(freedom, confidence) == pytest.approx(expected, abs=5e-4)


def test_mean_spread_and_interval_by_hand() -> None:
    told = describe([3, 5, 8])
    assert told["mean"] == pytest.approx(16 / 3)
    # 3 - 16/3 = -7/3, -1/3, 8/3: squares 49/9 + 1/9 + 64/9 = 114/9; / 2 = 19/3
    assert told["spread"] == pytest.approx((19 / 3) ** 0.5)
    # t with 2 degrees of freedom is 4.3027; half width 4.3027 * sqrt(19/3) / sqrt(3) = 4.3027 * sqrt(19) / 3
    assert told["high"] - told["mean"] == pytest.approx(4.302653 * 19**0.5 / 3, rel=1e-6)
    assert told["mean"] - told["low"] == pytest.approx(told["high"] - told["mean"])
    assert told["values"] == [3, 5, 8]


def test_one_value_has_neither_spread_nor_interval() -> None:
    assert describe([4.0]) == {"mean": 4.0, "spread": None, "low": None, "high": None, "values": [4.0]}


def test_the_table_counts_runs_that_did_not_reach_the_target_with_what_they_spent() -> None:
    runs = [row("random", 0, 10), row("random", 1, 30, reached=False, applied_share=[0.9, 0.1])]
    told = table([*runs, row("random", 0, 7, dynamics="fluctuating")])
    static = told["random"]["static"]
    assert (static["total_cost"]["mean"], static["runs"], static["reached"]) == (20, 2, 1)
    assert static["edges_fast_to_slow"]["applied_share"] == [0.7, 0.3]  # (0.5 + 0.9) / 2, (0.5 + 0.1) / 2
    assert static["seeds"] == [0, 1]
    assert told["random"]["fluctuating"]["total_cost"]["values"] == [7]


def test_differences_are_paired_by_seed() -> None:
    ours = [row("agent", 2, 50), row("agent", 1, 70), row("agent", 5, 1)]
    theirs = [row("random", 1, 100), row("random", 2, 100), row("random", 9, 1)]
    told = paired(ours, theirs, "total_cost")
    assert told["seeds"] == [2, 1]
    assert told["values"] == [-50, -30]  # 50 - 100, 70 - 100
    assert told["percent"] == -40  # -40 of a mean of 100
    # spread of -50 and -30 is sqrt(200); t with 1 degree is 12.7062; half t * sqrt(200 / 2) = 127.062
    assert told["percent_high"] == pytest.approx(-40 + 127.062, abs=1e-3)


def test_the_best_fixed_threshold_is_chosen_on_other_seeds() -> None:
    reported = rows("fixed-0", [1, 1]) + rows("fixed-2", [5, 5]) + rows("agent", [4, 4])
    choice = [row("fixed-0", 100, 9), row("fixed-2", 100, 8), row("fixed-2", 101, 99)]
    judged = judge(reported, choice)
    assert judged["best_fixed"] == "fixed-2"  # 8 < 9 on seed 100, the only one that both have
    assert (judged["chosen_on"], judged["hindsight"]) == ([100], False)
    assert judged["choice"] == {"fixed-0": 9, "fixed-2": 8}
    assert judged["against_best_fixed"]["mean"] == -1
    without = judge(reported, [])
    assert (without["best_fixed"], without["hindsight"]) == ("fixed-0", True)


def test_a_threshold_that_does_not_reach_the_target_is_not_the_best() -> None:
    choice = [row("fixed-0", 100, 5, reached=False), row("fixed-2", 100, 8)]
    assert judge(rows("random", [1]), choice)["best_fixed"] == "fixed-2"


def test_the_bars_of_static_resources() -> None:
    fixed, chosen = rows("fixed-2", [80, 90, 100]), [row("fixed-2", 100, 90)]
    rivals = [*rows("random", [100, 110, 120]), *fixed]
    # 70, 80, 90 is 30 below random's 110, 27.3 %, and 10 below fixed-2, both without any spread
    assert bars(judge([*rivals, *rows("agent", [70, 80, 90])], chosen)) == ["met", "met", "met"]
    # 85, 95, 105 is 13.6 % below random and 5 above fixed-2 in every seed: beyond noise
    assert bars(judge([*rivals, *rows("agent", [85, 95, 105])], chosen)) == ["missed", "missed", "met"]
    # -1, 1, 1 above fixed-2: 1/3 + 4.303 * sqrt(4 / 3) / sqrt(3) = 3.2 at most, 3.6 % of 90: within noise
    assert bars(judge([*rivals, *rows("agent", [79, 91, 101])], chosen))[1] == "met"
    # 60, 95, 120 is worse on average than fixed-2 (91.7 against 90), and three seeds allow for far more
    judged = judge([*rivals, *rows("agent", [60, 95, 120], worst_edge_accuracy=0.76)], chosen)
    assert bars(judged) == ["missed", "not shown", "missed"]  # 0.76 is 4 points below 0.8
    assert judged["bars"][2]["said"] == "-4.0 points [-4.0, -4.0] against fixed-2"


def test_the_bar_of_fluctuating_resources_asks_for_more() -> None:
    chosen = [row("fixed-2", 100, 90, dynamics="fluctuating")]

    def outcome(costs: list[float]) -> str:
        reported = [
            *rows("fixed-2", [80, 90, 100], dynamics="fluctuating"),
            *rows("agent", costs, dynamics="fluctuating"),
        ]
        return bars(judge(reported, chosen))[0]

    assert outcome([70, 80, 90]) == "met"
    assert outcome([40, 95, 100]) == "not shown"  # better on average, and the interval has 0 in it
    assert outcome([85, 95, 105]) == "missed"


def test_an_agent_that_does_not_reach_the_target_clears_no_bar() -> None:
    ours = [row("agent", 0, 10), row("agent", 1, 10, reached=False)]
    judged = judge([*ours, *rows("random", [100, 100])], [])
    assert bars(judged) == ["missed"]
    assert "did not reach the target in 1 of 2 runs" in judged["bars"][0]["said"]


def test_a_single_seed_can_miss_a_bar_on_costs_and_not_clear_it() -> None:
    judged = judge([row("agent", 0, 60), row("random", 0, 100), row("fixed-2", 0, 50)], [])
    assert bars(judged) == ["not shown", "missed", "met"]  # -40 %; +20 %; the same worst edge
    assert judged["bars"][0]["said"].startswith("cost -40.0 % (one seed, no interval)")


def test_without_an_agent_only_the_best_threshold_is_told() -> None:
    judged = judge(rows("fixed-2", [50]), [])
    assert (judged["best_fixed"], judged["bars"]) == ("fixed-2", [])
    assert judge(rows("random", [50]), [])["best_fixed"] is None
