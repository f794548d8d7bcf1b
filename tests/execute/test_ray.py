"""The executor `ray`. A Ray is only started in a network namespace, which nobody else can reach."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hiflash
import ray_scenarios
from hiflash import Config
from hiflash.errors import ConfigError
from hiflash.train.native.build import cache_folder

SECONDS = 560  # on a very busy machine
SOURCES = (ray_scenarios.__file__, str(Path(hiflash.__file__).parent))  # not what else may be installed


@pytest.fixture(scope="module")
def unshare() -> list[str]:
    """Return what runs a command without a network, or skip with the reason."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'hiflash[ray]'")
    command = ["unshare", "--map-root-user", "--net"]
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=20, check=False)
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")
    if tried.returncode:
        pytest.skip(f"network namespaces are not permitted here: {tried.stderr.strip()}")
    return command


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """Return a folder with a name that is short enough for the sockets in it."""
    folder = tempfile.mkdtemp(prefix="hf", dir="/tmp")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 40)
@pytest.mark.parametrize("scenario", ["one_node", "two_nodes", "comparison"])
def test_a_run_on_ray_is_that_of_local_workers(
    scenario: str, unshare: list[str], ray_folder: str, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "HOME": str(tmp_path / "home"),  # Ray keeps its token there
        "HIFLASH_CACHE": str(cache_folder().parent),
        "PYTHONPATH": os.pathsep.join(str(Path(file).parent) for file in SOURCES),
        "RAY_TMPDIR": ray_folder,
    }
    script = [sys.executable, "-W", "error", ray_scenarios.__file__, scenario, str(tmp_path)]
    process = subprocess.Popen(
        [*unshare, *script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        note = tmp_path / "namespace"
        left = ray_scenarios.others(note.read_text()) if note.exists() else []
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert process.returncode == 0, said
    assert said.endswith("done\n")
    assert left == []


def test_the_executor_does_not_change_the_digest_of_a_configuration() -> None:
    config = Config(executor="ray", ray={"address": "10.0.0.1:6379"})
    assert config.digest() == Config().digest()
    assert Config.load(None, config.settings()).ray.address == "10.0.0.1:6379"


@pytest.mark.parametrize("address", ["", "ray://x:1", "host", "host:x", "a b:1", "local;rm", 3])
def test_addresses_that_are_none_are_refused(address: Any) -> None:
    with pytest.raises(ConfigError, match=r'ray\.address must be "local", "auto" or "host:port", got'):
        Config(**{"ray.address": address})


def test_without_the_package_ray_the_way_out_is_told(
    run_tiny: Callable[..., hiflash.Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ConfigError, match=r"executor ray needs the package ray: pip install 'hiflash\[ray\]'"
    ):
        run_tiny(executor="ray", directory=tmp_path / "run")
    with pytest.raises(ConfigError, match="needs the package ray"):
        hiflash.compare(methods=["hifl"], seeds=1, executor="ray", directory=tmp_path / "cells", processes=2)
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_ray_workers_do_not_use_is_refused(run_tiny: Callable[..., hiflash.Result]) -> None:
    with pytest.raises(ConfigError, match="executor ray trains on processors, not on device cuda"):
        run_tiny(executor="ray", device="cuda")
