"""Claims about what is not a set of runs: models, association against lambda, and the training of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any

from hiflash.study.paper.claims import Claim, Found, on_balanced
from hiflash.study.paper.runs import correlation

__all__ = [
    "BOUNDS_WHY",
    "Trainings",
    "agent_claims",
    "best_check",
    "lambda_claims",
    "model_claims",
    "weight_claims",
]

Sizes = Mapping[str, int]
"""The number of parameters by name of the model or network."""

Sweeps = Mapping[str, Sequence[Mapping[str, Any]]]
"""The rows of a sweep of lambda by partition, and seed by seed."""

Trainings = Mapping[str, Mapping[str, Any]]
"""The record of a training (`training.json`) by label."""

FALLS = -0.8  # rank correlation
FLAT = "the change is over at a lambda of about 300; the ranks of what follows are noise"
VAIN = "the term V of the bound does not vanish with the learning rate: the bound is far above the loss"
BOUNDS_WHY = {
    "theorem1_informative": VAIN,
    "theorem2_informative": VAIN,
    "remark3_premise": VAIN,
    "remark3": "where C3 > C2 the bound grows towards C3, and a larger tau slows that growth",
}
"""Why claims of the theory may not hold; docs/theory.md has the argument."""
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


def lambda_claims() -> list[Claim[Sweeps]]:
    """Return the claims about lambda."""
    claims: list[Claim[Sweeps]] = []
    for part in ("noniid1", "noniid2", "noniid1-balanced", "noniid2-balanced"):
        claims += [
            Claim(f"js_falls_{part}", f"the total JS divergence falls with lambda on {part}",
                  partial(_against_lambda, part, "total_js", -1), -1.0, "correlation", FLAT,
                  *on_balanced("js_falls", part)),
            Claim(f"latency_rises_{part}", f"the mean response latency rises with lambda on {part}",
                  partial(_against_lambda, part, "mean_latency_ms", 1), 1.0, "correlation", FLAT,
                  *on_balanced("latency_rises", part)),
        ]  # fmt: skip
    return claims


def agent_claims() -> list[Claim[Trainings]]:
    """Return the claims about thresholds over the episodes of a training."""
    refusals = "refusals are -1 among the actions; they grow, and the granted thresholds do not shrink"
    return [
        Claim("decisions_shrink", "decisions after training are smaller than random ones (mean; refusal -1)",
              partial(_shrinks, True, fmean), unit="thresholds", why=refusals),
        Claim("median_shrinks", "the median decision is smaller than that of the random policy",
              partial(_shrinks, True, median), unit="thresholds", why=refusals,
              of="decisions_shrink", reading="the median"),
        Claim("granted_shrink", "the thresholds that are granted are smaller than random ones (mean)",
              partial(_shrinks, False, fmean), unit="thresholds",
              why="so few edges are at work that nearly every threshold admits: nothing favours a small one",
              of="decisions_shrink", reading="granted thresholds alone"),
    ]  # fmt: skip


def weight_claims() -> list[Claim[Trainings]]:
    """Return the claims about agents that were trained with other weights of the cost."""
    order = ("resources", "balanced", "time")
    return [
        Claim("decisions_follow_weights", "dearer resources: smaller decisions; dearer time: larger ones",
              partial(_follow, order, True), unit="thresholds"),
        Claim("granted_follow_weights", "the same of the granted thresholds alone",
              partial(_follow, order, False), unit="thresholds",
              why="agents answer dear resources with refusals, not with smaller thresholds",
              of="decisions_follow_weights", reading="granted thresholds alone"),
        Claim("parallelism_follows_weights", "dearer time: more edges at work at the same time",
              partial(_parallel, order), unit="edges",
              of="decisions_follow_weights", reading="edges at work"),
    ]  # fmt: skip


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
    return Found(None if found is None else sign * found >= -FALLS, found, told)


def _shrinks(refusals: bool, middle: Any, trainings: Trainings) -> Found:
    (record,) = trainings.values()
    first = next(check for check in record["checks"] if check["policy"] == "random")
    kept = best_check(record)
    before, after = (_middle(check, refusals, middle) for check in (first, kept))
    if before is None or after is None:
        return Found(None, None, "nothing was granted")
    learning = [_middle(check, refusals, middle) for check in record["checks"] if check["episode"]]
    known = [value for value in learning if value is not None]
    told = (
        f"random {before:.1f}, the agent that was kept {after:.1f} (episode {kept['episode']} of "
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
    """Return the check of the agent that the training kept: the cheapest."""
    found: Mapping[str, Any] = min(
        (check for check in record["checks"] if check["episode"]), key=lambda check: float(check["cost"])
    )
    return found


def _middle(check: Mapping[str, Any], refusals: bool, middle: Any) -> float | None:
    decisions = [value for value in check["thresholds"] if refusals or value >= 0]
    return float(middle(decisions)) if decisions else None
