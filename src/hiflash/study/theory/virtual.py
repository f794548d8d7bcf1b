"""An edge's rounds beside the virtual cluster model of Definition 1, with all that Lemma 2 speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hiflash.study.theory.logistic import Floats, LogisticTask

__all__ = ["EdgeRound", "Lease", "train_edge"]


@dataclass(frozen=True, eq=False)
class EdgeRound:
    """One edge round: `distances[x]` is |edge model - virtual model| after x local steps, x = 0..c.

    `divergences` has, per client of the edge, the largest |grad F_k - grad F^m| at the virtual models;
    `delta` is their mean by samples. `loss_gap` is F^m(edge model) - F^m(virtual model) at the end. `scale`
    is the norm of the edge model: rounding errors grow with it.
    """

    edge: int
    distances: Floats
    divergences: Floats
    delta: float
    loss_gap: float
    scale: float


@dataclass(frozen=True, eq=False)
class Lease:
    """The edge model after some edge rounds, and what was measured on the way.

    `Delta` is the largest |grad F^m - grad F|^2 at the virtual models, `gradient` the largest |grad F| at the
    edge models, and `client_gradient` the largest |grad F_k| at the models of the clients.
    """

    model: Floats
    rounds: list[EdgeRound]
    Delta: float
    gradient: float
    client_gradient: float


def train_edge(
    task: LogisticTask, edge: int, clients: Sequence[int], model: Floats, rounds: int, c: int, eta: float
) -> Lease:
    """Return the edge model after some edge rounds of c full-gradient steps, beside the virtual model."""
    shares = task.examples[list(clients)] / task.examples[list(clients)].sum()
    done: list[EdgeRound] = []
    virtual: list[Floats] = []  # the models of Definition 1 before each step, and their cluster gradients
    slopes: list[Floats] = []
    ends: list[Floats] = []
    steepest = 0.0
    for _ in range(rounds):
        v, distances, divergences = model, [0.0], np.zeros(len(shares))
        models = [model] * len(shares)
        for step in range(c):
            at_v = [task.client_gradient(client, v) for client in clients]
            slope = shares @ np.array(at_v)
            divergences = np.maximum(divergences, [_norm(own - slope) for own in at_v])
            # Before the first step every client's model is the virtual one.
            own = at_v if step == 0 else list(map(task.client_gradient, clients, models))
            steepest = max(steepest, *map(_norm, own))
            virtual.append(v)
            slopes.append(slope)
            models = [w - eta * gradient for w, gradient in zip(models, own, strict=True)]
            v = v - eta * slope
            distances.append(_norm(shares @ np.array(models) - v))
        model = shares @ np.array(models)
        ends.append(model)
        gap = task.cluster_loss(clients, model) - task.cluster_loss(clients, v)
        delta = float(shares @ divergences)
        done.append(EdgeRound(edge, np.array(distances), divergences, delta, gap, _norm(model)))
    # One pass over all samples for all points. An edge model is the next round's first virtual model.
    overall = task.gradients([*virtual, ends[-1]])
    squares = np.square(np.array(slopes) - overall[:-1]).sum(axis=1)
    at_ends = np.linalg.norm(overall[c::c], axis=1)
    return Lease(model, done, float(squares.max()), float(at_ends.max()), steepest)


def _norm(vector: Floats) -> float:
    return float(np.linalg.norm(vector))
