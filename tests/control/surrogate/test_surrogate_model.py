"""What stands in for training, worked by hand."""

import math

import numpy as np
import pytest

from hiflash.control.surrogate.model import Surrogate, SurrogateRun
from hiflash.core.mixing import Interpolate
from hiflash.core.weighting import Constant
from hiflash.errors import ConfigError

PLAIN = Surrogate(intercept=-1.0, slope=1.0, bias=0.5, smoothing=0.5, shared=0.5)
SHARES, OVERALL = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.5])  # each edge has one of two classes


def begin(surrogate: Surrogate = PLAIN, seed: int = 0) -> SurrogateRun:
    return SurrogateRun(surrogate, SHARES, OVERALL, target=0.75, seed=seed)


def test_tables_say_what_an_edge_counts_for_every_class():
    skills, leans = PLAIN.tables(SHARES, OVERALL)
    # 0.5 + 0.5 * 1 / 0.5 = 1.5 for its own class, 0.5 + 0.5 * 0 / 0.5 = 0.5 for the other
    assert skills.tolist() == [[1.5, 0.5], [0.5, 1.5]]
    # 0.5 log((1 + 0.5) / (0.5 + 0.5)) and 0.5 log((0 + 0.5) / (0.5 + 0.5))
    np.testing.assert_allclose(leans[0], [0.5 * math.log(1.5), 0.5 * math.log(0.5)])
    np.testing.assert_allclose(leans[1], leans[0][::-1])


def test_training_adds_rounds_to_the_edges_skill_and_all_of_the_lean_is_its_own():
    run = begin()
    assert run.initial.tolist() == [0, 0, 0, 0]
    first = run.train(0, run.initial, 2)
    assert first.tolist() == [2, 0, 1, 0]
    assert run.train(1, first, 3).tolist() == [2, 3, 0, 1]
    assert run.initial.tolist() == [0, 0, 0, 0]


def test_a_mixed_model_is_as_accurate_as_worked_by_hand():
    run = begin()
    mixed = Interpolate(0.5, Constant()).mix(run.initial, run.train(0, run.initial, 2), run.initial, 0, 0)
    assert mixed.tolist() == [1, 0, 0.5, 0]
    # class 0: -1 + log(1 + 1 * 1.5) + 0.5 * 0.5 log 1.5 = -1 + 0.916291 + 0.101366 =  0.017657 -> 0.504414
    # class 1: -1 + log(1 + 1 * 0.5) + 0.5 * 0.5 log 0.5 = -1 + 0.405465 - 0.173287 = -0.767822 -> 0.316951
    # accuracy 0.5 * 0.504414 + 0.5 * 0.316951 = 0.410682
    accuracy, loss = run.evaluate(mixed)
    assert accuracy == pytest.approx(0.410682, abs=1e-6)
    assert loss == pytest.approx(-math.log(0.410682), abs=3e-6)


def test_a_target_that_needs_no_skill_is_refused():
    # sigmoid(-1) = 0.2689 without any skill
    with pytest.raises(ConfigError, match=r"26\.9% accuracy, so stop.target = 0.25 leaves nothing to learn"):
        SurrogateRun(PLAIN, SHARES, OVERALL, target=0.25, seed=0)
    SurrogateRun(PLAIN, SHARES, OVERALL, target=0.27, seed=0)


def test_progress_is_the_share_of_the_skill_that_the_target_needs():
    # 0.75 are log-odds of log 3: skill exp(log 3 + 1) - 1 = 3e - 1; an even chance needs exp(1) - 1
    assert PLAIN.skill_for(0.75) == pytest.approx(3 * math.e - 1)
    assert PLAIN.skill_for(0.5) == pytest.approx(math.e - 1)
    assert PLAIN.skill_for(0.1) == 0  # log(1 / 9) is below the intercept: no skill at all
    run = begin()
    # with skill e - 1 in both classes (1 + 1 = 2 counted rounds per round of each edge) accuracy is 0.5
    even = np.array([(math.e - 1) / 2] * 2 + [0, 0], np.float32)
    assert run.progress(even) == pytest.approx((math.e - 1) / (3 * math.e - 1), rel=1e-5)
    assert run.progress(1000 * even) == 1


def test_an_edge_that_is_left_out_costs_accuracy_in_its_class():
    run = begin()
    alone, together = run.initial, run.initial
    mixing = Interpolate(0.5, Constant())
    for step in range(20):
        alone = mixing.mix(alone, run.train(0, alone, 1), alone, 0, 0)
        together = mixing.mix(together, run.train(step % 2, together, 1), together, step % 2, 0)
    assert run.evaluate(together)[0] > run.evaluate(alone)[0] + 0.03


def test_runs_differ_in_speed_by_their_seed_alone():
    spread = Surrogate(**{**PLAIN.to_dict(), "run_spread": 0.3})
    speeds = [float(begin(spread, seed).train(0, begin().initial, 1)[0]) for seed in range(200)]
    assert float(begin(spread, 7).train(0, begin().initial, 1)[0]) == speeds[7]
    # the mean of 200 draws has a deviation of 0.3 / sqrt(200) = 0.021, their spread one of 0.015
    assert np.mean(np.log(speeds)) == pytest.approx(0, abs=0.085)
    assert np.std(np.log(speeds)) == pytest.approx(0.3, abs=0.06)


def test_noise_has_its_size_and_its_memory_and_repeats():
    noisy = Surrogate(**{**PLAIN.to_dict(), "noise": 0.2, "noise_memory": 0.6})
    model = np.array([3, 3, 0.5, 0.5], np.float32)
    true = begin().evaluate(model)[0]
    run = begin(noisy)
    seen = np.array([run.evaluate(model)[0] for _ in range(2000)])
    again = begin(noisy)
    assert [again.evaluate(model)[0] for _ in range(20)] == seen[:20].tolist()
    noise = np.log(seen / (1 - seen)) - math.log(true / (1 - true))
    assert np.std(noise) == pytest.approx(0.2, rel=0.1)
    assert np.corrcoef(noise[1:], noise[:-1])[0, 1] == pytest.approx(0.6, abs=0.07)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intercept", math.nan),
        ("slope", 0.0),
        ("bias", -1.0),
        ("smoothing", 0.0),
        ("shared", 1.1),
        ("run_spread", -0.1),
        ("noise", math.inf),
        ("noise_memory", 1.0),
    ],
)
def test_numbers_that_mean_nothing_are_refused(name: str, value: float):
    with pytest.raises(ConfigError, match=f"a surrogate cannot have {name} = .*; calibrate it again"):
        Surrogate(**{**PLAIN.to_dict(), name: value})


def test_numbers_come_back_from_a_dict_of_just_these():
    assert Surrogate.from_dict(PLAIN.to_dict()) == PLAIN
    for wrong in ({}, {**PLAIN.to_dict(), "more": 1.0}, {**PLAIN.to_dict(), "slope": "1"}):
        with pytest.raises(ConfigError, match="a surrogate has the numbers intercept, slope"):
            Surrogate.from_dict(wrong)
