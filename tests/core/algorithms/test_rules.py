"""Every algorithm over two rounds, worked by hand: two clients with the losses (u - b)^2 / 2, b = 0 and 4."""

from __future__ import annotations

import numpy as np
import pytest

from hiflash.core.aggregation import MEAN
from hiflash.core.algorithms.algorithm import ClientAlgorithm, CloudSide, Done, Steps, gather
from hiflash.core.algorithms.feddyn import FedDyn
from hiflash.core.algorithms.fednova import FedNova, NormalisedMean
from hiflash.core.algorithms.function import Function
from hiflash.core.algorithms.scaffold import Scaffold
from hiflash.core.compression import Payloads, Traffic
from hiflash.errors import ProtocolError

LR, TARGETS = 0.5, (0.0, 4.0)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


class Federation:
    """The two clients of equal size and their cloud, without anything between them."""

    def __init__(self, algorithm: ClientAlgorithm) -> None:
        self.algorithm = algorithm
        side = algorithm.cloud(trained=1, clients=2)
        assert side is not None
        self.side: CloudSide = side
        self.weights = f32(1)
        self.states: list[dict[str, np.ndarray]] = [{}, {}]

    def round(self, steps: int) -> list[float]:
        """Run a round of both clients and return their models."""
        models, extra = [], self.side.grant()
        for client, target in enumerate(TARGETS):
            correction, mu = self.algorithm.before(self.states[client], extra)
            u = self.weights.copy()
            for _ in range(steps):
                step = (u - target) + mu * (u - self.weights)
                u = (u - LR * (step if correction is None else step + correction)).astype(np.float32)
            done = Done(client, steps, LR, self.weights, u, {}, {})
            state, sent = self.algorithm.after(done, self.states[client], extra)
            self.states[client] = dict(state)
            assert self.side.usable(sent)
            self.side.accept(client, sent, 10)
            models.append(u)
        self.weights = self.side.correct(MEAN.combine(models, [1, 1], self.weights))
        return [model.item() for model in models]


def test_scaffold_over_two_rounds() -> None:
    federation = Federation(Scaffold())
    # No correction yet. A: 1, 0.5, 0.25. B: 1, 2.5, 3.25.
    assert federation.round(steps=2) == [0.25, 3.25]
    assert federation.weights == 1.75
    # c_i = (w - u) / (K lr): 0.75 / 1 and -2.25 / 1; c is their mean.
    assert [state["c_i"].item() for state in federation.states] == [0.75, -2.25]
    assert federation.side.grant()["c"] == -0.75
    # A steps with u - 0.75 - 0.75: 1.75, 1.625, 1.5625. B with u - 4 + 1.5: 1.75, 2.125, 2.3125.
    assert federation.round(steps=2) == [1.5625, 2.3125]
    assert federation.weights == 1.9375
    # c_A = 0.75 + 0.75 + 0.1875, c_B = -2.25 + 0.75 - 0.5625
    assert [state["c_i"].item() for state in federation.states] == [1.6875, -2.0625]
    assert federation.side.grant()["c"] == -0.1875


def test_feddyn_over_two_rounds() -> None:
    federation = Federation(FedDyn(alpha=0.5))
    # A: 1, 0.5, then 0.5 - 0.5 (0.5 - 0.25). B: 1, 2.5, then 2.5 - 0.5 (-1.5 + 0.75).
    assert federation.round(steps=2) == [0.375, 2.875]
    # h_i = -0.5 (u - 1); h is their mean, -0.3125; w = 1.625 + 0.3125 / 0.5
    assert [state["h_i"].item() for state in federation.states] == [0.3125, -0.9375]
    assert federation.weights == 2.25
    # A: 2.25 - 0.5 * 1.9375 = 1.28125; 1.28125 - 0.5 (0.96875 - 0.484375) = 1.0390625
    # B: 2.25 + 0.5 * 0.8125 = 2.65625; 2.65625 - 0.5 (-0.40625 + 0.203125) = 2.7578125
    assert federation.round(steps=2) == [1.0390625, 2.7578125]
    assert [state["h_i"].item() for state in federation.states] == [0.91796875, -1.19140625]
    assert federation.weights == 2.171875  # 1.8984375 + 0.13671875 / 0.5


def test_feddyn_corrects_trained_entries_only() -> None:
    side = FedDyn(alpha=0.25).cloud(trained=2, clients=4)
    side.accept(0, {"change": f32(1, -2)}, 10)
    assert side.correct(f32(5, 5, 5)).tolist() == [4, 7, 5]  # h = (0.25, -0.5), h / alpha = (1, -2)


def test_fednova_over_two_rounds() -> None:
    rule = FedNova().rule(MEAN, trained=1)
    # p = 1/4 and 3/4; tau = 1/4 * 1 + 3/4 * 3 = 2.5; 1 + 2.5 (1/4 * 1 / 1 + 3/4 * 6 / 3) = 5.375
    first = rule.combine([f32(2), f32(7)], [10, 30], f32(1), [1, 3])
    assert first.tolist() == [5.375]
    # tau = 1/4 + 3/4 * 2 = 1.75; 5.375 + 1.75 (1/4 * 1 - 3/4 * 1 / 2) = 5.15625
    assert rule.combine([f32(6.375), f32(4.375)], [10, 30], first, [1, 2]).tolist() == [5.15625]


def test_fednova_with_equal_steps_is_the_mean_and_averages_statistics_plainly() -> None:
    rule, models, base = NormalisedMean(trained=2), [f32(1, 2, 8), f32(3, -1, 4)], f32(9, 9, 9)
    equal = rule.combine(models, [1, 3], base, [7, 7])
    np.testing.assert_allclose(equal, MEAN.combine(models, [1, 3], base), rtol=1e-6)
    assert rule.combine(models, [1, 3], base, [1, 9])[2] == 5  # (8 + 3 * 4) / 4
    assert rule.combine(models[:1], [4], base, [3]) is models[0]


@pytest.mark.parametrize(
    ("counter", "steps", "mu", "expected"),
    [
        (Steps(), 5, 0.0, 5.0),
        (Steps(momentum=0.9), 1, 0.0, 1.0),
        (Steps(momentum=0.5), 3, 0.0, 1 + 1.5 + 1.75),
        (Steps(mu=0.5), 2, 0.0, 1 + 0.75),  # lr mu = 1/4: the second step comes back by 1/4 of the first
        (Steps(mu=0.25), 2, 0.25, 1 + 0.75),
        (Steps(momentum=0.5, mu=0.5), 2, 0.0, 1 + 0.5 + 1 - 0.25),
    ],
)
def test_steps_count_as_far_as_a_constant_gradient_moves_the_model(
    counter: Steps, steps: int, mu: float, expected: float
) -> None:
    assert counter.effective(steps, lr=0.5, mu=mu) == pytest.approx(expected)


@pytest.mark.parametrize(
    "extra",
    [
        {"change": f32(1, 2)},
        {"change": f32(np.nan)},
        {"change": np.zeros(1)},
        {"other": f32(1)},
        {"change": f32(1), "other": f32(1)},
        {"change": [1.0]},
    ],
)
def test_the_cloud_knows_arrays_that_it_cannot_use(extra: dict[str, np.ndarray]) -> None:
    assert not Scaffold().cloud(trained=1, clients=2).usable(extra)
    assert not CloudSide().usable(extra)


def test_sums_go_on_over_the_rounds_of_a_lease_and_means_start_anew() -> None:
    before = {"change": f32(10)}
    extras = [{"change": f32(1)}, {}, {"change": f32(4)}]
    assert gather("sum", before, extras, [1, 1, 3])["change"] == 15
    assert gather("mean", before, extras, [1, 1, 3])["change"] == 3.25  # (1 + 3 * 4) / 4
    assert gather("sum", before, [{}], [1]) == before
    with pytest.raises(ProtocolError, match=r"one shape on all clients, got \(1,\) and \(2,\)"):
        gather("mean", {}, [{"a": f32(1)}, {"a": f32(1, 2)}], [1, 1])


def test_the_cloud_hands_down_the_mean_of_the_last_arrays_of_every_edge() -> None:
    side = Function(values=2).cloud(trained=9, clients=9)
    side.accept(1, {"a": f32(8)}, 30)
    side.accept(0, {"a": f32(1)}, 10)
    side.accept(1, {"a": f32(5)}, 30)
    assert side.grant() == {"a": 4}  # (10 * 1 + 30 * 5) / 40
    assert side.usable({"a": f32(1, 2)})
    assert not side.usable({"a": f32(1), "b": f32(1, 2)})  # more than declared
    other = Function(values=2).cloud(trained=9, clients=9)
    other.restore(side.snapshot())
    side.accept(0, {"a": f32(9)}, 10)
    assert other.grant() == {"a": 4}


def test_what_travels_beside_a_model() -> None:
    assert ClientAlgorithm().traffic(7, flat=False, exact=True) == Traffic()
    assert Scaffold().traffic(7, flat=True, exact=True) == (7, 7, 7, 7)
    assert FedDyn(0.1).traffic(7, flat=True, exact=True) == (0, 0, 0, 0)
    assert FedDyn(0.1).traffic(7, flat=True, exact=False) == (0, 0, 0, 7)
    assert FedDyn(0.1).traffic(7, flat=False, exact=True) == (0, 0, 0, 7)
    assert Function(5).traffic(7, flat=False, exact=True) == (5, 5, 5, 5)
    assert Payloads.of(40, None, None, Traffic(1, 2, 3, 4)) == Payloads(40, 52, 52, 56, 4, 8)
