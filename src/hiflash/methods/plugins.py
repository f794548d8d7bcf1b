"""Plugins: modules that register parts of the user when they are imported.

A plugin is the name of a module, or the path of a Python file. Packages may also declare plugins in the entry
point group `hiflash.plugins`; these are loaded when names or keys are first needed.

The module of a training function (`client.function`) is found and imported in the same way.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hiflash.errors import ConfigError, HiFlashError
from hiflash.methods.registry import loading_plugin

__all__ = ["GROUP", "function_from_anywhere", "import_function", "load_plugins"]

GROUP = "hiflash.plugins"


def load_plugins(names: Iterable[str] = ()) -> list[str]:
    """Load the installed plugins and these, and return names that mean the same in any folder.

    A plugin is loaded once, however often it is named.
    """
    if GROUP not in _loaded:
        _loaded.add(GROUP)  # before loading: a plugin may ask for names itself
        try:
            for entry in entry_points(group=GROUP):
                name = f"plugin {entry.value} ({GROUP} of an installed package)"
                _load_once(name, entry.value, entry.load)
        except ConfigError:
            _loaded.discard(GROUP)
            raise
    return list(dict.fromkeys(_load("plugin", name) for name in names))


def function_from_anywhere(name: str) -> str:
    """Return a name that means the same function in any folder; one without a module stays as it is."""
    module, _, attribute = name.rpartition(":")
    return f"{_locate('client.function:', module)}:{attribute}" if module else name


def import_function(name: str, key: str = "client.function") -> Callable[..., Any]:
    """Return the function that "package.module:name" or "file.py:name" names; `key` says where, in errors."""
    module, _, attribute = name.rpartition(":")
    if not module or not attribute:
        raise ConfigError(f'{key} must be "package.module:name" or "file.py:name", got "{name}"')
    place = _load(f"{key}:", module)
    loaded = sys.modules[_place_in_package(Path(place))[1] if _is_file(place) else place]
    function = getattr(loaded, attribute, None)
    if function is None:
        raise ConfigError(f"{key}: {module} has no {attribute}")
    if not callable(function):
        raise ConfigError(f"{key} = {name} must be a function, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]


_loaded: set[str] = set()


def _load(what: str, name: str) -> str:
    place = _locate(what, name)
    if _is_file(place):
        _load_once(f"{what} {name}", place, lambda: _import_file(Path(place)))
    else:
        _load_once(f"{what} {name}", place, lambda: _import_module(place))
    return place


def _load_once(what: str, place: str, load: Callable[[], object]) -> None:
    """Load a plugin unless that is done; if it raises, everything that it registered is forgotten."""
    if place in _loaded:
        return
    try:
        with loading_plugin(place):
            load()
    except HiFlashError as error:
        raise ConfigError(f"{what}: {error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".rstrip(": ") + _line(error)
        raise ConfigError(f"{what} cannot be loaded: {reason}; mend it or leave it out") from error
    _loaded.add(place)


def _locate(what: str, name: str) -> str:
    """Return the absolute path of a plugin's file, or the name of a module that is not in this folder."""
    if name.endswith(".py") or "/" in name:
        return str(Path(name).expanduser().resolve())
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
        raise ConfigError(f"{what} {name!r} is neither a module nor the path of a .py file")
    here = Path.cwd().joinpath(*name.split("."))
    for path in (here.with_name(f"{here.name}.py"), here / "__init__.py"):
        if path.is_file():
            return str(path.resolve())
    return name


def _is_file(place: str) -> bool:
    return Path(place).is_absolute()


def _import_module(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the plugin imports is missing
        raise ConfigError(
            f"there is no such module in {Path.cwd()} or among the installed ones; give the path of its file"
        ) from None


def _import_file(path: Path) -> None:
    """Import a file: a module of a package by its name there, any other file by a name of its own."""
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"{path} is not a Python file; give the path of a .py file, or a module")
    root, name = _place_in_package(path)
    if str(root) not in sys.path:
        sys.path.append(str(root))  # a plugin may import its neighbours
    if root != path.parent:
        found = getattr(importlib.import_module(name), "__file__", None)
        if found is None or Path(found).resolve() != path:
            raise ImportError(f"the module {name} is {found} already; rename one of them")
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _place_in_package(path: Path) -> tuple[Path, str]:
    """Return the folder from which a file is imported, and the name that its module has."""
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if root != path.parent:
        return root, ".".join(parts).removesuffix(".__init__")
    # The same name in every process: parts that travel to other processes are looked up by it.
    return root, f"hiflash_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _line(error: BaseException) -> str:
    """Return the line of the user's file that raised."""
    if isinstance(error, SyntaxError):  # says it itself
        return ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _is_users(file: str) -> bool:
    return not file.startswith("<") and not Path(file).is_relative_to(Path(__file__).parents[1])
