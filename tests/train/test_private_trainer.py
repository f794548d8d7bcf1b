"""Steps that keep samples private: Opacus clips and adds noise, names decide both, the ledger counts them."""

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.rdp import RdpAccountant
from torch import nn

import hiflash
from hiflash.errors import ConfigError, Paused
from hiflash.messages import ClientTask
from hiflash.train.private import PrivateTrainer, joining_samples
from hiflash.train.task import SamplePrivacy, Solver
from hiflash.train.torch_trainer import Samples
from tiny import TINY, assert_same_run, make_norm_model, make_tiny_data, make_tiny_model

DATA = make_tiny_data()
PRIVATE = {"dp.unit": "sample", "dp.noise": 1.0, "data.name": "own", "model.name": "own"}


def run(directory=None, pause=None, model=make_tiny_model, **more):
    config = hiflash.Config(**{**TINY, **PRIVATE, "stop.communications": 12, **more})
    return hiflash.run(config, data=DATA, model=model, directory=directory, pause=pause)


def linear():
    """Return a model of two weights without bias: the gradient of class 0 is (p0 - 1, p1) x."""
    model = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(model.weight)
    return nn.Sequential(nn.Flatten(), model)


def trainer(noise, clip=1.0, batch=4, samples=4):
    x, y = torch.full((samples, 1), 2.0), torch.zeros(samples, dtype=torch.long)
    held = Samples(x, y, [np.arange(samples)], x, y)
    return PrivateTrainer(linear, held, Solver(batch), SamplePrivacy(clip, noise))


def task(lr=1.0, seed=0, steps=1):
    return ClientTask(0, 0, steps, lr, np.zeros(2, np.float32), seed)


def test_a_clipped_step_by_hand():
    # Every sample: gradient (0.5 - 1, 0.5) * 2 = (-1, 1), norm sqrt(2); clipped to 1: (-0.7071, 0.7071).
    # All 4 of 4 join; their sum over the expected 4 is the same, and lr 1 moves against it.
    (result,) = trainer(noise=1e-9).train([task()])
    assert result.weights == pytest.approx([0.70711, -0.70711], abs=1e-4)


def test_noise_has_the_promised_deviation():
    ends = np.array([trainer(3.0).train([task(seed=seed)])[0].weights for seed in range(200)])
    # noise 3 x clip 1 / batch 4 = 0.75 in each of 400 values
    moved = ends - [0.70711, -0.70711]
    assert moved.std() == pytest.approx(0.75, rel=0.15)
    assert np.abs(moved.mean(axis=0)).max() < 5 * 0.75 / np.sqrt(200)


def test_samples_join_by_themselves_and_nobody_may_join():
    part = np.arange(100, 140)
    sizes = [len(joining_samples(task(), part, 10, step)) for step in range(400)]
    assert np.mean(sizes) == pytest.approx(10, rel=0.1)  # deviation sqrt(7.5 / 400) = 0.14
    assert np.var(sizes) == pytest.approx(7.5, rel=0.3)  # binomial: 40 * 0.25 * 0.75
    alone = trainer(1.0, batch=1, samples=40)
    empty = next(
        seed for seed in range(100) if not len(joining_samples(task(seed=seed), np.arange(40), 1, 0))
    )
    (result,) = alone.train([task(seed=empty)])
    assert np.abs(result.weights).min() > 0  # noise alone


def test_a_proximal_term_acts_on_noised_gradients():
    plain, near = trainer(1e-9), trainer(1e-9)
    near.solver = Solver(4, mu=10.0)
    ends = [each.train([task(lr=0.05, steps=20)])[0].weights for each in (plain, near)]
    assert np.linalg.norm(ends[1]) < np.linalg.norm(ends[0]) / 2


def test_a_run_is_the_same_with_two_workers_and_after_a_pause(tmp_path):
    whole = run()
    calls = iter(range(10**9))
    with pytest.raises(Paused):
        run(directory=tmp_path / "run", pause=lambda: next(calls) == 30, workers=2)
    assert_same_run(whole, hiflash.resume(tmp_path / "run", data=DATA, model=make_tiny_model))


def test_every_local_step_is_charged_at_its_own_rate():
    result = run()
    (name,) = result.privacy["entries"]
    assert name == "local step at rate 0.32"  # batches of 8 from 25 samples
    steps = max(group["charges"][name] for group in result.privacy["groups"])
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.32, dp_accounting.GaussianDpEvent(1.0)), steps)
    assert result.privacy["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), abs=1e-6)
    assert steps % 3 == 0  # whole tasks


def test_clients_of_other_sizes_have_other_rates_and_a_budget_holds():
    result = run(**{"data.partition": "quantity", "dp.epsilon": 6.0, "stop.communications": 200})
    assert len(result.privacy["entries"]) > 3
    assert result.privacy["epsilon"] <= 6.0


def test_noise_is_calibrated_for_the_client_that_needs_most():
    """The client with the fewest samples has the largest rate; 4 rounds of 3 steps cost it epsilon 8."""
    result = run(**{"data.partition": "quantity", "dp.noise": "auto", "dp.epsilon": 8.0, "dp.rounds": 4})
    rates = [entry["sampling"] for entry in result.privacy["entries"].values()]
    assert max(rates) > 2 * min(rates)

    def cost(noise, rate):
        accountant, event = RdpAccountant(), dp_accounting.GaussianDpEvent(noise)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, event) if rate < 1 else event, 4 * 3)
        return accountant.get_epsilon(1e-5)

    noise = result.privacy["noise"]
    assert cost(noise, max(rates)) <= 8.0 < cost(noise - 2e-4, max(rates))
    assert result.privacy["epsilon"] <= 8.0


def test_an_edge_that_got_a_model_is_charged_for_it_in_a_sum_or_not():
    """A deadline that some clients miss: their models come, are in no sum, and are paid for."""
    result = run(**{"edge.deadline_s": 0.0005, "edge.quorum": 1.0, "stop.client_steps": 300})
    assert result.abandoned > 0
    assert result.privacy["charges"] == result.client_steps


def test_models_that_mix_samples_are_refused():
    with pytest.raises(ConfigError, match="BatchNorm"):
        run(model=make_norm_model)
