"""Runs of other tasks than classification, from settings to result."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hiflash
from hiflash.errors import ConfigError, Paused
from hiflash.report.tables import run_table
from tiny import TINY, assert_same_run

EXAMPLES = Path(__file__).parents[2] / "examples"


def table(**options: Any) -> hiflash.Dataset:
    """Return 300 rows of 4 columns of very different size, and a target that is linear in them."""
    stream = np.random.default_rng(3)
    x = stream.normal(size=(300, 4)) * [1, 1000, 0.01, 1] + [0, 5000, 0, 50]
    y = 100 + 20 * x[:, 0] + 0.03 * (x[:, 1] - 5000) + stream.normal(size=300)
    return hiflash.Dataset.from_arrays(x, y, task="regression", **options)


def text() -> hiflash.Dataset:
    """Return windows of 6 tokens of a repeated alphabet of 5, with the next token at every place."""
    ids = np.arange(400) % 5
    x = np.stack([ids[start : start + 6] for start in range(300)])
    y = np.stack([ids[start + 1 : start + 7] for start in range(300)])
    return hiflash.Dataset.from_arrays(x, y, task="sequence", groups=np.arange(300) // 25)


def linear() -> nn.Module:
    return nn.Linear(4, 1)


def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 5))


def run(data: Any, model: Any, method: str = "hifl", **settings: Any) -> hiflash.Result:
    settings = {**TINY, **{key.replace("__", "."): value for key, value in settings.items()}}
    return hiflash.run(method=method, data=data, model=model, **settings)


@pytest.fixture(scope="module")
def rows() -> hiflash.Dataset:
    return table()


def test_a_target_of_rmse_is_reached_from_above(rows: hiflash.Dataset) -> None:
    result = run(rows, linear, stop__metric="rmse", stop__target=5.0, stop__communications=400)
    values = [row["rmse"] for row in result.evaluations]
    assert result.stop_reason == "target rmse 5.0 reached"
    assert values[-1] <= 5.0 < min(values[:-1])
    assert list(result.targets) == ["5.0"]  # 0.7, 0.8, ... are for accuracy
    assert result.targets["5.0"]["communications"] == result.evaluations[-1]["communications"]
    assert (result.metric, result.metric_better, result.best) == ("rmse", "lower", min(values))
    assert (result.accuracy, result.best_accuracy) == (None, None)
    assert set(result.scores) == {"rmse", "mae", "r2", "loss"}
    assert result.scores["rmse"] < 0.2 * result.chance


def test_targets_are_stable_when_the_mean_of_five_is_below(rows: hiflash.Dataset) -> None:
    result = run(rows, linear, stop__metric="rmse", stop__target=12.0, method="hiflash", evaluate__every=2)
    assert result.targets["12.0"] is not None
    assert result.targets_stable["12.0"] is None  # it stops at the first evaluation at the target


def test_without_a_given_target_a_regression_has_none(rows: hiflash.Dataset) -> None:
    settings = {key: value for key, value in TINY.items() if key != "stop.target"}
    result = hiflash.run(method="hifl", data=rows, model=linear, **settings)
    assert result.stop_target is None
    assert result.targets == {}
    assert result.stop_reason == "60 communications used up"


@pytest.mark.parametrize("partition", ["iid", "noniid2", "dirichlet0.5", "quantity"])
@pytest.mark.parametrize("association", ["heterogeneity", "edge-noniid"])
def test_partitions_and_associations_take_tenths_of_a_numeric_target(
    rows: hiflash.Dataset, partition: str, association: str
) -> None:
    settings = {"data__partition": partition, "federation__association": association}
    if association == "edge-noniid":
        settings["federation__classes_per_edge"] = 5
    result = run(rows, linear, stop__communications=8, **settings)
    assert 0 <= result.total_js <= 4


def test_groups_are_clients(rows: hiflash.Dataset) -> None:
    data = table(groups=np.arange(300) % 12)
    assert run(data, linear, data__partition="group", stop__communications=8).partition == "group"


def test_a_sequence_learns_tokens_that_are_never_scaled() -> None:
    result = run(text(), embedding, data__partition="group", client__lr=0.5, stop__communications=200)
    assert result.task == "sequence"
    assert result.accuracy == 1.0  # the next token of this alphabet is certain
    assert result.scores["perplexity"] < 1.5
    assert result.chance == pytest.approx(0.2, abs=0.02)


def test_workers_and_a_pause_do_not_change_a_bit(rows: hiflash.Dataset, tmp_path: Path, no_figures) -> None:
    alone = run(rows, linear, directory=tmp_path / "one", evaluate__clients=0.2)
    pair = run(rows, linear, directory=tmp_path / "two", evaluate__clients=0.2, workers=2)
    assert_same_run(alone, pair)
    steps = iter([False] * 60 + [True])
    with pytest.raises(Paused):
        run(rows, linear, directory=tmp_path / "three", evaluate__clients=0.2, pause=lambda: next(steps))
    assert_same_run(alone, hiflash.resume(tmp_path / "three", data=rows, model=linear))
    saved = json.loads((tmp_path / "one" / "result.json").read_text())
    assert saved["metric"] == "rmse"
    assert saved["scores"] == alone.scores
    logged = [json.loads(line) for line in (tmp_path / "one" / "events.jsonl").read_text().splitlines()]
    assert {"rmse", "mae", "r2", "loss"} <= set(next(row for row in logged if row["event"] == "evaluate"))


def test_a_large_column_does_not_drown_the_others() -> None:
    stream = np.random.default_rng(0)
    y = stream.integers(2, size=600)
    x = np.stack([y + 0.3 * stream.normal(size=600), 1e5 * stream.normal(size=600)], 1)
    data = hiflash.Dataset.from_arrays(x, y)
    settings = {"data__partition": "iid", "stop__communications": 120, "client__lr": 0.1}
    assert run(data, nn.Linear(2, 2), **settings).accuracy > 0.9
    assert run(data, nn.Linear(2, 2), data__normalise="global", **settings).accuracy < 0.6  # as it was


def test_a_raw_regression_reaches_what_plain_pytorch_reaches_on_pooled_data() -> None:
    example = runpy.run_path(str(EXAMPLES / "own_regression.py"))
    data = example["table"]()
    assert data.x.std(0).max() > 30 * data.x.std(0).min()  # raw columns
    pooled = example["pooled"](data)
    for method in ("fedavg", "hifl"):
        assert example["federated"](data, method).scores["rmse"] <= 1.05 * pooled


class Quantile(hiflash.Task):
    """The pinball loss of the 90 % quantile, on the target as it is."""

    name = "quantile"
    metrics = (hiflash.Metric("covered", "higher", "share"),)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        error = y - outputs[:, 0]
        return torch.maximum(0.9 * error, -0.1 * error)

    def sums(self, outputs: Tensor, y: Tensor) -> list[Tensor]:
        return [(y <= outputs[:, 0]).sum()]

    def scores(self, means: Any, loss: float) -> dict[str, float]:
        return {"covered": means[0]}


def test_a_task_of_ones_own_is_registered_by_name(parts_as_before) -> None:
    hiflash.register("task", hiflash.Part("quantile", "a quantile", lambda config: Quantile()))
    stream = np.random.default_rng(0)
    x = stream.normal(size=(400, 4)).astype(np.float32)
    y = stream.normal(size=400)
    data = hiflash.Dataset.from_arrays(x, y, task="quantile")
    result = run(data, linear, data__partition="iid", client__lr=0.3, stop__communications=300)
    assert (result.task, result.metric, result.chance) == ("quantile", "covered", None)
    assert result.scores["covered"] == pytest.approx(0.9, abs=0.08)
    with pytest.raises(ConfigError, match=r"stop.target must be in \(0, 1\].* for covered"):
        run(data, linear, stop__target=2.0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stop__metric": "rsme"}, "the task regression has rmse, mae, r2, loss; did you mean rmse"),
        ({"stop__metric": "accuracy"}, "the task regression has rmse, mae, r2, loss; choose one"),
        ({"data__task": "classification"}, "data.task = classification does not suit this data"),
        ({"data__task": "tabular"}, "data.task must be"),
        ({"attack__kind": "label_flip"}, "needs one class per sample, and the task here is regression"),
        ({"method": "tifl"}, r"tiers.* needs one class per sample, and the task here is regression"),
        ({"data__normalise": "channel"}, "have no channels"),
        ({"data__augment": True}, "data.augment needs images"),
        ({"trainer": "native"}, "the task regression has no compiled form"),
    ],
)
def test_settings_that_do_not_suit_a_regression_are_refused(
    rows: hiflash.Dataset, settings: dict[str, Any], said: str
) -> None:
    if settings.get("method") == "tifl":
        settings = {**settings, "cloud__tiers": 2, "cloud__participants": 2}
    with pytest.raises(hiflash.errors.HiFlashError, match=said):
        run(rows, linear, **settings)


def test_a_model_with_another_number_of_outputs_is_refused(rows: hiflash.Dataset) -> None:
    with pytest.raises(ConfigError, match=r"gives \(2,\) for a sample, and should one number"):
        run(rows, nn.Linear(4, 2))


def test_a_run_that_is_no_better_than_the_mean_is_told_so(rows: hiflash.Dataset) -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return 0.5 + 0 * self.value + 0 * x[:, :1]

    assert any("did not learn: rmse" in warning for warning in run(rows, Constant).warnings)


def test_the_surrogate_models_accuracy_alone() -> None:
    from hiflash.control.surrogate.stand_in import check_representable

    config = hiflash.Config(method="hiflash", **{"data.task": "regression", "stop.target": 3.0})
    with pytest.raises(ConfigError, match=r"a surrogate models accuracy on classes"):
        check_representable(config)


def test_held_out_samples_are_tested_client_by_client_and_edge_by_edge(rows: hiflash.Dataset) -> None:
    told = run(rows, linear, evaluate__clients=0.25, data__partition="iid").clients
    assert told["samples"] == [5] * 12  # a quarter of 20 each
    each = told["per_client"]
    assert told["mean"] == pytest.approx(np.mean(each))
    assert told["std"] == pytest.approx(np.std(each))
    assert told["worst_tenth"] == pytest.approx(np.mean(sorted(each)[-2:]))  # the highest 2 of 12
    # With equally large clients, the mean square of all edges is that of all clients.
    assert np.mean(np.square(told["per_edge"])) == pytest.approx(np.mean(np.square(each)), rel=0.2)


def test_own_batch_norm_values_are_tested_beside_the_shared_model() -> None:
    result = runpy.run_path(str(EXAMPLES / "own_batch_norm.py"))["main"](communications=100)
    shared, own = result.clients, result.clients["own_batch_norm"]
    assert len(own["per_client"]) == 20
    assert own["mean"] > shared["mean"] + 0.1  # each camera needs statistics of its own
    assert own["worst_tenth"] > shared["worst_tenth"] + 0.1
    shown = "\n".join(str(cell) for column in run_table(result.to_dict()).columns for cell in column.cells)
    assert "with their own BatchNorm values mean" in shown


def test_nothing_is_held_out_by_default(run_tiny: Callable[..., hiflash.Result]) -> None:
    assert run_tiny().clients == {}


def test_a_flat_method_has_clients_without_edges(rows: hiflash.Dataset) -> None:
    settings = {key: value for key, value in TINY.items() if key != "federation.edges"}
    result = hiflash.run(
        method="fedavg",
        data=rows,
        model=linear,
        **settings,
        **{"evaluate.clients": 0.2, "cloud.participants": 4},
    )
    assert len(result.clients["per_client"]) == 12
    assert result.clients["per_edge"] == []


def test_compare_and_sweep_speak_of_the_metric(rows: hiflash.Dataset, tmp_path: Path) -> None:
    from hiflash.report.compare_tables import compare_tables
    from hiflash.report.sweep import sweep_tables

    settings = {**TINY, "stop.metric": "rmse", "stop.target": 15.0, "evaluate.clients": 0.2}
    settings.pop("federation.edges")
    both = hiflash.compare(
        methods=["fedavg", "hifl", "centralized"], seeds=1, data=rows, model=linear, directory=tmp_path / "c",
        **{**settings, "stop.steps": 200},
    )  # fmt: skip
    both.save(tmp_path / "c")
    assert (tmp_path / "c" / "clients.png").is_file()
    titles = [str(each.title) for each in compare_tables(both.numbers(), 120)]
    assert any("to rmse 15" in title for title in titles)
    heads = [str(column.header) for each in compare_tables(both.numbers(), 120) for column in each.columns]
    assert "rmse" in heads
    assert "accuracy" not in heads
    del settings["client.lr"]
    swept = hiflash.sweep(
        grid={"client.lr": [0.001, 0.05]}, data=rows, model=linear, by="best_rmse", directory=tmp_path / "s",
        **settings,
    )  # fmt: skip
    swept.save(tmp_path / "s")
    assert [row["point"]["client.lr"] for row in swept.rows()] == [0.05, 0.001]  # the lowest error first
    assert "by best rmse" in str(sweep_tables(swept.numbers(), "best_rmse", 120)[0].title)
    with pytest.raises(ConfigError, match=r"can be sorted by .*rmse, best_rmse, loss, got accuracy"):
        hiflash.sweep(grid={"client.lr": [0.1]}, data=rows, model=linear, by="accuracy", **settings)


def test_a_dataset_with_a_name_says_its_task_before_it_is_loaded(rows, parts_as_before) -> None:
    """Targets and sort keys are chosen before: a regression must not get accuracy's 0.9."""
    hiflash.register("dataset", hiflash.Part("silent", "numbers", lambda _: rows))
    hiflash.register(
        "dataset", hiflash.Part("frank", "numbers", lambda _: rows, settings={"data.task": "regression"})
    )
    common: dict[str, Any] = {"model": linear, "stop.communications": 10, "data.partition": "iid"}
    with pytest.raises(ConfigError, match=r"silent has the task regression, and its entry does not say so"):
        hiflash.run(**common, **{"data.name": "silent", "federation.clients": 4, "federation.edges": 2})
    result = hiflash.run(**common, **{"data.name": "frank", "federation.clients": 4, "federation.edges": 2})
    assert (result.metric, result.stop_target) == ("rmse", None)
