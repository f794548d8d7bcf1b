"""The task of the check: losses, gradients, constants and virtual models, against other ways to get them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from hiflash.study.theory.bounds import convex_drift_bound, drift_bound
from hiflash.study.theory.constants import Visited, certified_constants, smoothness
from hiflash.study.theory.logistic import LogisticTask, find_optimum, logistic_task
from hiflash.study.theory.settings import lemma_holds, worst_ratio
from hiflash.study.theory.virtual import Lease, train_edge

CLUSTERS = [[0, 1, 2], [3, 4]]


@pytest.fixture(scope="module")
def task() -> LogisticTask:
    """Five clients with 6 to 14 of 50 samples, of one or two of three classes, in four dimensions."""
    stream = np.random.default_rng(3)
    y = np.sort(stream.integers(0, 3, 50))
    x = (stream.normal(size=(3, 4))[y] + 0.5 * stream.normal(size=(50, 4))).astype(np.float32)
    sizes = np.cumsum([6, 8, 10, 12])
    return logistic_task(x, y, np.split(np.arange(50), sizes), classes=3, l2=0.1)


def some_models(task: LogisticTask, count: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(count, task.size))


def torch_loss(task: LogisticTask, model: torch.Tensor, rows: slice) -> torch.Tensor:
    logits = torch.from_numpy(task.x[rows]) @ model.reshape(task.classes, -1).T
    entropy = functional.cross_entropy(logits, torch.from_numpy(task.y[rows]))
    return entropy + task.l2 / 2 * model @ model


def test_samples_are_centred_and_of_unit_mean_square(task: LogisticTask) -> None:
    assert np.abs(task.x.mean(axis=0)).max() < 1e-12
    assert np.square(task.x).sum(axis=1).mean() == pytest.approx(1.0)


def test_losses_and_gradients_are_those_of_torch(task: LogisticTask) -> None:
    models = some_models(task, 45)  # more than one group
    for place, (loss, gradient) in enumerate(zip(task.losses(models), task.gradients(models), strict=True)):
        model = torch.from_numpy(models[place]).requires_grad_()
        value = torch_loss(task, model, slice(None))
        value.backward()
        assert loss == pytest.approx(value.item())
        assert gradient == pytest.approx(model.grad.numpy(), abs=1e-12)
    for client in range(5):
        model = torch.from_numpy(models[0]).requires_grad_()
        value = torch_loss(task, model, task.rows(client))
        value.backward()
        assert task.client_gradient(client, models[0]) == pytest.approx(model.grad.numpy(), abs=1e-12)
        assert task.cluster_loss([client], models[0]) == pytest.approx(value.item())


def test_all_clients_together_are_the_whole_loss(task: LogisticTask) -> None:
    model = some_models(task, 1)[0]
    shares = task.examples / task.examples.sum()
    gradients = np.array([task.client_gradient(client, model) for client in range(5)])
    assert shares @ gradients == pytest.approx(task.gradients([model])[0], abs=1e-12)
    assert task.cluster_loss(range(5), model) == pytest.approx(task.losses([model])[0])


def hessian(task: LogisticTask, client: int, model: np.ndarray) -> np.ndarray:
    rows = task.rows(client)
    found = torch.autograd.functional.hessian(lambda w: torch_loss(task, w, rows), torch.from_numpy(model))
    return found.numpy()


def test_beta_and_mu_bound_every_hessian_and_are_reached(task: LogisticTask) -> None:
    beta, largest = smoothness(task), 0.0
    for model in some_models(task, 20) * np.linspace(0, 20, 20)[:, None]:
        for client in range(5):
            values = np.linalg.eigvalsh(hessian(task, client, model))
            assert values[0] == pytest.approx(task.l2)  # exact, at every model
            assert values[-1] <= beta + 1e-12
            largest = max(largest, values[-1])
    assert largest > 0.3 * beta


def test_beta_is_reached_where_two_classes_are_equally_likely() -> None:
    """Two independent samples (1, 0) and (0, 1) before centring; class 2 is ruled out for both."""
    task = LogisticTask(np.eye(2), np.array([0, 1]), np.array([0, 2]), 3, l2=0.1)
    assert smoothness(task) == pytest.approx(0.35)  # lambda_max(I / 2) / 2 + 0.1
    model = np.array([[0.0, 0.0], [0.0, 0.0], [-50.0, -50.0]]).ravel()
    assert np.linalg.eigvalsh(hessian(task, 0, model))[-1] == pytest.approx(0.35)


def test_no_model_has_a_lower_loss_than_the_optimum(task: LogisticTask) -> None:
    optimum = find_optimum(task)
    assert optimum.error < 1e-12
    near = optimum.model + 0.01 * some_models(task, 20)
    assert (task.losses(near) > optimum.loss).all()


def test_certified_divergences_hold_at_every_model(task: LogisticTask) -> None:
    certified = certified_constants(task, CLUSTERS, smoothness(task))
    for model in some_models(task, 30) * np.linspace(0, 30, 30)[:, None]:
        overall = task.gradients([model])[0]
        for cluster in CLUSTERS:
            shares = task.examples[cluster] / task.examples[cluster].sum()
            own = np.array([task.client_gradient(client, model) for client in cluster])
            assert shares @ np.linalg.norm(own - shares @ own, axis=1) <= certified.delta_max
            assert np.square(shares @ own - overall).sum() <= certified.Delta


def lease_of(task: LogisticTask, rounds: int = 3, c: int = 4, eta: float = 0.5) -> Lease:
    return train_edge(task, 0, CLUSTERS[0], some_models(task, 1)[0], rounds, c, eta)


def test_an_edge_round_is_the_mean_of_its_clients_steps(task: LogisticTask) -> None:
    start, eta = some_models(task, 1)[0], 0.5
    models = []
    for client in CLUSTERS[0]:
        model = start
        for _ in range(2):
            model = model - eta * task.client_gradient(client, model)
        models.append(model)
    mean = np.average(models, axis=0, weights=[6, 8, 10])
    lease = train_edge(task, 0, CLUSTERS[0], start, 1, 2, eta)
    assert lease.model == pytest.approx(mean, abs=1e-12)
    virtual = start
    for _ in range(2):
        gradients = [task.client_gradient(client, virtual) for client in CLUSTERS[0]]
        virtual = virtual - eta * np.average(gradients, axis=0, weights=[6, 8, 10])
    (done,) = lease.rounds
    assert done.distances[2] == pytest.approx(float(np.linalg.norm(mean - virtual)))
    assert done.distances[0] == 0
    assert done.distances[1] < 1e-14  # one step of all clients is one step of the cluster
    gap = task.cluster_loss(CLUSTERS[0], mean) - task.cluster_loss(CLUSTERS[0], virtual)
    assert done.loss_gap == pytest.approx(gap)


def test_two_leases_of_one_round_are_one_lease_of_two_rounds(task: LogisticTask) -> None:
    one = train_edge(task, 0, CLUSTERS[0], some_models(task, 1)[0], 1, 3, 0.5)
    two = train_edge(task, 0, CLUSTERS[0], one.model, 1, 3, 0.5)
    both = lease_of(task, rounds=2, c=3)
    assert both.model == pytest.approx(two.model, abs=1e-14)
    assert both.Delta == pytest.approx(max(one.Delta, two.Delta))
    assert both.gradient == pytest.approx(max(one.gradient, two.gradient))


def test_lemma_2_holds_and_fails_if_g_is_scaled_below_the_measured_distance(task: LogisticTask) -> None:
    rounds, beta = lease_of(task).rounds, smoothness(task)

    def scaled(factor: float) -> bool:
        return lemma_holds(rounds, lambda x, done: factor * drift_bound(x, 0.5, beta, done.delta))

    used = worst_ratio(rounds, lambda x, done: drift_bound(x, 0.5, beta, done.delta))
    assert 0 < used < 1
    assert scaled(1.0)
    assert scaled(1.001 * used)
    assert not scaled(0.999 * used)
    assert not lemma_holds(rounds, lambda x, done: drift_bound(x, 0.5, beta, 0.2 * used * done.delta))
    assert lemma_holds(rounds, lambda x, done: convex_drift_bound(x, 0.5, beta, done.delta))


def test_what_runs_visit_is_the_largest_of_their_leases(task: LogisticTask) -> None:
    visited = Visited(task, CLUSTERS, smoothness(task))
    at_start = max(np.linalg.norm(task.client_gradient(k, np.zeros(task.size))) for k in range(5))
    assert pytest.approx(at_start**2) == visited.constants().V
    first, second = lease_of(task), lease_of(task, rounds=1)
    visited.add(first)
    visited.add(second)
    assert visited.delta_max == pytest.approx(
        np.average(np.max([done.divergences for done in first.rounds], axis=0), weights=[6, 8, 10])
    )
    constants = visited.constants()
    assert max(first.Delta, second.Delta) == constants.Delta
    assert pytest.approx(constants.rho**2) == constants.V
    certified = certified_constants(task, CLUSTERS, visited.beta)
    assert constants.delta_max <= certified.delta_max
    assert constants.Delta <= certified.Delta
