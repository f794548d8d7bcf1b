"""A user's own training function: what it gets, what it may return, and that its runs can be repeated."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import hiflash
from hiflash.errors import ConfigError, Paused, ProtocolError
from hiflash.methods import plugins
from tiny import TINY, assert_same_run, make_norm_model, make_tiny_data, make_tiny_model

DATA = make_tiny_data()


def sgd(model: nn.Module, data: Any, context: Any) -> None:
    """Train as plain SGD does."""
    optimizer = torch.optim.SGD(model.parameters(), lr=context.lr)
    for batch in context.batches(data):
        optimizer.zero_grad()
        functional.cross_entropy(model(batch.x), batch.y).backward()
        optimizer.step()


def personal(model: nn.Module, data: Any, context: Any) -> dict[str, Any]:
    """Train with everything that a context offers: a state, arrays from the cloud, and three generators."""
    sgd(model, data, context)
    tasks = int(context.state.get("tasks", 0)) + 1
    context.state["tasks"] = tasks
    context.state["last"] = next(model.parameters()).detach()[0]
    noise = context.rng.normal() + torch.randn(1, generator=context.generator).item() + torch.rand(1).item()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-4 * noise + 1e-4 * float(np.sum(context.extra.get("means", 0.0))))
    return {"tasks": tasks, "loss": torch.tensor(0.5), "means": data.x.mean(0).reshape(-1)[:3]}


def run(
    train: Any = None, directory: Path | None = None, model: Any = make_tiny_model, **settings: Any
) -> Any:
    pause = settings.pop("pause", None)
    settings = {**TINY, "method": "hifl", "stop.communications": 20, **settings}
    return hiflash.run(train=train, data=DATA, model=model, directory=directory, pause=pause, **settings)


@pytest.mark.parametrize("model", [make_tiny_model, make_norm_model])
def test_a_function_that_repeats_plain_sgd_gives_the_same_run(model: Any) -> None:
    settings: dict[str, Any] = {"client.batch": 9}
    own, plain = run(sgd, model=model, **settings), run(model=model, trainer="torch", **settings)
    np.testing.assert_allclose(own.weights, plain.weights, atol=1e-5)
    assert own.accuracy == plain.accuracy
    assert own.wan_bytes == plain.wan_bytes
    assert own.client_metrics == {}


@pytest.mark.usefixtures("no_figures")
def test_state_arrays_and_metrics_survive_a_pause_and_any_number_of_workers(tmp_path: Path) -> None:
    settings = {"client.extra_values": 3}
    whole = run(personal, tmp_path / "whole", **settings)
    asked = iter(range(10**6))
    with pytest.raises(Paused):
        run(personal, tmp_path / "run", pause=lambda: next(asked) > 50, workers=2, **settings)
    resumed = hiflash.resume(tmp_path / "run", data=DATA, model=make_tiny_model, train=personal, workers=3)
    assert_same_run(whole, resumed)
    assert set(whole.client_metrics) == {"loss", "tasks"}
    assert whole.client_metrics["loss"] == 0.5
    assert whole.client_metrics["tasks"] > 1  # clients remember
    rows = [json.loads(line) for line in (tmp_path / "whole/events.jsonl").read_text().splitlines()]
    uploads = [row for row in rows if row["event"] == "upload"]
    assert uploads[0]["metrics"].keys() == {"loss", "tasks"}
    mean = np.mean([row["metrics"]["tasks"] for row in uploads if row["status"] != "rejected"])
    assert whole.client_metrics["tasks"] == pytest.approx(mean)
    with pytest.raises(ConfigError, match=r"client.function is own: pass the function in Python"):
        run(**{"client.algorithm": "function", "client.function": "own"})


def test_declared_arrays_count_in_bytes_and_change_the_next_tasks() -> None:
    plain, own = run(sgd), run(personal, **{"client.extra_values": 3})
    assert own.wan_bytes_up - plain.wan_bytes_up == 20 * 3 * 4
    assert own.lan_bytes_up > plain.lan_bytes_up


def test_the_context_has_what_the_task_has() -> None:
    seen: list[Any] = []

    def look(model: nn.Module, data: Any, context: Any) -> None:
        seen.append((context, len(data.y), model.training))

    settings = {"client.local_epochs": 2, "stop.communications": 4}
    run(look, **settings, method="hierfavg", **{"edge.clients_per_round": 2})
    context, size, training = seen[0]
    assert context.epochs == 2
    assert context.steps == 2 * -(-size // 8)
    assert (context.batch, context.lr, context.first_step, context.state) == (8, 0.05, 0, {})
    assert training
    assert len({each.client for each, _, _ in seen}) > 2


def test_a_function_by_name_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_training.py").write_text("from train.test_function import sgd\nthree = 3\n")
    (tmp_path / "broken_training.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    named = {"client.algorithm": "function", "client.function": "my_training:sgd"}
    assert run(**named).digest == run(sgd).digest
    for name, said in (
        ("my_training", 'must be "package.module:name" or "file.py:name", got "my_training"'),
        ("my_training:other", "my_training.py has no other"),
        ("my_training:three", "must be a function, got int"),
        ("no_such_training:f", "client.function: no_such_training: there is no such module in"),
        ("broken_training:f", "cannot be loaded: .*no_such_module_anywhere.* line 1"),
        ("no_such_file.py:f", "no_such_file.py is not a Python file; give the path of a .py file"),
        ("my training:f", "client.function: 'my training' is neither a module nor the path of a .py file"),
    ):
        with pytest.raises(ConfigError, match=said):
            run(**{**named, "client.function": name})


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mine", "mine.py"),
        ("mine.py", "mine.py"),
        ("pack_one.inner", "pack_one/inner.py"),
        ("pack_two/inner.py", "pack_two/inner.py"),
    ],
)
def test_a_run_with_a_function_by_name_is_resumed_from_any_folder(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    if path.parent != tmp_path:
        (path.parent / "__init__.py").touch()
    path.write_text("from train.test_function import sgd\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    asked = iter([False] * 20 + [True])
    named = {"client.algorithm": "function", "client.function": f"{name}:sgd"}
    with pytest.raises(Paused):
        run(directory=tmp_path / "run", pause=lambda: next(asked), **named)
    monkeypatch.chdir(tmp_path / "elsewhere")  # and forget the module, as another process would
    monkeypatch.setattr(plugins, "_loaded", {plugins.GROUP})
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    for module in [key for key, value in sys.modules.items() if getattr(value, "__file__", "") == str(path)]:
        del sys.modules[module]
    resumed = hiflash.resume(tmp_path / "run", data=DATA, model=make_tiny_model)
    assert resumed.digest == run(sgd).digest
    assert f'function = "{path}:sgd"' in (tmp_path / "run/config.toml").read_text()


def test_the_file_of_a_function_may_be_a_plugin_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "both.py").write_text("calls = []\ndef train(*_): calls.append(1)\n")
    monkeypatch.chdir(tmp_path)
    run(**{"client.algorithm": "function", "client.function": "both.py:train", "plugins": ["both"]})
    (loaded,) = (module for name, module in sys.modules.items() if name.startswith("hiflash_plugin_both_"))
    assert loaded.calls


class OddError(Exception):
    """Known to nobody else."""


def test_what_a_function_raises_passes_through() -> None:
    def fails(*_: Any) -> None:
        raise OddError("mine")

    with pytest.raises(OddError, match=r"^mine$"):
        run(fails)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (3, "must return None, or numbers .* got int"),
        ({"a": "text"}, "gave 'a' as str"),
        ({"a": object()}, "gave 'a' as object"),
        ({"a": [[1], [2, 3]]}, "gave 'a' as list"),
        ({1: 2.0}, "names, got 1"),
        ({"a": np.ones(7)}, r"7 numbers, and client.extra_values is 3; set client.extra_values = 7"),
    ],
)
def test_a_function_that_returns_something_else_is_told(returned: Any, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        run(lambda model, data, context: returned, **{"client.extra_values": 3})


def test_a_function_may_not_change_the_shape_of_the_model() -> None:
    def widen(model: Any, data: Any, context: Any) -> None:
        model[1] = nn.Linear(36, 6)

    def remove(model: Any, data: Any, context: Any) -> None:
        del model[3]

    with pytest.raises(ProtocolError, match=r"1.weight had shape \(5, 36\), and now it has shape \(6, 36\)"):
        run(widen)
    with pytest.raises(ProtocolError, match=r"3.weight had shape \(4, 5\), and now has none"):
        run(remove)


def test_a_state_must_be_arrays() -> None:
    def keep(model: Any, data: Any, context: Any) -> None:
        context.state["model"] = model

    with pytest.raises(ProtocolError, match="gave 'model' as Sequential"):
        run(keep)


def test_what_is_not_finite_does_not_count() -> None:
    def spoil(model: Any, data: Any, context: Any) -> Any:
        sgd(model, data, context)
        context.state["tasks"] = int(context.state.get("tasks", 0)) + 1
        if context.client == 0:
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))
        return {"array": np.full(2, np.inf if context.client == 1 else 1.0), "tasks": context.state["tasks"]}

    result = run(spoil, **{"client.extra_values": 2, "edge.quorum": 0.3})
    assert np.isfinite(result.weights).all()
    assert result.version > 0


def test_a_module_is_new_in_every_task() -> None:
    def freeze(model: Any, data: Any, context: Any) -> None:
        assert all(parameter.requires_grad for parameter in model.parameters())
        for parameter in model.parameters():
            parameter.requires_grad_(False)
            parameter.data = parameter.data.clone() + 0.001

    assert np.isfinite(run(freeze).weights).all()


@pytest.mark.parametrize(
    ("train", "said"),
    [(3, "must be a function train"), (lambda model: None, "must take three arguments")],
)
def test_train_must_take_three_arguments(train: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(train)


def test_metrics_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    def train(model: nn.Module, data: Any, context: Any) -> dict[str, float]:
        return {"loss": float("nan"), "large": float("inf"), "tasks": 1.0}

    result = run(train, directory=tmp_path / "run")
    assert result.client_metrics == {"tasks": 1.0}
    for name in ("result.json", "events.jsonl"):
        assert "NaN" not in (tmp_path / "run" / name).read_text()
