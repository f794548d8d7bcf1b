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
from hiflash.methods.registry import registered, threshold_policy
from hiflash.sim.observer import Audience, Observer, RunInfo
from hiflash.sim.result import Result
from hiflash.store.files import check_writable, remedy
from hiflash.store.run_directory import check_config, check_name, clear_unbegun, is_finished
from hiflash.study.cells import Cell
from hiflash.study.observers import Observers, audience_of
from hiflash.study.run import resume, run
from hiflash.study.saved import read_result, replay
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
    observers: Observers | None = None,
    pause: Callable[[], bool] | None = None,
    own: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Return the results of all cells, in their order.

    With a `directory` every cell is saved there: calling again goes on with what was interrupted and does
    not repeat what is finished. A cell with damaged files does not keep the others from running, and is an
    error at the end. More than one process needs a `directory` and data that the configuration
    names; `own` data, models or indices, and registered methods, stay in this process. `observers` are told
    in this process, whichever process a cell runs in: rows of several cells come mixed, those of one in
    order.
    """
    audience, pause = audience_of(observers), pause or (lambda: False)
    _check_agents(cells)
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
            results = _Processes(cells, folder, processes, audience, pause, ray_address, damaged).run()
        else:
            results = {}
            for cell in damaged.others(cells):
                with damaged.noted(cell):
                    results[cell.name] = _run_here(cell, folder, audience, pause, own)
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
        clear_unbegun(path)
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


def _check_agents(cells: Sequence[Cell]) -> None:
    """Say before anything runs that an agent is missing, or is for another number of edges."""
    acting = [cell.config for cell in cells if cell.config.cloud.threshold == "agent"]
    unlike = {  # whatever decides which agent is taken, and whether it fits
        (c.cloud.agent, c.cloud.enforce, c.federation.association, c.data.name, c.units): c for c in acting
    }
    for config in unlike.values():
        threshold_policy(config)


def _info(cell: Cell, folder: Path | None) -> RunInfo:
    """Return what observers are told about a cell."""
    path = None if folder is None else folder / cell.name
    return RunInfo(cell.name, cell.config, path, cell.tags, path is not None and is_finished(path))


class _Progress(Observer):
    """Passes the progress of one cell on."""

    def __init__(self, tell: Callable[[str, Any], None]) -> None:
        self._tell = tell

    def progress(self, run: RunInfo, status: Mapping[str, Any]) -> None:
        self._tell("progress", status)


class _Rows(_Progress):
    """Passes the rows of one cell on, too: an observer that takes rows costs time."""

    def event(self, run: RunInfo, row: Mapping[str, Any]) -> None:
        self._tell("event", row)


def _run_here(
    cell: Cell,
    folder: Path | None,
    audience: Audience,
    pause: Callable[[], bool],
    own: Mapping[str, Any],
) -> Result:
    info = _info(cell, folder)

    def tell(kind: str, content: Any) -> None:
        (audience.event if kind == "event" else audience.progress)(info, content)

    passing_on = (_Rows if audience.wants_rows else _Progress)(tell)
    common: dict[str, Any] = {**own, "observers": [passing_on] if audience else [], "pause": pause}
    with audience.following(info):
        if info.directory is not None and info.directory.exists():
            common |= {"workers": cell.config.workers, "executor": cell.config.executor}
            result = resume(info.directory, **common)
        else:
            result = run(cell.config, directory=info.directory, **common)
    audience.finished(info, result)
    return result


class _Processes:
    """Runs cells in processes of their own, a few at a time, and notices when one dies."""

    def __init__(
        self,
        cells: Sequence[Cell],
        folder: Path,
        processes: int,
        audience: Audience,
        pause: Callable[[], bool],
        ray_address: str | None,
        damaged: _Damaged,
    ) -> None:
        self.ray_address = ray_address
        self.damaged = damaged
        self.waiting = damaged.others(cells)
        self.folder = folder
        self.processes = processes
        self.audience = audience
        self.pause = pause
        self.running: dict[Connection, tuple[Cell, RunInfo, BaseProcess]] = {}
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
        info = _info(cell, self.folder)
        if info.finished:
            with self.damaged.noted(cell):
                result = self.results[cell.name] = read_result(self.folder / cell.name)
                replay(result, cell.config, self.audience, cell.tags)
            return
        self.audience.started(info)
        # Not forked: a copy of a process with threads and locks is not safe.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        # Every cell has a worker per core: the last ones would leave cores idle otherwise.
        path, rows = str(info.directory), self.audience.wants_rows
        arguments = (theirs, cell.config.settings(), path, self.ray_address, rows)
        process = context.Process(target=_cell_process, args=arguments, daemon=True)
        with on_its_own():
            process.start()
        theirs.close()
        self.running[ours] = (cell, info, process)

    def _read(self, connection: Connection) -> None:
        cell, info, process = self.running[connection]
        try:
            kind, content = connection.recv()
        except EOFError:  # the other end is gone
            process.join()
            del self.running[connection]
            connection.close()
            if is_finished(self.folder / cell.name):
                self._finish(cell, info)
                return
            self.audience.stopped(info)
            if not self.problems and cell.name not in self.damaged.problems:
                self.problems.append(
                    RunError(
                        f"the process of {cell.name} died (exit code {process.exitcode}); "
                        f"{GO_ON} to go on from its last checkpoint"
                    )
                )
            return
        if kind == "progress":
            self.audience.progress(info, content)
        elif kind == "event":
            self.audience.event(info, content)
        elif kind == "damage":
            self.damaged.problems[cell.name] = content
        elif kind == "storage":  # no cell can go on without a disk
            self.problems.append(StorageError(f"{cell.name}: {content}", GO_ON))
        else:
            self.problems.append(RunError(f"{cell.name}: {content}"))

    def _finish(self, cell: Cell, info: RunInfo) -> None:
        with self.damaged.noted(cell):
            result = self.results[cell.name] = read_result(self.folder / cell.name)
            self.audience.finished(info, result)

    def _stop(self) -> None:
        """Ask what still runs to save its state, and wait for it."""
        for connection, (_, _, process) in self.running.items():
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)
            connection.close()
        for _, info, process in self.running.values():
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
            self.audience.stopped(info)
        self.running.clear()


def _cell_process(
    connection: Connection, settings: dict[str, Any], path: str, ray_address: str | None, rows: bool
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
                "observers": [(_Rows if rows else _Progress)(send)],
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
