"""One setting of the check (an association and a tau) in numbers: Lemma 2, the gap and the bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from hiflash.study.theory.bounds import (
    Bound,
    Constants,
    DelayedBound,
    Schedule,
    WeakConstants,
    convex_drift_bound,
    delayed_bound,
    drift_bound,
    strongly_convex_bound,
    weakly_convex_bound,
)
from hiflash.study.theory.logistic import Floats
from hiflash.study.theory.trial import Trial
from hiflash.study.theory.virtual import EdgeRound

__all__ = ["Checked", "Setting", "check_setting", "lemma_holds", "lowest_weak_bound", "worst_ratio"]

ROUNDING = 1e-12  # of a distance, per unit of the model's norm: sums in double precision
MIXED = 1e-6  # of a loss: the cloud mixes in single precision
MU_TILDE = np.logspace(-6, -0.001, 121)  # of 2 / eta: Theorem 2 is for every one, so its lowest bound counts

SCALARS = ("association", "tau", "alpha_tau", "g_end", "staleness_mean", "staleness_max", "edge_rounds")

Drift = Callable[[int, EdgeRound], float]


@dataclass(frozen=True)
class Checked:
    """Whether an inequality held at every point, and the largest ratio of its left to its right side."""

    holds: bool
    used: float


@dataclass(frozen=True, eq=False)
class Setting:
    """A trial beside the bounds. `gap[t]` is F(w(t)) - F(w*); `gap_end` its mean over the last quarter.

    `g_end` is g(c) of Lemma 2.
    """

    association: str
    tau: int
    alpha_tau: float
    g_end: float
    staleness_mean: float
    staleness_max: int
    edge_rounds: int
    gap: Floats = field(repr=False)
    gap_end: float
    lemma2: Checked
    lemma2_own: Checked
    lemma2_convex: Checked
    lemma2_loss: Checked
    theorem1: Bound
    theorem2: Bound
    mu_tilde: float
    delayed: DelayedBound
    trial: Trial = field(repr=False)

    @property
    def updates(self) -> int:
        """Return T, the number of updates."""
        return len(self.gap) - 1

    def bound_holds(self, bound: Bound | DelayedBound) -> Checked:
        """Compare the gap with a bound after every update."""
        limits = np.array([bound.after(version) for version in range(len(self.gap))])
        used = (self.gap / limits)[1:]  # at the start every bound is the gap itself
        return Checked(bool((self.gap <= limits + MIXED).all()), float(used.max()))

    def to_dict(self) -> dict[str, Any]:
        """Return the setting for JSON, without the curves."""
        plain = {name: getattr(self, name) for name in SCALARS}
        lemmas = {
            name: asdict(getattr(self, name))
            for name in ("lemma2", "lemma2_own", "lemma2_convex", "lemma2_loss")
        }
        bounds = {}
        for name, bound in self.bounds().items():
            held = self.bound_holds(bound)
            bounds[name] = {
                **asdict(bound),
                "U": bound.after(self.updates),
                "informative": bound.informative,
                **asdict(held),
            }
        bounds["theorem2"]["mu_tilde"] = self.mu_tilde
        gaps = {"gap_start": float(self.gap[0]), "gap_end": self.gap_end}
        return {**plain, **gaps, **lemmas, **bounds}

    def bounds(self) -> dict[str, Bound | DelayedBound]:
        """Return all bounds by name."""
        return {"theorem1": self.theorem1, "theorem2": self.theorem2, "delayed": self.delayed}


def check_setting(
    trial: Trial,
    constants: Constants,
    gradient: float,
    schedule: Schedule,
    alpha_tau: float,
    best: float,
) -> Setting:
    """Return a trial beside the bounds. `gradient` bounds |grad F| at edge models, `best` is F(w*)."""
    eta, beta, c = schedule.eta, constants.beta, schedule.c
    gap = trial.losses - best
    start = float(gap[0])
    losses = [done.loss_gap for done in trial.rounds]
    limit = constants.rho * drift_bound(c, eta, beta, constants.delta_max)
    weak, mu_tilde = lowest_weak_bound(constants, schedule, alpha_tau, start, len(gap) - 1)
    return Setting(
        association=trial.association,
        tau=trial.tau,
        alpha_tau=alpha_tau,
        g_end=drift_bound(c, eta, beta, constants.delta_max),
        staleness_mean=float(np.mean(trial.staleness)),
        staleness_max=max(trial.staleness),
        edge_rounds=len(trial.rounds),
        gap=gap,
        gap_end=float(gap[-max(len(gap) // 4, 1) :].mean()),
        lemma2=_checked(trial.rounds, lambda x, done: drift_bound(x, eta, beta, constants.delta_max)),
        lemma2_own=_checked(trial.rounds, lambda x, done: drift_bound(x, eta, beta, done.delta)),
        lemma2_convex=_checked(trial.rounds, lambda x, done: convex_drift_bound(x, eta, beta, done.delta)),
        lemma2_loss=Checked(max(losses) <= limit + ROUNDING, max(losses) / limit if limit else 0.0),
        theorem1=strongly_convex_bound(constants, schedule, alpha_tau, start),
        theorem2=weak,
        mu_tilde=mu_tilde,
        delayed=delayed_bound(replace(constants, rho=gradient), schedule, alpha_tau, trial.tau, start),
        trial=trial,
    )


def lemma_holds(rounds: Sequence[EdgeRound], bound: Drift) -> bool:
    """Return whether every edge model is within `bound(x, round)` of its virtual model, after every step."""
    return all(
        distance <= bound(x, done) + ROUNDING * (1 + done.scale)
        for done in rounds
        for x, distance in enumerate(done.distances.tolist())
    )


def worst_ratio(rounds: Sequence[EdgeRound], bound: Drift) -> float:
    """Return the largest distance as a share of its bound; steps with a bound of 0 have none."""
    return max(
        (
            distance / limit
            for done in rounds
            for x, distance in enumerate(done.distances.tolist())
            if (limit := bound(x, done)) > 0
        ),
        default=0.0,
    )


def lowest_weak_bound(
    constants: Constants, schedule: Schedule, alpha_tau: float, gap: float, updates: int
) -> tuple[Bound, float]:
    """Return the lowest bound of Theorem 2 for a convex loss (mu = 0) over mu_tilde, and that mu_tilde.

    w~ is the model that the edge received, so no client is farther from it than eta c H_max rho: this bounds
    rho_tilde and V_tilde. The divergences do not change, because the added term is the same for all.
    """
    found = []
    for share in MU_TILDE.tolist():
        mu_tilde = share * 2 / schedule.eta
        moved = mu_tilde * schedule.eta * schedule.c * schedule.H_max * constants.rho
        weak = WeakConstants(
            beta=constants.beta,
            mu=0.0,
            rho=constants.rho,
            mu_tilde=mu_tilde,
            beta_tilde=constants.beta + mu_tilde,
            rho_tilde=constants.rho + moved,
            delta_tilde=constants.delta_max,
            Delta_tilde=constants.Delta,
            V_tilde=(constants.V**0.5 + moved) ** 2,
        )
        found.append((weakly_convex_bound(weak, schedule, alpha_tau, gap), mu_tilde))
    return min(found, key=lambda pair: pair[0].after(updates))


def _checked(rounds: Sequence[EdgeRound], bound: Drift) -> Checked:
    return Checked(lemma_holds(rounds, bound), worst_ratio(rounds, bound))
