"""Checks what a user's program passes to `run`, `compare` and the other public calls.

A wrong argument is said to be wrong here, with the right form beside it, instead of failing far below. What
a user's own function raises is not touched.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from hiflash.config import Config
from hiflash.data import Dataset
from hiflash.data.federation import FederationData
from hiflash.errors import ConfigError
from hiflash.sim.observer import Observer
from hiflash.study.cells import MOST_CELLS

__all__ = ["check_arguments"]

NEEDED = ("folder", "processes", "fit_seeds", "check_seeds", "episodes", "network", "surrogate", "fidelity",
          "dynamics", "reward", "lambdas", "dataset")  # fmt: skip
CALLED = {"file": "config", "folder": "directory", "own_data": "data", "own_model": "model",
          "own_federation": "federation", "lambdas": "sweep", "dataset": "name",
          "dynamics_list": "dynamics"}  # fmt: skip
MOST_LAMBDA = 1e9
MOST_ROUNDS = 1e9
PLAIN = (str, bytes, int, float, type(None))


def check_arguments(**arguments: Any) -> None:
    """Raise with everything that is wrong with these arguments; None stands for one that is not given."""
    problems = []
    for name, value in arguments.items():
        said = None if value is None and name not in NEEDED else CHECKS[name](value)
        if said is not None:
            problems.append(f"{CALLED.get(name, name)} {said}, got {_shown(value)}")
    if problems:
        raise ConfigError(problems)


def _config(value: object) -> str | None:
    said = _file(value)
    return None if isinstance(value, Config) or said is None else said.replace("be the", "be a Config or the")


def _file(value: object) -> str | None:
    if isinstance(value, Mapping):
        return "must be the path of a TOML file; settings are keywords, like method='hifl' or **settings"
    return None if _is_path(value) else "must be the path of a TOML file; settings are keywords"


def _directory(value: object) -> str | None:
    return None if _is_path(value) else 'must be the path of a folder, like "runs/mine"'


def _data(value: object) -> str | None:
    if isinstance(value, Dataset | Mapping):
        return None
    if isinstance(value, str):
        return f'must be a Dataset or a section of settings; a dataset by name is data={{"name": "{value}"}}'
    if hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, tuple | list):
        return "must be a Dataset; Dataset.from_torch and Dataset.from_arrays make one of your own data"
    return "must be a Dataset or a section of settings; Dataset.from_arrays(x, y) makes one of arrays"


def _own_data(value: object) -> str | None:
    return None if isinstance(value, Dataset) else "must be the Dataset that the run was begun with"


def _model(value: object) -> str | None:
    if isinstance(value, Mapping):
        return None
    if isinstance(value, str):
        return f'must be a torch module or what makes one; a model by name is model={{"name": "{value}"}}'
    return _own_model(value)


def _own_model(value: object) -> str | None:
    if not callable(value):
        return "must be a torch module, or a function without arguments that returns one"
    if hasattr(value, "named_parameters") and not isinstance(value, type):
        return None  # a module: it is copied and not called
    try:
        inspect.signature(value).bind()
    except TypeError as error:
        return f"must need no arguments, or be a torch module ({error}); a lambda can give them"
    except ValueError:  # a builtin does not say what it takes
        return None
    return None


def _federation(value: object) -> str | None:
    if isinstance(value, FederationData | Mapping):
        return None
    if _is_path(value):
        return f'must be a FederationData or settings; a folder is federation={{"files": "{value}"}}'
    return "must be a FederationData or a section of settings; FederationData(latency_ms=...) takes arrays"


def _own_federation(value: object) -> str | None:
    own = isinstance(value, FederationData)
    return None if own else "must be the FederationData that the run was begun with"


def _indices(value: object) -> str | None:
    lists = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    return None if lists else "must be a list with the sample indices of every client, [[0, 5], [3, 4], ...]"


def _train(value: object) -> str | None:
    if not callable(value):
        return "must be a function train(model, data, context)"
    try:
        inspect.signature(value).bind(None, None, None)
    except TypeError as error:
        return f"must take three arguments, train(model, data, context) ({error})"
    except ValueError:  # a builtin does not say what it takes
        return None
    return None


def _function(value: object) -> str | None:
    return None if callable(value) else "must be a function"


def _processes(value: object) -> str | None:
    return None if _is_whole(value) and 1 <= value <= 1024 else "must be a whole number in 1..1024"


def _observers(value: object) -> str | None:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if all(isinstance(each, Observer | str) for each in value):
            return None
        kind = next(each for each in value if not isinstance(each, Observer | str))
        if isinstance(kind, type) and issubclass(kind, Observer):
            return f"must be a list of objects, like [{kind.__name__}()]"
    return 'must be a list of hiflash.Observer objects and names of trackers, like [Mine(), "csv"]'


def _seeds(value: object) -> str | None:
    if _is_whole(value):
        return None if 1 <= value <= MOST_CELLS else f"must be in 1..{MOST_CELLS}, or a list of seeds"
    if _seed_list(value) is None:
        return None
    return "must be a whole number >= 1 or a list of seeds, like 3 or [0, 1, 2]"


def _seed_list(value: object) -> str | None:
    if isinstance(value, Sequence) and 1 <= len(value) <= MOST_CELLS and all(map(_is_whole, value)):
        return None
    return "must be a list of seeds, like [0, 1, 2]"


def _choice_seeds(value: object) -> str | None:
    none = isinstance(value, Sequence) and not isinstance(value, str | bytes) and not len(value)
    return None if none else _seed_list(value)


def _names(value: object) -> str | None:
    if isinstance(value, str):  # with commas
        return None
    if isinstance(value, Sequence) and all(isinstance(name, str) for name in value):
        return None
    return "must be a list of names"


def _name(value: object) -> str | None:
    return None if isinstance(value, str) else "must be a name"


def _episodes(value: object) -> str | None:
    return None if _is_whole(value) else "must be a whole number, like 150"


def _surrogate(value: object) -> str | None:
    if hasattr(value, "to_dict") and not isinstance(value, type):
        return None
    return None if _is_path(value) else 'must be "auto", a file of hiflash calibrate, or its Surrogate'


def _agent(value: object) -> str | None:
    if isinstance(value, Mapping):
        named = all(isinstance(key, str) and isinstance(agent, str) for key, agent in value.items())
        return None if named else 'must be agents by condition, like {"aware": "mine.safetensors"}'
    return None if isinstance(value, str) else 'must be the name or file of an agent, like "auto"'


def _lambdas(value: object) -> str | None:
    if isinstance(value, str):
        return None
    numbers = isinstance(value, Sequence) and all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each <= MOST_LAMBDA
        for each in value
    )
    return None if numbers else 'must be numbers from 0 to 1e9, like [0, 50, 100] or "0,50,...,1000"'


def _mirror(value: object) -> str | None:
    return None if isinstance(value, str) else 'must be a base URL, like "https://example.org/mnist/"'


def _variants(value: object) -> str | None:
    sections = isinstance(value, Mapping) and all(
        isinstance(label, str) and isinstance(section, Mapping) and isinstance(section.get("method"), str)
        for label, section in value.items()
    )
    return None if sections else 'must be settings by label, like {"mine": {"method": "hifl", ...}}'


def _grid(value: object) -> str | None:
    named = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    return None if named else 'must be values by setting, like {"cloud.alpha": [0.5, 0.7]}'


def _by(value: object) -> str | None:
    return None if isinstance(value, str) else 'must be the name of a metric, like "communications"'


def _rounds(value: object) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST_ROUNDS
    return None if number else "must be FedAvg's rounds to the target, a number above 0 and up to 1e9"


def _measured(value: object) -> str | None:
    several = isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(_is_path, value))
    return None if several or _is_path(value) else 'must be folders of FedAvg runs, like "runs/fedavg"'


CHECKS: dict[str, Callable[[Any], str | None]] = {
    "config": _config,
    "file": _file,
    "directory": _directory,
    "folder": _directory,
    "data": _data,
    "own_data": _own_data,
    "model": _model,
    "own_model": _own_model,
    "federation": _federation,
    "own_federation": _own_federation,
    "indices": _indices,
    "train": _train,
    "progress": _function,
    "pause": _function,
    "processes": _processes,
    "observers": _observers,
    "seeds": _seeds,
    "fit_seeds": _seed_list,
    "check_seeds": _seed_list,
    "methods": _names,
    "partitions": _names,
    "check_policies": _names,
    "policies": _names,
    "associations": _names,
    "enforce": _names,
    "dynamics_list": _names,
    "strategies": _names,
    "choice_seeds": _choice_seeds,
    "episodes": _episodes,
    "network": _name,
    "fidelity": _name,
    "dynamics": _name,
    "reward": _name,
    "surrogate": _surrogate,
    "agent": _agent,
    "lambdas": _lambdas,
    "dataset": _name,
    "mirror": _mirror,
    "variants": _variants,
    "grid": _grid,
    "by": _by,
    "rounds": _rounds,
    "measured": _measured,
}


def _is_path(value: object) -> bool:
    """Return whether this can be a path; bytes and nothing cannot, and no name holds a zero."""
    if not isinstance(value, str | os.PathLike):
        return False
    path = os.fspath(value)
    return isinstance(path, str) and path != "" and "\0" not in path


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """Return a value in few words: an array or a model would fill the screen."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    few = isinstance(value, list | tuple | dict | set) and len(value) <= 5
    text = repr(value) if few or isinstance(value, PLAIN) else ""
    return text if 0 < len(text) <= 60 else type(value).__name__
