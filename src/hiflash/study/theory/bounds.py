"""The calculator of the convergence analysis: Lemma 2, Theorems 1 and 2 as printed, and a tighter bound.

Plain numbers in, plain numbers out. Names are the paper's symbols; docs/theory.md has the formulas and the
readings of what the paper leaves open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

from hiflash.errors import ConfigError

__all__ = [
    "Bound",
    "Constants",
    "DelayedBound",
    "Schedule",
    "WeakConstants",
    "convex_drift_bound",
    "delayed_bound",
    "drift_bound",
    "drift_bounds",
    "strongly_convex_bound",
    "weakly_convex_bound",
]


LARGEST = math.log(1e290)  # the sum of a million such terms is a number too


@dataclass(frozen=True)
class Constants:
    """What the analysis assumes of the losses of one federation.

    `beta` is smoothness, `mu` strong convexity, `rho` the Lipschitz constant, `delta_max` the gradient
    divergence between clients and their edge, `Delta` the squared one between edges and all data, `V` a bound
    on squared gradients.
    """

    beta: float
    mu: float
    rho: float
    delta_max: float
    Delta: float
    V: float


@dataclass(frozen=True)
class WeakConstants:
    """What Theorem 2 assumes of a `mu`-weakly convex loss F.

    `*_tilde` belong to G = F + mu_tilde / 2 |w - w~|^2.
    """

    beta: float
    mu: float
    rho: float
    mu_tilde: float
    beta_tilde: float
    rho_tilde: float
    delta_tilde: float
    Delta_tilde: float
    V_tilde: float


@dataclass(frozen=True)
class Schedule:
    """Learning rate `eta`, local steps `c`, and the smallest and largest number of edge rounds."""

    eta: float
    c: int
    H_min: int
    H_max: int

    def __post_init__(self) -> None:
        if not self.eta > 0:
            raise ConfigError(f"eta must be above 0, got {self.eta:g}")
        if self.c < 1 or not 1 <= self.H_min <= self.H_max:
            raise ConfigError(
                "c must be at least 1, and H_min and H_max 1 <= H_min <= H_max, "
                f"got c = {self.c}, H_min = {self.H_min}, H_max = {self.H_max}"
            )


@dataclass(frozen=True)
class Bound:
    """A bound on F(w(T)) - F(w*) in the form of Remark 3: `U = C1^T (C2 - C3) + C3`.

    C3 = (A1 V + A2 delta_max + A3 Delta) / B.
    """

    C1: float
    C2: float
    C3: float
    A1: float
    A2: float
    A3: float
    B: float

    def kappa(self, updates: float) -> float:
        """Return the factor of the initial gap after this many updates of the cloud."""
        return float(self.C1**updates)

    def after(self, updates: float) -> float:
        """Return the bound after this many updates of the cloud."""
        return self.C3 + self.kappa(updates) * (self.C2 - self.C3)

    @property
    def informative(self) -> bool:
        """Return whether the bound ever falls below the initial gap. It does not while C2 <= C3."""
        return self.C2 > self.C3


@dataclass(frozen=True)
class DelayedBound:
    """A bound without V: `U = C1^T max(C2 - C3, 0) + C3`, where C1 = (1 - alpha_tau B)^(1 / (1 + tau)).

    `edge_part` and `client_part` are the two terms of C3.
    """

    C1: float
    C2: float
    C3: float
    edge_part: float
    client_part: float

    def after(self, updates: float) -> float:
        """Return the bound after this many updates of the cloud."""
        return float(self.C3 + self.C1**updates * max(self.C2 - self.C3, 0.0))

    @property
    def informative(self) -> bool:
        """Return whether the bound ever falls below the initial gap."""
        return self.C2 > self.C3


def drift_bound(x: int, eta: float, beta: float, delta: float) -> float:
    """Return g(x) of Lemma 2: the largest distance of edge and virtual cluster model after x local steps.

    `g(x) = delta / beta ((eta beta + 1)^x - 1) - eta delta x`, as a sum of which no term cancels another:
    `eta delta sum_{j < x} ((eta beta + 1)^j - 1)`.

    >>> drift_bound(1, eta=0.5, beta=2.0, delta=3.0)
    0.0
    >>> round(drift_bound(2, eta=0.5, beta=2.0, delta=3.0), 12)  # 3/2 (2^2 - 1) - 0.5 * 3 * 2
    1.5
    """
    return eta * delta * math.fsum(_growth(x, eta, beta))


def drift_bounds(last: int, eta: float, beta: float, delta: float) -> list[float]:
    """Return g(0) to g(last) of Lemma 2, each by one more term.

    >>> [round(g, 12) for g in drift_bounds(2, eta=0.5, beta=2.0, delta=3.0)]
    [0.0, 0.0, 1.5]
    """
    return [eta * delta * total for total in accumulate(_growth(last, eta, beta), initial=0.0)]


def convex_drift_bound(x: int, eta: float, beta: float, delta: float) -> float:
    """Return `eta^2 beta delta x (x - 1) / 2`, which is never above g(x).

    It replaces g(x) if the losses are convex and eta <= 2 / beta.

    >>> round(convex_drift_bound(3, eta=0.5, beta=2.0, delta=3.0), 12)  # 0.25 * 2 * 3 * 3
    4.5
    """
    return eta * eta * beta * delta * x * (x - 1) / 2


def strongly_convex_bound(constants: Constants, schedule: Schedule, alpha_tau: float, gap: float) -> Bound:
    """Return the bound of Theorem 1 as printed; `gap` is F(w(0)) - F(w*)."""
    eta, c = schedule.eta, schedule.c
    _check_weight(alpha_tau)
    if not 0 < constants.mu <= constants.beta:
        raise ConfigError(
            f"Theorem 1 needs 0 < mu <= beta, got mu = {constants.mu:g}, beta = {constants.beta:g}"
        )
    if not eta * constants.beta < 1:
        raise ConfigError(
            f"Theorem 1 needs eta < 1 / beta = {1 / constants.beta:.4g}, got {eta:g}; use a smaller client.lr"
        )
    B = _one_minus_power(eta * constants.mu, c * schedule.H_min)
    A1 = 1 / (2 * constants.mu)
    A2 = constants.rho * schedule.H_max * drift_bound(c, eta, constants.beta, 1.0)
    A3 = c * schedule.H_max * eta / 2
    C3 = (A1 * constants.V + A2 * constants.delta_max + A3 * constants.Delta) / B
    return Bound(1 - alpha_tau * B, gap, C3, A1, A2, A3, B)


def weakly_convex_bound(constants: WeakConstants, schedule: Schedule, alpha_tau: float, gap: float) -> Bound:
    """Return the bound of Theorem 2 as printed; docs/theory.md says where it fails."""
    eta, c, curvature = schedule.eta, schedule.c, constants.mu_tilde - constants.mu
    _check_weight(alpha_tau)
    if not (curvature > 0 and constants.mu >= 0):
        raise ConfigError(
            f"Theorem 2 needs mu_tilde > mu >= 0, got {constants.mu_tilde:g} and {constants.mu:g}"
        )
    limit = min(1 / constants.beta, 2 / curvature)
    if not eta < limit:
        raise ConfigError(
            f"Theorem 2 needs eta < min(1 / beta, 2 / (mu_tilde - mu)) = {limit:.4g}, got {eta:g}"
        )
    H = schedule.H_max
    B = _one_minus_power(eta * curvature / 2, c * schedule.H_min)
    A1 = 12 * constants.rho**2 * H / curvature**3
    A1 += (5 * constants.mu_tilde - constants.mu) / (2 * curvature**2)
    A2 = constants.rho_tilde * H * drift_bound(c, eta, constants.beta_tilde, 1.0)
    A3 = 2 * H / curvature
    C3 = (A1 * constants.V_tilde + A2 * constants.delta_tilde + A3 * constants.Delta_tilde) / B
    return Bound(1 - alpha_tau * B, gap, C3, A1, A2, A3, B)


def delayed_bound(
    constants: Constants, schedule: Schedule, alpha_tau: float, tau: int, gap: float
) -> DelayedBound:
    """Return a bound for full gradients that needs no V, if no update is staler than `tau`.

    `alpha_tau` is the smallest weight of an update. `constants.rho` need only bound the gradient of F at the
    edge models. docs/theory.md has the proof.
    """
    first = strongly_convex_bound(constants, schedule, alpha_tau, gap)  # the same conditions, and the same B
    if tau < 0:
        raise ConfigError(f"tau must be at least 0, got {tau}")
    round_progress = _one_minus_power(schedule.eta * constants.mu, schedule.c)
    drift = convex_drift_bound(schedule.c, schedule.eta, constants.beta, constants.delta_max)
    edge_part = constants.Delta / (2 * constants.mu)
    client_part = constants.rho * drift / round_progress
    return DelayedBound(first.C1 ** (1 / (1 + tau)), gap, edge_part + client_part, edge_part, client_part)


def _growth(x: int, eta: float, beta: float) -> list[float]:
    """Return `(eta beta + 1)^j - 1` for j < x, or raise if they leave the range of numbers."""
    growth = math.log1p(eta * beta)
    if x > 0 and (x - 1) * growth > LARGEST:
        raise ConfigError(
            f"g grows as (eta beta + 1)^c = {1 + eta * beta:.4g}^{x}, which is beyond 1e290; use fewer local "
            "steps c or a smaller learning rate eta"
        )
    return [math.expm1(step * growth) for step in range(x)]


def _one_minus_power(share: float, exponent: int) -> float:
    """Return 1 - (1 - share)^exponent without cancellation."""
    return -math.expm1(exponent * math.log1p(-share)) if share < 1 else 1.0


def _check_weight(alpha_tau: float) -> None:
    if not 0 < alpha_tau <= 1:
        raise ConfigError(f"alpha_tau must be in (0, 1], got {alpha_tau:g}")
