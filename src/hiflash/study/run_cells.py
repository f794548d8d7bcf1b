"""Runs cells: begun, resumed or only read, here or in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hiflash.agents import acting_agent
from hiflash.config import Config
from hiflash.errors import ConfigError, DamageError, HiFlashError, Paused, RunError, StorageError
from hiflash.methods.registry import registered
from hiflash.sim.result import Result
from hiflash.store.files import check_writable, remedy
from hiflash.store.run_directory import check_config, check_name, is_finished
from hiflash.study.cells import Cell, Watcher
from hiflash.study.run import resume, run
from hiflash.study.saved import read_result
from hiflash.study.signals import Stopped, answered, new_pause
from hiflash.study.spawn import on_its_own

__all__ = ["check_agent", "read_cells", "run_cells"]

GO_ON = "give the same command again"
CELL_LIMIT_S = 2.5  # less than the parent has, which waits for its cells


def run_cells(
    cells: Sequence[Cell],
    *,
    directory: str | Path | None = None,
    processes: int = 1,
    watcher: Watcher | None = None,
    pause: Callable[[], bool] | None = None,
    own: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Return the results of all cells, in their order.

    With a `directory` every cell is saved there: calling again goes on with what was interrupted and does
    not repeat what is finished. A cell with damaged files does not keep the others from running, and is an
    error at the end. More than one process needs a `directory` and data that the configuration
    names; `own` data, models or indices, and registered methods, stay in this process.
    """
    watcher, pause = watcher or Watcher(), pause or (lambda: False)
    own = {name: value for name, value in (own or {}).items() if value is not None}
    folder = None if directory is None else Path(directory)
    damaged = _Damaged()
    if folder is not None:
        check_name(folder.name)
        check_writable(folder)
        for cell in cells:
            with damaged.noted(cell):
                _check_reusable(folder / cell.name, cell)
    common = cells[0].config
    wanted = common.ray.address if common.executor == "ray" else None
    with _connected_to_ray(wanted, common.workers) as ray_address:
        # Other processes know neither a user's own objects nor what was registered here.
        if processes > 1 and folder is not None and not own and not registered():
            results = _Processes(cells, folder, processes, watcher, pause, ray_address, damaged).run()
        else:
            results = {}
            for cell in damaged.others(cells):
                with damaged.noted(cell):
                    results[cell.name] = _run_here(cell, folder, watcher, pause, own)
    damaged.check()
    return [results[cell.name] for cell in cells]


class _Damaged:
    """Cells with damaged files: noted while the others run, an error at the end."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    @contextmanager
    def noted(self, cell: Cell) -> Iterator[None]:
        """Take note of damage instead of stopping everything."""
        try:
            yield
        except DamageError as error:
            self.problems[cell.name] = str(error)

    def others(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells without damage."""
        return [cell for cell in cells if cell.name not in self.problems]

    def check(self) -> None:
        """Say what is damaged and how to repeat it, if anything is."""
        if self.problems:
            told = [f"{name}: {problem}" for name, problem in self.problems.items()]
            raise DamageError("\n".join([*told, f"all other cells are finished; mend these and {GO_ON}"]))


@contextmanager
def _connected_to_ray(address: str | None, workers: int) -> Iterator[str | None]:
    """Keep a connection that runs in this process find and use, and give the address of its Ray.

    All cells share one: each for itself would start one of its own.
    """
    if address is None:
        yield None
        return
    from hiflash.execute.ray_cluster import connect

    connection = connect(address, workers or os.cpu_count() or 1)
    try:
        yield connection.address
    finally:
        connection.close()


def read_cells(cells: Sequence[Cell], folder: Path) -> list[Result]:
    """Return the results of cells that are finished, whatever has become of their agents since."""
    results, damaged = [], _Damaged()
    for cell in cells:
        with damaged.noted(cell):
            _check_settings(folder / cell.name, cell)
            results.append(read_result(folder / cell.name))
    damaged.check()
    return results


def _check_reusable(path: Path, cell: Cell) -> None:
    """Refuse a folder that holds a run of something else, and say what is different."""
    if not (path / "config.toml").is_file():
        return
    _check_settings(path, cell)
    if is_finished(path):  # found out now, not after hours of other cells
        read_result(path)
    check_agent(path, cell)
    _check_files(path, cell)


def _check_files(path: Path, cell: Cell) -> None:
    """Refuse a finished run of a federation whose files have changed since."""
    files = cell.config.federation.files
    if files and is_finished(path) and read_result(path).config_digest != cell.config.digest():
        raise RunError(
            f"{path} was run before the files of {files} changed; choose another --name or remove it"
        )


def check_agent(path: Path, cell: Cell) -> None:
    """Refuse a finished run whose thresholds another agent chose than the one that would choose them now."""
    agent = acting_agent(cell.config)
    if agent is None or not is_finished(path):  # a run that is not finished finds out when it goes on
        return
    was = read_result(path).agent or "unknown"
    if was != agent.digest:
        raise RunError(
            f"{path} was run with another agent ({was[:12]}) than {cell.config.cloud.agent} is now "
            f"({agent.digest[:12]}); choose another --name or remove it"
        )


def _check_settings(path: Path, cell: Cell) -> None:
    check_config(path)
    try:
        there = Config.load(path / "config.toml")
    except ConfigError as error:
        raise DamageError(
            f"{path / 'config.toml'} is damaged ({error.problems[0]}); remove {path} to run it again"
        ) from error
    if there.digest() == cell.config.digest():
        return
    old, new = there.decisive(), cell.config.decisive()
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    told = ", ".join(f"{key} is {old.get(key)} there and {new.get(key)} here" for key in keys[:3])
    raise RunError(
        f"{path} holds a run with other settings ({told}{', ...' if len(keys) > 3 else ''}); "
        "choose another --name or remove it"
    )


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
        result = resume(path, workers=cell.config.workers, executor=cell.config.executor, **common)
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
        damaged: _Damaged,
    ) -> None:
        self.ray_address = ray_address
        self.damaged = damaged
        self.waiting = damaged.others(cells)
        self.folder = folder
        self.processes = processes
        self.watcher = watcher
        self.pause = pause
        self.running: dict[Connection, tuple[Cell, BaseProcess]] = {}
        self.results: dict[str, Result] = {}
        self.problems: list[RunError] = []

    def run(self) -> dict[str, Result]:
        """Return the results of the cells by name."""
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
            raise self.problems[0]
        return self.results

    def _start(self, cell: Cell) -> None:
        path = self.folder / cell.name
        if is_finished(path):
            self._finish(cell)
            return
        # Not forked: a copy of a process with threads and locks is not safe.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        # Every cell has a worker per core: the last ones would leave cores idle otherwise.
        arguments = (theirs, cell.config.settings(), str(path), self.ray_address)
        process = context.Process(target=_cell_process, args=arguments, daemon=True)
        with on_its_own():
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
            if is_finished(self.folder / cell.name):
                self._finish(cell)
            elif not self.problems and cell.name not in self.damaged.problems:
                self.problems.append(
                    RunError(
                        f"the process of {cell.name} died (exit code {process.exitcode}); "
                        f"{GO_ON} to go on from its last checkpoint"
                    )
                )
            return
        if kind == "progress":
            self.watcher.progress(cell.name, content)
        elif kind == "damage":
            self.damaged.problems[cell.name] = content
        elif kind == "storage":  # no cell can go on without a disk
            self.problems.append(StorageError(f"{cell.name}: {content}", GO_ON))
        else:
            self.problems.append(RunError(f"{cell.name}: {content}"))

    def _finish(self, cell: Cell) -> None:
        with self.damaged.noted(cell):
            result = self.results[cell.name] = read_result(self.folder / cell.name)
            self.watcher.finished(cell.name, result.to_dict())

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
    alone = False

    def send(kind: str, content: object) -> None:
        nonlocal alone
        try:
            connection.send((kind, content))
        except OSError:
            alone = True

    try:
        with answered(CELL_LIMIT_S, ""), _connected_to_ray(ray_address, settings["workers"]):
            asked = new_pause()
            common: dict[str, Any] = {
                "progress": lambda status: send("progress", status),
                "pause": lambda: asked() or alone,
            }
            if Path(path).exists():
                resume(path, workers=settings["workers"], executor=settings["executor"], **common)
            else:
                run(Config.load(None, settings), directory=path, **common)
    except (Paused, Stopped):
        pass
    except DamageError as error:
        send("damage", str(error))
    except StorageError as error:
        send("storage", error.what)
    except HiFlashError as error:
        send("error", str(error))
    except OSError as error:
        if remedy(error) is None:
            raise
        send("storage", f"{error}; {remedy(error)}")
