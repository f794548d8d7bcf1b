from types import SimpleNamespace

import numpy as np
import pytest

from hiflash.core.attack import HONEST, draw_malicious
from hiflash.messages import ClientTask
from hiflash.methods.kinds import KINDS
from hiflash.seeding import rng

BASE, TRAINED = np.float32([1, 2, 0]), np.float32([2, 0, 0])
WHO = frozenset({3})


def tamper(kind: str, client: int = 3, first_step: int = 6, scale: float = 10.0) -> np.ndarray:
    task = ClientTask(client, first_step, 3, 0.1, None, seed=5)
    config = SimpleNamespace(attack=SimpleNamespace(scale=scale))
    return KINDS["attack"].parts[kind].build(config, WHO).tamper(task, TRAINED, BASE)


def test_a_sign_flip_goes_the_other_way_and_scale_further():
    assert tamper("sign_flip").tolist() == [-9.0, 22.0, 0.0]  # 1 - 10 (2 - 1), 2 - 10 (0 - 2), 0
    assert tamper("scale").tolist() == [11.0, -18.0, 0.0]  # 1 + 10 (2 - 1), 2 + 10 (0 - 2), 0
    assert all(tamper(kind).dtype == np.float32 for kind in ("sign_flip", "scale", "noise", "nan"))


def test_noise_is_that_of_the_task():
    noise = rng(5, "attack", 3, 6).standard_normal(3, dtype=np.float32)
    assert tamper("noise").tolist() == (TRAINED + np.float32(10) * noise).tolist()
    assert tamper("noise", first_step=9).tolist() != tamper("noise").tolist()


def test_nan_is_nothing_but_nan_and_an_overflow_is_no_warning():
    assert np.isnan(tamper("nan")).all()
    assert not np.isfinite(tamper("scale", scale=1e39)).all()


@pytest.mark.parametrize("kind", ["sign_flip", "noise", "scale", "nan"])
def test_the_others_send_what_they_trained(kind: str):
    assert tamper(kind, client=4) is TRAINED


def test_flipped_labels_leave_the_model_alone():
    assert tamper("label_flip") is TRAINED
    assert HONEST.tamper(ClientTask(3, 0, 1, 0.1, None, 0), TRAINED, BASE) is TRAINED


@pytest.mark.parametrize(("share", "count"), [(0.2, 20), (0.005, 1), (0.004, 0), (1.0, 100)])
def test_a_share_is_rounded_to_whole_clients(share: float, count: int):
    chosen = draw_malicious(100, share, seed=1)
    assert len(chosen) == count
    assert chosen <= set(range(100))
    assert chosen == draw_malicious(100, share, seed=1)


def test_a_larger_share_has_the_clients_of_a_smaller_one():
    some = [draw_malicious(50, share, seed=2) for share in (0.1, 0.2, 0.5)]
    assert some[0] < some[1] < some[2]
    assert draw_malicious(50, 0.2, seed=3) != some[1]
