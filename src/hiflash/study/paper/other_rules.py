"""Claims about what is not a set of runs: models, association against lambda, and the training of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any

from hiflash.study.paper.claims import Claim, Found, on_balanced
from hiflash.study.paper.runs import STRONG, correlation

__all__ = [
    "BOUNDS_NOTES",
    "BOUNDS_READINGS",
    "BOUNDS_WHY",
    "Trainings",
    "agent_claims",
    "best_check",
    "example_claims",
    "lambda_claims",
    "model_claims",
    "weight_claims",
]

Sizes = Mapping[str, int]
"""The number of parameters by name of the model or network."""

Rows = Sequence[Mapping[str, Any]]
"""The associations of the worked example by lambda."""

Sweeps = Mapping[str, Sequence[Mapping[str, Any]]]
"""The rows of a sweep of lambda by partition, and seed by seed."""

Trainings = Mapping[str, Mapping[str, Any]]
"""The record of a training (`training.json`) by label."""

FLAT = "for large lambda there is no trend: what the greedy rule finds goes up and down"
VAIN = "with true constants C2 <= V / (2 mu) <= C3: the first gap is below the limit of the bound already"
WEAK = (
    "at this learning rate the bound of every mu~ starts above the first gap; at 0.001 one falls below it, "
    "and is then wrong"
)
BOUNDS_WHY = {
    "theorem1_informative": VAIN,
    "theorem2": "as printed the theorem forgets that a model which hardly moves keeps its first gap",
    "theorem2_informative": WEAK,
    "remark3_premise": VAIN,
    "remark3": "where C3 > C2 the bound grows towards C3, and a larger tau slows that growth",
}
"""Why claims of the theory do not hold; docs/theory.md has the argument."""
BOUNDS_NOTES = {
    "theorem1": "trivially: the bound starts at the first gap and rises",
    "remark1": "by its formula; nothing is measured",
    "remark2": "barely: V is nearly all of C3; that the association decides is our reading of the remark",
}
"""What to know of claims that hold."""
BOUNDS_READINGS = {
    "theorem1_informative": ("theorem1", "a bound below the first gap"),
    "theorem2_informative": ("theorem2", "a bound below the first gap"),
    "gap_rises_with_tau": ("remark3", "the measured gap"),
    "edge_iid_is_better": ("remark2", "the measured gap"),
}
"""Checks that are not in the paper: the claim that each repeats, and how."""
ACTIONS = "the paper's count has one output fewer than its own set of actions (decision 6)"
TABLE = (
    ("mnist_lenet", "lenet", 21_840, "MNIST: LeNet has 21,840 parameters", ""),
    ("femnist_cnn", "femnist_cnn", 214_590, "FEMNIST: the CNN has 214,590 parameters", ""),
    ("cifar10_resnet", "resnet", 3_504_554, "CIFAR-10: the network has 3,504,554 parameters", ""),
    ("cifar10_is_resnet18", "resnet18", 3_504_554, "CIFAR-10: that network is ResNet-18",
     "ResNet-18 as usually meant has 11,173,962 parameters; the paper's has bottlenecks of widths 32 to 256"),
    ("agent_mnist", "agent-16", 4_607, "the DDQN for MNIST (tau_max 16) has 4,607 parameters", ACTIONS),
    ("agent_cifar10", "agent-4", 4_235, "the DDQN for CIFAR-10 (tau_max 4) has 4,235 parameters", ACTIONS),
)  # fmt: skip


def model_claims() -> list[Claim[Sizes]]:
    """Return the claims about numbers of parameters."""

    def rule(model: str, paper: int, sizes: Sizes) -> Found:
        return Found(sizes[model] == paper, sizes[model], f"{model} has {sizes[model]:,} parameters")

    return [
        Claim(name, says, partial(rule, model, paper), paper, "parameters", why)
        for name, model, paper, says, why in TABLE
    ]


def example_claims() -> list[Claim[Rows]]:
    """Return the claims about the worked example of the association."""
    return [
        Claim("takes_client_4", "after clients 1 and 2, edge 1 takes client 4 rather than client 3",
              partial(_takes, 300, 4), 4),
        Claim("takes_client_3", "without regard to labels (lambda 0) it takes client 3, the nearer one",
              partial(_takes, 0, 3), whose="ours"),
    ]  # fmt: skip


def lambda_claims() -> list[Claim[Sweeps]]:
    """Return the claims about lambda."""
    claims: list[Claim[Sweeps]] = []
    for part in ("noniid1", "noniid2", "noniid1-balanced", "noniid2-balanced"):
        claims += [
            Claim(f"js_falls_{part}", f"the total JS divergence falls with lambda on {part}",
                  partial(_against_lambda, part, "total_js", -1), None, "correlation", FLAT,
                  *on_balanced("js_falls", part)),
            Claim(f"latency_rises_{part}", f"the mean response latency rises with lambda on {part}",
                  partial(_against_lambda, part, "mean_latency_ms", 1), None, "correlation", FLAT,
                  *on_balanced("latency_rises", part)),
        ]  # fmt: skip
    return claims


def agent_claims() -> list[Claim[Trainings]]:
    """Return the claims about thresholds over the episodes of a training."""
    whole = "decisions_shrink"
    granted = "so few edges are at work that nearly every threshold admits: nothing favours a small one"
    return [
        Claim(whole, "the trained agent decides smaller than at random (mean; a refusal counts as -1)",
              partial(_shrinks, True, fmean, best_check)),
        *(Claim(name, says, partial(_shrinks, refusals, middle, which),
                why="" if refusals else granted, of=whole, reading=reading)
          for name, says, refusals, middle, which, reading in (
              ("last_shrinks", "the same of the last episode", True, fmean, _last_check,
               "the last episode"),
              ("median_shrinks", "the median decision is smaller than that of the random policy", True,
               median, best_check, "the median"),
              ("granted_shrink", "the same of the thresholds that it chooses, without refusals", False,
               fmean, best_check, "without refusals, mean"),
              ("granted_median_shrinks", "the same of their median", False, median, best_check,
               "without refusals, median"),
              ("granted_last_shrinks", "the same of the mean in the last episode", False, fmean, _last_check,
               "without refusals, last episode"))),
    ]  # fmt: skip


def weight_claims() -> list[Claim[Trainings]]:
    """Return the claims about agents that were trained with other weights of the cost."""
    order = ("resources", "balanced", "time")
    return [
        Claim("decisions_follow_weights", "dearer resources: smaller decisions; dearer time: larger ones",
              partial(_follow, order, True)),
        Claim("granted_follow_weights", "the same without refusals",
              partial(_follow, order, False),
              why="agents answer dear resources with refusals first; their thresholds have no order",
              of="decisions_follow_weights", reading="without refusals"),
        Claim("parallelism_follows_weights", "dearer time: more edges at work at the same time",
              partial(_parallel, order), unit="edges",
              of="decisions_follow_weights", reading="edges at work"),
    ]  # fmt: skip


def _takes(weight: float, client: int, rows: Rows) -> Found:
    row = next(row for row in rows if row["lambda"] == weight)
    (taken,) = set(row["clusters"][0]) - {1, 2}
    costs = ", ".join(f"client {name} costs {cost:.0f} ms" for name, cost in row["costs_ms"].items())
    return Found(taken == client, taken, f"{costs}; edge 1 has {', '.join(map(str, row['clusters'][0]))}")


def _against_lambda(partition: str, name: str, sign: int, sweeps: Sweeps) -> Found:
    if not sweeps.get(partition):
        return Found(None, None, f"needs a sweep on {partition}")
    means: dict[float, list[float]] = {}
    for row in sweeps[partition]:
        means.setdefault(float(row["lambda"]), []).append(float(row[name]))
    lambdas = sorted(means)
    values = [fmean(means[value]) for value in lambdas]
    found = correlation(lambdas, values)
    told = f"{name} {values[0]:.3g} at lambda {lambdas[0]:g}, {values[-1]:.3g} at {lambdas[-1]:g}"
    return Found(None if found is None else sign * found >= STRONG, found, told)


def _shrinks(refusals: bool, middle: Any, which: Any, trainings: Trainings) -> Found:
    (record,) = trainings.values()
    first = next(check for check in record["checks"] if check["policy"] == "random")
    chosen = which(record)
    before, after = (_middle(check, refusals, middle) for check in (first, chosen))
    if before is None or after is None:
        return Found(None, None, "nothing was granted")
    learning = [_middle(check, refusals, middle) for check in record["checks"] if check["episode"]]
    known = [value for value in learning if value is not None]
    told = (
        f"random {before:.1f}, the agent {after:.1f} (episode {chosen['episode']} of "
        f"{len(record['episodes'])}; {min(known):.1f} to {max(known):.1f} while it learns)"
    )
    return Found(after < before, after, told)


def _follow(order: Sequence[str], refusals: bool, trainings: Trainings) -> Found:
    values = [_middle(best_check(trainings[label]), refusals, fmean) for label in order]
    told = ", ".join(
        f"{label} {'-' if value is None else f'{value:.1f}'}"
        for label, value in zip(order, values, strict=True)
    )
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Found(None, None, told)
    return Found(known == sorted(set(known)), known[-1] - known[0], told)


def _parallel(order: Sequence[str], trainings: Trainings) -> Found:
    values = [float(best_check(trainings[label])["parallelism"]) for label in order]
    told = ", ".join(f"{label} {value:.2f}" for label, value in zip(order, values, strict=True))
    return Found(values == sorted(set(values)), values[-1] - values[0], told)


def best_check(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the check of the agent that the training kept: the cheapest, of equal ones the last."""
    found: Mapping[str, Any] = min(
        (check for check in reversed(record["checks"]) if check["episode"]),
        key=lambda check: float(check["cost"]),
    )
    return found


def _last_check(record: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = max(record["checks"], key=lambda check: int(check["episode"]))
    return found


def _middle(check: Mapping[str, Any], refusals: bool, middle: Any) -> float | None:
    decisions = [value for value in check["thresholds"] if refusals or value >= 0]
    return float(middle(decisions)) if decisions else None
