"""Several methods over several seeds with the same data and budget, side by side."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hiflash.config import Config, inapplicable
from hiflash.core.methods import METHODS
from hiflash.errors import ConfigError, HiFlashError, Paused, RunError
from hiflash.experiment import resume, run
from hiflash.result import Result
from hiflash.settings import flatten, read_toml
from hiflash.store.run_directory import RunDirectory, check_name

__all__ = ["Cell", "Comparison", "Watcher", "compare", "plan"]


@dataclass(frozen=True)
class Cell:
    """One run of a comparison."""

    name: str
    config: Config


@dataclass(frozen=True)
class Comparison:
    """The results of a comparison, method by method and seed by seed."""

    results: list[Result]
    path: Path | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per method with means and standard deviations over the seeds."""
        from hiflash.report.tables import plain_rows

        return plain_rows([result.to_dict() for result in self.results])

    def save(self, directory: Path) -> list[Path]:
        """Write the table as CSV and the figure as PNG and PDF, and return their paths."""
        from hiflash.report.figures import draw_compare
        from hiflash.report.tables import write_csv

        numbers = [result.to_dict() for result in self.results]
        write_csv(numbers, directory / "compare.csv")
        return [directory / "compare.csv", *draw_compare(numbers, directory / "compare")]


class Watcher:
    """What a comparison tells while it runs; the live view is one."""

    def started(self, cell: str) -> None:
        """Take note that a cell runs."""

    def progress(self, cell: str, progress: Mapping[str, Any]) -> None:
        """Take note of how far a cell is."""

    def finished(self, cell: str, result: Mapping[str, Any]) -> None:
        """Take note of a cell's result."""


def compare(
    config: str | Path | None = None,
    *,
    methods: Sequence[str],
    seeds: int | Sequence[int] = 2,
    directory: str | Path | None = None,
    processes: int = 1,
    watcher: Watcher | None = None,
    pause: Callable[[], bool] | None = None,
    data: Any = None,
    model: Any = None,
    parts: Sequence[Any] | None = None,
    **settings: Any,
) -> Comparison:
    """Run every method with every seed and return all results.

    A setting that does not apply to a method is left out for it. With a `directory` every cell is saved
    there: calling again goes on with what was interrupted and does not repeat what is finished. More
    than one process needs a `directory` and data that the configuration names.
    """
    # `data` and `model` are sections of the configuration too.
    if isinstance(data, Mapping):
        settings["data"], data = data, None
    if isinstance(model, Mapping):
        settings["model"], model = model, None
    if data is not None:
        settings = {**settings, "data.name": "own"}
    if model is not None:
        settings = {**settings, "model.name": "own"}
    cells = plan(config, methods, seeds, settings)
    watcher, pause = watcher or Watcher(), pause or (lambda: False)
    own = {"data": data, "model": model, "parts": parts}
    folder = None if directory is None else Path(directory)
    if folder is not None:
        check_name(folder.name)
        for cell in cells:
            _check_reusable(folder / cell.name, cell)
    common = cells[0].config
    wanted = common.ray.address if common.engine == "ray" else None
    with _connected_to_ray(wanted, common.workers) as ray_address:
        if processes > 1 and folder is not None and not any(value is not None for value in own.values()):
            results = _Processes(cells, folder, processes, watcher, pause, ray_address).run()
        else:
            results = [_run_here(cell, folder, watcher, pause, own) for cell in cells]
    return Comparison(results, folder)


def plan(
    config: str | Path | None, methods: Sequence[str], seeds: int | Sequence[int], settings: Mapping[str, Any]
) -> list[Cell]:
    """Return the cells of a comparison, or everything that is wrong with it."""
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not methods:
        raise ConfigError(f"methods must be some of {', '.join(METHODS)}, got {', '.join(unknown) or 'none'}")
    given = {**(flatten(read_toml(Path(config))) if config else {}), **flatten(settings)}
    for name in ("method", "seed"):
        if name in given:
            raise ConfigError(f"{name} is not for a comparison; use methods and seeds")
    useless = set(given).intersection(*(inapplicable(method, given) for method in methods))
    if useless:
        raise ConfigError(
            [f"{key} applies to none of {', '.join(methods)}; leave it out" for key in sorted(useless)]
        )
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    if not numbers:
        raise ConfigError(f"seeds must be a whole number >= 1 or a list of seeds, got {seeds}")
    cells, problems = [], {}
    for method in dict.fromkeys(methods):
        left_out = inapplicable(method, given)
        kept = {key: value for key, value in given.items() if key not in left_out}
        for seed in dict.fromkeys(numbers):
            try:
                cells.append(
                    Cell(f"{method}-s{seed}", Config.load(None, {**kept, "method": method, "seed": seed}))
                )
            except ConfigError as error:
                problems.update(dict.fromkeys(error.problems))
    if problems:
        raise ConfigError(list(problems))
    return cells


@contextmanager
def _connected_to_ray(address: str | None, workers: int) -> Iterator[str | None]:
    """Keep a connection that runs in this process find and use, and give the address of its Ray.

    All cells share one: each for itself would start one of its own.
    """
    if address is None:
        yield None
        return
    from hiflash.engine.ray_cluster import connect

    connection = connect(address, workers or os.cpu_count() or 1)
    try:
        yield connection.address
    finally:
        connection.close()


def _check_reusable(path: Path, cell: Cell) -> None:
    """Refuse a folder that holds a run of something else."""
    if (path / "config.toml").is_file() and Config.load(
        path / "config.toml"
    ).digest() != cell.config.digest():
        raise RunError(f"{path} holds a run with other settings; choose another --name or remove it")


def _run_here(
    cell: Cell,
    folder: Path | None,
    watcher: Watcher,
    pause: Callable[[], bool],
    own: Mapping[str, Any],
) -> Result:
    watcher.started(cell.name)
    common: dict[str, Any] = {
        **own,
        "progress": lambda status: watcher.progress(cell.name, status),
        "pause": pause,
    }
    path = None if folder is None else folder / cell.name
    if path is not None and path.exists():
        result = resume(path, engine=cell.config.engine, **common)
    else:
        result = run(cell.config, directory=path, **common)
    watcher.finished(cell.name, result.to_dict())
    return result


class _Processes:
    """Runs cells in processes of their own, a few at a time, and notices when one dies."""

    def __init__(
        self,
        cells: Sequence[Cell],
        folder: Path,
        processes: int,
        watcher: Watcher,
        pause: Callable[[], bool],
        ray_address: str | None,
    ) -> None:
        self.ray_address = ray_address
        self.waiting = list(cells)
        self.cells = list(cells)
        self.folder = folder
        self.processes = processes
        self.watcher = watcher
        self.pause = pause
        self.running: dict[Connection, tuple[Cell, BaseProcess]] = {}
        self.results: dict[str, Result] = {}
        self.problems: list[str] = []

    def run(self) -> list[Result]:
        """Return the results in the order of the cells."""
        try:
            while (self.waiting or self.running) and not self.problems:
                if self.pause():
                    raise Paused(str(self.folder))
                while self.waiting and len(self.running) < self.processes:
                    self._start(self.waiting.pop(0))
                for ready in wait(list(self.running), timeout=0.2):
                    self._read(ready)  # type: ignore[arg-type]  # only connections are waited for
        finally:
            self._stop()
        if self.problems:
            raise RunError("\n".join(self.problems))
        return [self.results[cell.name] for cell in self.cells]

    def _start(self, cell: Cell) -> None:
        path = self.folder / cell.name
        if (path / "result.json").is_file():
            self._finish(cell)
            return
        # Not forked: a copy of a process with threads and locks is not safe.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        # Every cell has a worker per core: the last ones would leave cores idle otherwise.
        arguments = (theirs, cell.config.settings(), str(path), self.ray_address)
        process = context.Process(target=_cell_process, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self.running[ours] = (cell, process)
        self.watcher.started(cell.name)

    def _read(self, connection: Connection) -> None:
        cell, process = self.running[connection]
        try:
            kind, content = connection.recv()
        except EOFError:  # the other end is gone
            process.join()
            del self.running[connection]
            connection.close()
            if (self.folder / cell.name / "result.json").is_file():
                self._finish(cell)
            elif not self.problems:
                self.problems.append(
                    f"the process of {cell.name} died (exit code {process.exitcode}); "
                    "give the same command again to go on from its last checkpoint"
                )
            return
        if kind == "progress":
            self.watcher.progress(cell.name, content)
        else:
            self.problems.append(f"{cell.name}: {content}")

    def _finish(self, cell: Cell) -> None:
        folder = RunDirectory.open(self.folder / cell.name)
        try:
            numbers = folder.result()
        finally:
            folder.close()
        self.results[cell.name] = Result.from_dict(numbers, path=folder.path)
        self.watcher.finished(cell.name, numbers)

    def _stop(self) -> None:
        """Ask what still runs to save its state, and wait for it."""
        for connection, (_, process) in self.running.items():
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)
            connection.close()
        for _, process in self.running.values():
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
        self.running.clear()


def _cell_process(
    connection: Connection, settings: dict[str, Any], path: str, ray_address: str | None
) -> None:
    """Run one cell and tell the parent; a signal, or a parent that is gone, saves the state and ends it."""
    stop = False

    def ask_to_stop(*_: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGINT, ask_to_stop)
    signal.signal(signal.SIGTERM, ask_to_stop)

    def send(kind: str, content: object) -> None:
        try:
            connection.send((kind, content))
        except OSError:
            ask_to_stop()

    common: dict[str, Any] = {"progress": lambda status: send("progress", status), "pause": lambda: stop}
    try:
        with _connected_to_ray(ray_address, settings["workers"]):
            if Path(path).exists():
                resume(path, workers=settings["workers"], engine=settings["engine"], **common)
            else:
                run(Config.load(None, settings), directory=path, **common)
    except Paused:
        pass
    except HiFlashError as error:
        send("error", str(error))
