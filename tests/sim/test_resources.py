"""What computing costs a client, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hiflash.config import Config
from hiflash.sim.resources import draw_resources, step_samples


def test_a_step_is_charged_the_mean_samples_of_an_epoch() -> None:
    # 155 = 60 + 60 + 35 in three steps, 95 = 60 + 35 in two
    assert step_samples(np.array([155, 95]), 60).tolist() == [155 / 3, 47.5]


def test_whole_batches_and_single_short_ones_are_charged_as_they_are() -> None:
    assert step_samples(np.array([600, 120, 60, 40, 1]), 60).tolist() == [60, 60, 60, 40, 1]


@pytest.mark.parametrize(
    ("client", "samples"),
    [
        ({"local_epochs": 2}, 2 * 95),  # every sample twice
        ({"local_steps": 4}, 4 * 47.5),  # two epochs of 60 + 35, whichever of them comes first
        ({"local_steps": 3}, 3 * 47.5),  # 155 or 130, as often the one as the other
    ],
)
def test_a_task_is_charged_what_it_trains(client: dict[str, int], samples: float) -> None:
    config = Config(federation={"clients": 1, "edges": 1}, client=client, resources={"f_ghz": [2.0, 2.0]})
    found = draw_resources(config, np.array([95]), features=784, values=1000)
    cycles = samples * 784 * 8 * config.resources.cycles_per_bit
    assert found.compute_s.tolist() == [pytest.approx(cycles / 2e9, rel=1e-12)]
