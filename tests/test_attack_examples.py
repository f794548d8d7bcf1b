"""The attacks of examples/attacks: their arithmetic, that they succeed, and that protection stops them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

FOLDER = Path(__file__).parents[1] / "examples/attacks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"attack_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def inversion() -> ModuleType:
    return load("inversion")


@pytest.fixture(scope="module")
def membership() -> ModuleType:
    return load("membership")


def test_an_edge_sees_the_mean_gradient_of_its_clients(inversion: ModuleType) -> None:
    images = inversion.CLIENTS[:3]
    seen, epsilon = inversion.gradient_seen(inversion.lenet, images, 0.0)
    model, _ = inversion.start_of(inversion.lenet)
    loss = cross_entropy(model(inversion.PIXELS[images]), inversion.LABELS[images])
    true = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
    assert float((seen - true).norm() / true.norm()) < 1e-4  # float32 weights, divided by a rate of 0.1
    assert epsilon == float("inf")


def test_clipping_keeps_the_direction_and_noise_drowns_it(inversion: ModuleType) -> None:
    images = inversion.CLIENTS[:1]
    true, _ = inversion.gradient_seen(inversion.mlp, images, 0.0)
    clipped, _ = inversion.gradient_seen(inversion.mlp, images, 1e-6)
    assert float(true.norm()) * inversion.LR > 1.5 * inversion.CLIP
    assert float(clipped.norm()) * inversion.LR == pytest.approx(inversion.CLIP, rel=1e-3)
    assert float(torch.cosine_similarity(true, clipped, dim=0)) > 0.999
    noised, epsilon = inversion.gradient_seen(inversion.mlp, images, 0.1)
    # 39,760 values with noise of 0.1 clips each: 0.1 * sqrt(39,760) = 19.9 clips beside a signal of 1
    assert float(noised.norm()) * inversion.LR == pytest.approx(19.9 * inversion.CLIP, rel=0.05)
    assert epsilon > 1


def test_images_come_back_from_one_update_and_not_from_noise(inversion: ModuleType) -> None:
    guess, _ = inversion.quality(inversion.guess())
    seen = [inversion.attack(inversion.mlp, inversion.View("", 1, noise), 150)[0] for noise in (0.0, 0.1)]
    open_, hidden = (inversion.quality(images)[0] for images in seen)
    assert open_ > guess + 3
    assert hidden < guess


def test_quality_of_an_image_that_is_off_by_a_tenth_everywhere(inversion: ModuleType) -> None:
    images = inversion.victims() + 0.1 * (inversion.WHITE - inversion.BLACK)
    assert inversion.quality(images) == pytest.approx((20.0, 0.01), rel=1e-4)  # -10 log10(0.1^2)


def test_reconstructions_are_compared_in_their_best_order(inversion: ModuleType) -> None:
    true = inversion.PIXELS[:4]
    assert inversion.best_order(true[[2, 0, 3, 1]], true) == [1, 3, 0, 2]


def test_success_by_hand(membership: ModuleType) -> None:
    shares = membership.suspicion(np.array([3.0, 1.0]), np.array([2.0, 0.0, 4.0, 1.0]))
    assert shares.tolist() == [0.25, 0.625]  # 4 is above 3; 2 and 4 above 1, and 1 is half
    assert membership.success(shares)["auc"] == 0.5625  # 1 - 0.4375
    caught = membership.success(np.array([0.0, 0.01, 0.05, 0.5]))
    assert (caught["tpr1"], caught["tpr10"]) == (0.5, 0.75)


def test_nobody_is_in_two_roles(membership: ModuleType) -> None:
    who = membership.roles(500)
    assert [len(samples) for samples in who] == [1000, 1000, 2000]
    assert len(np.unique(np.concatenate(who))) == 4000
    assert 0.18 < membership.SPOILED.mean() < 0.22
    assert (membership.DATA.y != membership.MNIST.y).tolist() == membership.SPOILED.tolist()


def test_an_edge_tells_members_from_one_update_and_not_from_a_sum_with_noise(membership: ModuleType) -> None:
    setting, who = membership.Setting(victims=20), membership.roles(500)
    alone = membership.attack_round(1, setting, {}, who)
    hidden = membership.attack_round(20, setting, membership.private(noise=1.0), who)
    assert alone["auc"] > 0.65
    assert alone["tpr10"] > 0.3
    assert hidden["auc"] < alone["auc"] - 0.1
    assert hidden["tpr10"] < alone["tpr10"] - 0.1


def test_a_global_model_leaks_and_a_private_one_does_not(
    membership: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = membership.Setting(clients=60, rounds=150, references=1, epsilons=(1.0,))
    open_, hidden = membership.models(setting)
    assert open_["sample"]["auc"] > 0.62
    assert open_["client"]["auc"] > 0.65
    assert hidden["sample"]["auc"] < open_["sample"]["auc"] - 0.08
    assert abs(hidden["sample"]["auc"] - 0.5) < 0.12  # 120 members: a deviation of 0.037
    assert hidden["epsilon"] <= 1
    assert hidden["most_tpr1"] == pytest.approx(0.02719, abs=1e-5)  # 0.01 e + 0.00001
    assert "150 communications" in capsys.readouterr().out
