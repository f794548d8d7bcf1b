"""What a program may pass, what it is told when it passes something else, and whose errors are whose."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import hiflash
from hiflash.errors import ConfigError, HiFlashError
from hiflash.study.arguments import CHECKS, check_arguments
from tiny import TINY, make_norm_model, make_tiny_data, make_tiny_model

DATA = make_tiny_data()
QUICK = {**TINY, "stop.communications": 4, "trainer": "torch"}

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9)
junk = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3), max_leaves=6
) | st.sampled_from([object(), int, print, np.zeros(3), np.float64(2), {1, 2}, range(3), Ellipsis, iter(())])


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(sorted(CHECKS)), value=junk)
def test_any_value_of_any_argument_is_fine_or_a_clear_error(name: str, value: object) -> None:
    said = ""
    try:
        check_arguments(**{name: value})
    except ConfigError as error:
        said = str(error)
    assert not said or (", got " in said and len(said) < 300)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["config", "data", "model", "directory", "indices", "observers", "pause"]),
    value=junk.filter(
        lambda value: value is not None and not isinstance(value, dict) and not callable(value)
    ),
)
def test_a_run_with_junk_is_a_hiflash_error(name: str, value: object) -> None:
    given_arguments: dict[str, Any] = {**QUICK, "data": DATA, "model": make_tiny_model, name: value}
    if name == "directory" and isinstance(value, str) and "\0" not in value:
        return  # may well be a name
    if name == "observers" and isinstance(value, list) and not value:
        return  # nobody observes
    with pytest.raises(HiFlashError):
        hiflash.run(given_arguments.pop("config", None), **given_arguments)


def run(**more: Any) -> hiflash.Result:
    return hiflash.run(**{**QUICK, "data": DATA, "model": make_tiny_model, **more})


def no_model() -> None:
    """Forget the return statement."""


def frozen() -> nn.Module:
    return make_tiny_model().requires_grad_(False)


class Pair(nn.Module):
    """Returns more than logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_tiny_model()

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return self.inner(x), 1


RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "data by name": ({"data": "mnist"}, r'data=\{"name": "mnist"\}, got \'mnist\''),
    "data as arrays": ({"data": (np.zeros((5, 2)), np.zeros(5))}, r"Dataset\.from_arrays\(x, y\)"),
    "data as tensors": ({"data": torch.zeros(5, 2)}, r"Dataset\.from_torch .* got Tensor"),
    "model by name": ({"model": "lenet"}, r'model=\{"name": "lenet"\}'),
    "model as a number": ({"model": 5}, "model must be a torch module, or a function .* got 5"),
    "model with arguments": ({"model": nn.Linear}, "must need no arguments.*'in_features'"),
    "no return": ({"model": no_model}, "got NoneType; a function needs a return statement"),
    "returns a pair": ({"model": Pair}, "for each of 4 classes, got tuple; return the logits alone"),
    "frozen": ({"model": frozen}, "only frozen parameters .* nothing to train"),
    "without parameters": ({"model": nn.Flatten}, "no parameters, so there is nothing to train"),
    "float64": ({"model": lambda: make_tiny_model().double()}, "1.weight is torch.float64.*float32; call"),
    "half": ({"model": lambda: make_tiny_model().half()}, "1.weight is torch.float16"),
    "mixed": ({"model": lambda: make_tiny_model().append(nn.Linear(4, 4).double())}, "4.weight is .*float64"),
    "lazy": ({"model": lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(4))}, "call it once with a sample"),
    "directory": ({"directory": 3}, 'directory must be the path of a folder, like "runs/mine", got 3'),
    "observers": ({"observers": 3}, "observers must be a list of hiflash.Observer objects"),
    "one observer": ({"observers": hiflash.Observer()}, r"like \[Mine\(\), \"csv\"\], got Observer"),
    "an observer's class": ({"observers": [hiflash.Observer]}, r"a list of objects, like \[Observer\(\)\]"),
    "an unknown tracker": ({"observers": ["cvs"]}, "unknown tracker 'cvs'; there are csv, tensorboard"),
    "a tracker twice": ({"observers": ["csv", "csv"]}, "observers has csv twice"),
    "a tracker without a directory": ({"observers": ["csv"]}, 'has none; give one, like directory="runs'),
    "pause": ({"pause": True}, "pause must be a function, got True"),
    "indices as a number": ({"indices": 5}, "sample indices of every client.* got 5"),
    "indices by client": ({"indices": {0: [1]}}, "sample indices of every client"),
    "indices that run out": ({"indices": iter([[1]])}, "got list_iterator"),
    "indices as None": ({"indices": [None] * 12}, r"client 0 has shape \(\)"),
}  # fmt: skip


@pytest.mark.parametrize("trainer", ["torch", "auto"])
@pytest.mark.parametrize("case", RUNS)
def test_a_run_says_what_is_wrong_with_its_arguments(case: str, trainer: str) -> None:
    wrong, said = RUNS[case]
    with pytest.raises(HiFlashError, match=said):
        run(trainer=trainer, **wrong)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        hiflash.run(data="mnist", model="lenet", directory=3)
    assert [problem.split()[0] for problem in caught.value.problems] == ["data", "model", "directory"]


@pytest.mark.parametrize("call", [hiflash.run, hiflash.compare, hiflash.sweep])
@pytest.mark.parametrize("config", [{"method": "hifl"}, 5, ["a.toml"], b"a.toml", "a\0b"])
def test_a_configuration_is_a_path_and_settings_are_keywords(
    call: Callable[..., Any], config: object
) -> None:
    with pytest.raises(ConfigError, match=r"config must be .*the path of a TOML file; settings are keywords"):
        call(config)


COMPARISONS: dict[str, tuple[dict[str, Any], str]] = {
    "seeds as text": ({"seeds": "3"}, r"seeds must be a whole number >= 1 or a list of seeds.* got '3'"),
    "true": ({"seeds": True}, "seeds must be a whole number"),
    "no seeds": ({"seeds": []}, "seeds must be a whole number"),
    "too many seeds": ({"seeds": 10**9}, r"seeds must be in 1\.\.10000"),
    "methods": ({"methods": 3}, "methods must be a list of names, got 3"),
    "methods in lists": ({"methods": [["hifl"]]}, "methods must be a list of names"),
    "variants": ({"variants": [("a", {})]}, "variants must be settings by label"),
    "a variant's method": ({"variants": {"a": {"method": ["hifl"]}}}, "variants must be settings by label"),
    "partitions": ({"partitions": [3]}, "partitions must be a list of names"),
    "processes": ({"processes": "2"}, r"processes must be a whole number in 1\.\.1024, got '2'"),
    "no processes": ({"processes": None}, "processes must be a whole number"),
    "observers": ({"observers": [print]}, "observers must be a list of hiflash.Observer objects"),
    "directory": ({"directory": 3}, "directory must be the path of a folder"),
    "data": ({"data": "mnist"}, r'data=\{"name": "mnist"\}'),
}


@pytest.mark.parametrize("case", COMPARISONS)
def test_a_comparison_says_what_is_wrong_with_its_arguments(case: str) -> None:
    wrong, said = COMPARISONS[case]
    with pytest.raises(ConfigError, match=said):
        hiflash.compare(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"grid": 3}, r"grid must be values by setting, like \{\"cloud.alpha\""),
        ({"grid": {3: [1]}}, "grid must be values by setting"),
        ({"grid": {"cloud.alpha": [0.5]}, "by": ["loss"]}, "by must be the name of a metric"),
        ({"grid": {"cloud.alpha": [0.5]}, "seeds": "1"}, "seeds must be"),
    ],
)
def test_a_sweep_says_what_is_wrong_with_its_arguments(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        hiflash.sweep(**wrong)


@pytest.mark.parametrize("directory", [5, None, b"runs/x", "runs/\0"])
def test_only_a_folder_can_be_resumed(directory: Any) -> None:
    with pytest.raises(ConfigError, match="directory must be the path of a folder"):
        hiflash.resume(directory)
    with pytest.raises(ConfigError, match="directory must be the path of a folder"):
        hiflash.calibrate(directory=directory)


def test_a_run_is_resumed_with_data_and_not_with_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data must be the Dataset that the run was begun with"):
        hiflash.resume(tmp_path, data={"name": "mnist"})


def test_a_calibration_says_what_is_wrong_with_its_arguments(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fit_seeds must be .*\ncheck_policies must be"):
        hiflash.calibrate(directory=tmp_path / "c", fit_seeds=5, check_policies=3)


class MineError(Exception):
    """What a user's own code raises."""


def raise_mine(*_: object) -> Any:
    raise MineError("mine")


class Raising(Pair):
    """Raises in training."""

    forward = raise_mine


@pytest.mark.parametrize("mine", [{"model": raise_mine}, {"model": Raising}, {"pause": raise_mine}])
def test_what_a_users_own_code_raises_passes_through(mine: dict[str, Any]) -> None:
    with pytest.raises(MineError, match="mine"):
        run(**mine)


def test_a_batch_of_one_sample_is_refused_before_batch_norm_sees_it(tmp_path: Path) -> None:
    # 300 samples for 12 clients are 25 each: three batches of 8 and one of 1.
    last = r"with client\.batch = 8 the last batch of client 0, with 25 samples, is one; choose another"
    with pytest.raises(ConfigError, match=f"BatchNorm cannot train on a batch of one sample, and {last}"):
        run(model=make_norm_model, directory=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    assert run(model=make_norm_model, **{"client.batch": 9}).version == 4


def test_pictures_of_several_pixels_are_enough_for_batch_norm() -> None:
    """A batch of one 6x6 picture has 36 values in each channel."""
    layers = (nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(36, 4))
    assert run(model=lambda: nn.Sequential(*layers)).version == 4


SCRIPT = """
import hiflash
print("imported", flush=True)
found = hiflash.compare(
    methods=["fedavg", "hifl"], seeds=1, processes=2, directory="cells",
    **{"federation.clients": 20, "federation.edges": 4, "client.batch": 8, "stop.communications": 12},
)
print(len(found.results), flush=True)
"""


def test_a_script_without_a_guard_may_use_processes(tmp_path: Path) -> None:
    """A spawned process would import the script, and begin the comparison again in there."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "imported\n2\n"
    assert "Error" not in done.stderr
