"""Runs with a validation set: it decides, the test set reports, and no client trains on either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hiflash
from hiflash.config import Config
from hiflash.control.environment import StalenessEnv
from hiflash.errors import ConfigError, Paused
from hiflash.sim.federation import Federation, build
from hiflash.study.saved import read_result
from tiny import TINY, assert_same_run, make_tiny_data, make_tiny_model

SHARE = {"evaluate.validation": 0.2}
OWN = {"data.name": "own", "model.name": "own"}


def federation(data: hiflash.Dataset | None = None, indices: Any = None, **settings: Any) -> Federation:
    config = Config().with_settings({**TINY, **OWN, **SHARE, **settings})
    return build(config, data or make_tiny_data(), make_tiny_model, indices)


def by_hand(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return accuracy and loss of the tiny model on scaled samples."""
    model = make_tiny_model()
    nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), model.parameters())
    with torch.no_grad():
        outputs = model(torch.from_numpy(x))
    answers = torch.from_numpy(y)
    loss = nn.functional.cross_entropy(outputs, answers)
    return float((outputs.argmax(1) == answers).float().mean()), float(loss)


@pytest.mark.parametrize("method", ["hifl", "centralized"])
def test_both_metrics_are_those_of_their_samples(run_tiny: Any, method: str) -> None:
    result = run_tiny(method, **SHARE, **({"stop.steps": 200} if method == "centralized" else {}))
    data = make_tiny_data()
    built = federation(method=method, **({"federation.edges": 1} if method == "centralized" else {}))
    held = built.population.validation
    built.close()
    assert np.bincount(data.y[held]).tolist() == [15, 15, 15, 15]  # a fifth of 75 of each class
    kept = np.delete(data.x, held, axis=0).astype(np.float64)
    scaled = [np.float32((part - kept.mean()) / kept.std()) for part in (data.x_test, data.x[held])]
    last = result.evaluations[-1]
    for x, y, prefix in ((scaled[0], data.y_test, ""), (scaled[1], data.y[held], "validation_")):
        accuracy, loss = by_hand(result.weights, x, y)
        assert last[f"{prefix}accuracy"] == pytest.approx(accuracy)
        assert last[f"{prefix}loss"] == pytest.approx(loss, rel=1e-5)
    told = result.validation
    assert (told["share"], told["samples"]) == (0.2, 60)
    assert told["scores"] == {"accuracy": last["validation_accuracy"], "loss": last["validation_loss"]}
    assert (result.stop_set, result.accuracy) == ("validation", last["accuracy"])


def test_the_best_of_the_validation_set_comes_with_its_test_metric(run_tiny: Any) -> None:
    result = run_tiny(**SHARE)
    rows = result.evaluations
    best = max(row["validation_accuracy"] for row in rows)
    chosen = next(row for row in rows if row["validation_accuracy"] == best)
    assert (result.validation["best"], result.validation["test_at_best"]) == (best, chosen["accuracy"])


@pytest.mark.parametrize("partition", ["iid", "noniid2", "dirichlet0.5", "quantity", "noniid1-balanced"])
def test_no_client_has_a_sample_of_the_validation_set(partition: str) -> None:
    built = federation(**{"data.partition": partition})
    people = built.population
    built.close()
    dealt = np.concatenate(people.split.indices)
    assert not set(dealt.tolist()) & set(people.validation.tolist())
    assert people.labels is not None
    assert people.labels.sum() == len(dealt) == people.examples.sum()
    if partition != "noniid2":  # which may use a sample twice, or never
        assert sorted([*dealt.tolist(), *people.validation.tolist()]) == list(range(300))


def test_writers_and_own_indices_keep_their_samples_but_those_held_back() -> None:
    data = make_tiny_data()
    writers = np.arange(300) % 12  # 25 samples each
    grouped = hiflash.Dataset.from_arrays(data.x, data.y, data.x_test, data.y_test, classes=4, groups=writers)
    by_writer = federation(grouped, **{"data.partition": "writer"})
    own = federation(data, [np.flatnonzero(writers == client) for client in range(12)])
    for built in (by_writer, own):
        built.close()
        held = set(built.population.validation.tolist())
        for client, part in enumerate(built.population.split.indices):
            assert part.tolist() == [i for i in range(300) if writers[i] == client and i not in held]
    # A writer has one class here. A fifth of 75 samples is 15, and three writers take turns: 5 each.
    assert by_writer.population.examples.tolist() == [20] * 12


def test_a_run_stops_on_the_validation_set(run_tiny: Any, tmp_path: Path) -> None:
    whole = run_tiny(**SHARE)
    values = [row["validation_accuracy"] for row in whole.evaluations]
    target = sorted(values)[len(values) // 2]
    place = next(place for place, value in enumerate(values) if value >= target)
    result = run_tiny(directory=tmp_path / "run", **SHARE, **{"stop.target": target})
    assert result.stop_reason == f"target {target} reached on the validation set"
    assert result.communications == whole.evaluations[place]["communications"]
    assert result.validation["targets"][str(target)]["communications"] == result.communications
    reached = [row["accuracy"] >= target for row in result.evaluations]
    assert (result.targets[str(target)] is not None) == any(reached)
    saved = read_result(tmp_path / "run")
    assert (saved.validation, saved.stop_set) == (result.validation, "validation")


def test_a_paused_run_ends_like_an_undisturbed_one(
    run_tiny: Any, resume_tiny: Callable[..., hiflash.Result], tmp_path: Path
) -> None:
    settings = {**SHARE, "evaluate.clients": 0.2}
    one = run_tiny(directory=tmp_path / "one", **settings)
    calls = iter(range(10_000))
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "other", pause=lambda: next(calls) > 60, **settings)
    other = resume_tiny(tmp_path / "other", workers=2)
    assert_same_run(one, other)
    assert len(one.clients["per_client"]) == 12  # spans after the validation set are still each client's


def test_tifl_looks_at_the_validation_set(run_tiny: Any) -> None:
    built = federation(method="tifl", **{"cloud.participants": 4, "cloud.tiers": 2, "federation.edges": 1})
    weights, data, held = built.start.weights, make_tiny_data(), built.population.validation
    tested, watched = built.recall(weights), built.watched_recall(weights)
    built.close()
    kept = np.delete(data.x, held, axis=0).astype(np.float64)
    for recall, x, y in ((tested, data.x_test, data.y_test), (watched, data.x[held], data.y[held])):
        scaled = np.float32((x - kept.mean()) / kept.std())
        each = [by_hand(weights, scaled[y == label], y[y == label])[0] for label in range(4)]
        assert recall == pytest.approx(each)
    assert tested != watched


def test_numbers_are_scaled_without_the_validation_set() -> None:
    stream = np.random.default_rng(1)
    x = stream.normal(size=(200, 3)).astype(np.float32)
    y = (x.sum(1) * 10).astype(np.float32)
    rows = hiflash.Dataset.from_arrays(x, y, x[:20], y[:20], task="regression")
    config = Config().with_settings(
        {**TINY, **OWN, **SHARE, "data.task": "regression", "data.partition": "iid"}
    )
    built = build(config, rows, lambda: nn.Linear(3, 1))
    values = built.evaluate(np.zeros(4, np.float32))  # it always answers the mean
    built.close()
    left = np.delete(y, built.population.validation)
    assert len(left) == 160
    assert built.task.mean == pytest.approx([left.mean()], rel=1e-6)
    held = y[built.population.validation]
    for value, part in ((values[0], y[:20]), (values[4], held)):  # rmse, mae, r2 and loss of each
        assert value == pytest.approx(np.sqrt(np.mean((part - left.mean()) ** 2)), rel=1e-5)


def test_a_share_of_zero_changes_no_digest() -> None:
    assert "evaluate.validation" not in Config().decisive()
    assert Config(**SHARE).decisive()["evaluate.validation"] == 0.2
    assert Config(**SHARE).digest() != Config().digest()
    assert "validation = 0.2" in Config(**SHARE).to_toml()


@pytest.mark.parametrize("share", [-0.1, 0.5, 1])
def test_shares_outside_the_range_are_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"evaluate.validation must be in \[0, 0.5\)"):
        Config(**{"evaluate.validation": share})


def test_old_results_were_stopped_on_the_test_set(run_tiny: Any, tmp_path: Path) -> None:
    result = run_tiny(stop__communications=10)
    numbers = {key: value for key, value in result.to_dict().items() if key not in ("stop_set", "validation")}
    old = hiflash.Result.from_dict(numbers)
    assert (old.stop_set, old.validation) == ("test", {})
    assert (result.stop_set, result.validation) == ("test", {})


def test_an_agent_in_real_training_learns_from_the_validation_set() -> None:
    env = StalenessEnv(
        {
            "federation.clients": 20, "federation.edges": 4, "evaluate.every": 2, "evaluate.validation": 0.1,
            "stop.target": 0.99, "workers": 1, "cloud.threshold_max": 5,
        },
        fidelity="real", max_slots=60,
    )  # fmt: skip
    env.reset(seed=0)
    info: dict[str, Any] = {}
    while len(env.session.evaluations) < 2:
        info = env.step(np.int64(6))[-1]
    last = env.session.evaluations[-1]
    env.close()
    assert last["validation_accuracy"] != last["accuracy"]
    assert info["accuracy"] == last["validation_accuracy"]
    assert env.progress() == pytest.approx(last["validation_accuracy"] / 0.99)
