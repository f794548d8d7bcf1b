"""Estimators of the constants of a federation: certified for every model, or measured where a run went."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hiflash.study.theory.bounds import Constants
from hiflash.study.theory.logistic import Floats, LogisticTask, largest_eigenvalue, product
from hiflash.study.theory.virtual import Lease

__all__ = ["Visited", "certified_constants", "smoothness"]

SPREAD = 2**0.5  # the length of p - y is at most this, for probabilities p and a one-hot y


def smoothness(task: LogisticTask) -> float:
    """Return beta: no client's Hessian has a larger eigenvalue, at any model.

    The Hessian of the cross-entropy is the mean of (diag p - p p^T) x (x x^T). The first factor has
    eigenvalues up to 1/2, so beta_k = lambda_max(X^T X / n) / 2 + l2. If the samples of a client are linearly
    independent, some model gives two classes nearly 1/2 on all of them: then no smaller number is right.
    """
    largest = 0.0
    for client in range(len(task.examples)):
        x = task.x[task.rows(client)]
        gram = product(x, x.T) if len(x) < x.shape[1] else product(x.T, x)
        largest = max(largest, largest_eigenvalue(gram) / len(x))
    return largest / 2 + task.l2


def certified_constants(task: LogisticTask, clusters: Sequence[Sequence[int]], beta: float) -> Constants:
    """Return constants that hold for every run from the zero model with eta < 1 / beta, before there is one.

    mu is exact: the Hessian of the softmax has a null space everywhere, so its smallest eigenvalue is l2. The
    divergences hold for all models, because the regularisation cancels. rho and V hold where
    |w| <= (largest gradient of the cross-entropy) / l2, which no step and no mean leaves.
    """
    lengths = np.linalg.norm(task.x, axis=1)
    totals = np.add.reduceat(lengths, task.starts[:-1])
    examples = task.examples
    client_means = totals / examples
    delta_max = Delta = 0.0
    everyone = (float(totals.sum()), float(examples.sum()))
    for cluster in clusters:
        members = list(cluster)
        total, count = float(totals[members].sum()), float(examples[members].sum())
        shares = examples[members] / count
        # |grad F_k - grad F^m|: own samples have the weight 1/n_k - 1/n_m, others of the edge -1/n_m.
        own = (1 - shares) * client_means[members] + (total - totals[members]) / count
        delta_max = max(delta_max, SPREAD * float(shares @ own))
        share = count / everyone[1]
        apart = (1 - share) * total / count + (everyone[0] - total) / everyone[1]
        Delta = max(Delta, (SPREAD * apart) ** 2)
    rho = 2 * SPREAD * float(client_means.max())
    return Constants(beta, task.l2, rho, delta_max, Delta, rho**2)


class Visited:
    """Gathers the smallest constants that hold at the models of one federation's runs.

    The proofs use delta and Delta at virtual models only, rho at edge models, and V at clients' models and
    the start. `gradient` is the largest |grad F| at an edge model; rho, for the losses of clients, is larger.
    """

    def __init__(self, task: LogisticTask, clusters: Sequence[Sequence[int]], beta: float) -> None:
        self.task = task
        self.clusters = clusters
        self.beta = beta
        self.divergences: list[Floats] = [np.zeros(len(cluster)) for cluster in clusters]
        start = np.zeros(task.size)
        every = range(len(task.examples))
        self.steepest = max(float(np.linalg.norm(task.client_gradient(k, start))) for k in every)
        self.gradient = 0.0
        self.Delta = 0.0

    def add(self, lease: Lease) -> None:
        """Take in what was measured under one lease."""
        for done in lease.rounds:
            np.maximum(self.divergences[done.edge], done.divergences, out=self.divergences[done.edge])
        self.Delta = max(self.Delta, lease.Delta)
        self.gradient = max(self.gradient, lease.gradient)
        self.steepest = max(self.steepest, lease.client_gradient, lease.gradient)

    @property
    def delta_max(self) -> float:
        """Return the largest delta^m: the mean by samples of its clients' largest divergences."""
        found = 0.0
        for cluster, divergences in zip(self.clusters, self.divergences, strict=True):
            examples = self.task.examples[list(cluster)]
            found = max(found, float(examples @ divergences) / float(examples.sum()))
        return found

    def constants(self) -> Constants:
        """Return the constants of the paper. With full gradients V is rho squared."""
        return Constants(self.beta, self.task.l2, self.steepest, self.delta_max, self.Delta, self.steepest**2)
