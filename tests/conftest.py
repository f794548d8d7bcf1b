"""Fixtures that many tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash.config import Config
from hiflash.methods import plugins, registry
from tiny import TINY, make_tiny_data, make_tiny_model


@pytest.fixture(scope="session")
def tiny_data() -> hiflash.Dataset:
    return make_tiny_data()


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the drawing, which takes longer than a tiny run."""
    monkeypatch.setattr("hiflash.study.run.draw_result", lambda result, folder: None)


@pytest.fixture
def run_tiny(tiny_data: hiflash.Dataset) -> Callable[..., hiflash.Result]:
    def run(
        method: str = "hifl",
        directory: Path | None = None,
        pause: Any = None,
        observers: Any = None,
        **settings: Any,
    ) -> Any:
        settings = {**TINY, **{key.replace("__", "."): value for key, value in settings.items()}}
        if method == "hierfavg":
            settings.setdefault("edge.clients_per_round", 2)
        return hiflash.run(
            method=method,
            data=tiny_data,
            model=make_tiny_model,
            directory=directory,
            pause=pause,
            observers=observers,
            **settings,
        )

    return run


@pytest.fixture
def resume_tiny(tiny_data: hiflash.Dataset) -> Callable[..., hiflash.Result]:
    def resume(directory: Path, **more: Any) -> hiflash.Result:
        return hiflash.resume(directory, data=tiny_data, model=make_tiny_model, **more)

    return resume


@pytest.fixture
def parts_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a test registers."""
    kept = registry.snapshot()
    monkeypatch.setattr(plugins, "_loaded", set(plugins._loaded))
    yield
    registry.restore(kept)
    Config()  # whatever reads the sections of the class gets the former keys


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of the real datasets, or skip with the reason."""
    folder = os.environ.get("HIFLASH_DATA")
    if not folder:
        pytest.skip("HIFLASH_DATA is not set: the real datasets are not here")
    return Path(folder)
