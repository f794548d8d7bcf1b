"""Who may import whom, and what no module may do with data that comes from outside (DESIGN 2, R9)."""

import ast
import sys
from pathlib import Path

import pytest

import hiflash

SOURCE = Path(hiflash.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

CORE_MAY_IMPORT = {"messages", "weights", "seeding", "errors", "core"}
MAY_WIRE = {"hiflash", "hiflash.cli.run", "hiflash.running"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def name_of(path: Path) -> str:
    parts = ["hiflash", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Return the absolute names of everything a module imports, wherever in it."""
    found = set()
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*anchor, *([node.module] if node.module else [])])
            found.add(base)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def problems(source: str) -> list[str]:
    """Return what a module does that could run code hidden in data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
                found.append(str(node.module))
            if node.module == "torch" and any(alias.name == "load" for alias in node.names):
                found.append("from torch import load")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in FORBIDDEN_CALLS or called.startswith("builtins."):
                found.append(called)
            if called in ("torch.load", "torch.jit.load", "torch.hub.load", "yaml.load", "yaml.unsafe_load"):
                found.append(called)
            for keyword in node.keywords:
                off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg == "allow_pickle" and not off:
                    found.append(f"{called}(allow_pickle=...)")
                if keyword.arg == "shell" and not off:
                    found.append(f"{called}(shell=...)")
    return found


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=name_of)
def test_the_core_imports_only_numpy_the_standard_library_and_the_vocabulary(path):
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "hiflash":
            assert rest, f"{name_of(path)} imports the package itself"
            assert rest[0] in CORE_MAY_IMPORT, f"{name_of(path)} imports {name}"
        else:
            assert top == "numpy" or top in sys.stdlib_module_names, f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("module", ["messages", "weights", "seeding", "errors"])
def test_the_vocabulary_does_not_import_the_rest_of_the_package(module):
    own = {name.split(".")[1] for name in imports(SOURCE / f"{module}.py") if name.startswith("hiflash.")}
    assert own <= {"messages", "errors"}


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=name_of)
def test_the_core_owns_no_clock_file_socket_thread_or_process(path):
    tops = {name.split(".")[0] for name in imports(path)}
    assert not tops & {
        "time", "datetime", "os", "io", "pathlib", "socket", "threading", "multiprocessing", "subprocess",
        "asyncio", "random", "sqlite3", "tempfile", "shutil", "concurrent",
    }  # fmt: skip
    calls = {
        ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    }
    assert not calls & {"open", "print", "input"}
    assert not any(call.startswith("np.random.") and call != "np.random.Generator" for call in calls)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_runs_code_from_data(path):
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "eval('1')",
        "exec('1')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nflag = True\nnp.load('x', allow_pickle=flag)",
        "def f():\n    import dill",
    ],
)
def test_the_check_sees_what_it_should(source):
    assert problems(source)


def test_the_check_allows_what_is_harmless():
    assert (
        problems("import numpy as np\nnp.load('x', allow_pickle=False)\nmodel.eval()\nmodel.load('x')") == []
    )


def test_only_the_command_line_and_sweeps_import_the_wiring():
    importers = {
        name_of(path)
        for path in MODULES
        if any(n == "hiflash.experiment" or n.startswith("hiflash.experiment.") for n in imports(path))
    }
    assert importers <= MAY_WIRE


def test_torch_and_gymnasium_are_imported_at_import_time_only_where_learning_happens():
    """`hiflash --help` must answer at once: elsewhere they are imported where they are used."""
    heavy = {"torch", "gymnasium"}
    for path in MODULES:
        if path.is_relative_to(SOURCE / "learn"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                assert not any(a.name.split(".")[0] in heavy for a in node.names), name_of(path)
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in heavy, name_of(path)
