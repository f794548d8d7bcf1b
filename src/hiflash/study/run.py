"""Runs an experiment from configuration to result, in memory or in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.data import Dataset
from hiflash.data.federation import FederationData, is_remembered, remember
from hiflash.errors import ConfigError, Paused, RunError
from hiflash.sim.federation import Federation, build
from hiflash.sim.made_by import makers
from hiflash.sim.observer import Audience, RunInfo
from hiflash.sim.outcome import edges_of, goals_of, result_of
from hiflash.sim.result import Result
from hiflash.sim.session import Hooks, Session
from hiflash.store.run_directory import RunDirectory, check_name, is_finished
from hiflash.study.arguments import check_arguments
from hiflash.study.observers import Observers, audience_of
from hiflash.study.saved import read_result, replay
from hiflash.weights import to_bytes

if TYPE_CHECKING:
    from torch import nn

    from hiflash.config.typed import DataSettings, FederationSettings, ModelSettings, Settings

__all__ = ["draw_result", "resume", "run"]


def run(
    config: Config | str | Path | None = None,
    *,
    data: Dataset | DataSettings | Mapping[str, Any] | None = None,
    model: nn.Module | Callable[[], nn.Module] | ModelSettings | Mapping[str, Any] | None = None,
    federation: FederationData | FederationSettings | Mapping[str, Any] | None = None,
    indices: Sequence[Any] | None = None,
    train: Callable[..., Any] | None = None,
    directory: str | Path | None = None,
    observers: Observers | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Unpack[Settings],
) -> Result:
    """Run one method and return its result.

    `config` is a `Config` or the path of a TOML file; `settings` override it (`method="fedavg"`,
    `cloud={"alpha": 0.5}`, `data={"name": "mnist"}`). `data`, `model` and `federation` may also be your own.
    `train(model, data, context)` is your own training of a client (docs/client_algorithms.md). With a
    `directory` everything is saved there and the run can be resumed; without, nothing is written.
    `observers` follow the run: objects of your own, or names of trackers. `pause` is asked between events:
    true saves the state and raises `Paused`.
    """
    check_arguments(
        config=config,
        data=data,
        model=model,
        federation=federation,
        indices=indices,
        train=train,
        directory=directory,
        observers=observers,
        pause=pause,
    )
    if directory is not None:
        check_name(Path(directory).name)
    # `data`, `model` and `federation` are sections of the configuration too.
    given: dict[str, Any] = {**settings}
    if isinstance(data, Mapping):
        given["data"], data = data, None
    if isinstance(model, Mapping):
        given["model"], model = model, None
    if isinstance(federation, Mapping):
        given["federation"], federation = federation, None
    chosen = _config(config, given, data, model, federation, train)
    audience = audience_of(observers)
    built = build(chosen, data, model, indices, train)
    try:
        if directory is None:
            return _go(built, None, audience, pause)
        folder = RunDirectory.create(Path(directory), chosen.to_toml())
        try:
            return _go(built, folder, audience, pause)
        finally:
            folder.close()
    finally:
        built.close()


def resume(
    directory: str | Path,
    *,
    workers: int | None = None,
    executor: str | None = None,
    ray_address: str | None = None,
    data: Dataset | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    federation: FederationData | None = None,
    indices: Sequence[Any] | None = None,
    train: Callable[..., Any] | None = None,
    observers: Observers | None = None,
    pause: Callable[[], bool] | None = None,
) -> Result:
    """Go on with a run that was stopped and return its result; a finished one is only read.

    `hiflash.resume("runs/mine")`. Workers and executor may be others than before. `observers` see the whole
    run: its saved rows are read back first.
    """
    check_arguments(
        folder=directory,
        own_data=data,
        own_model=model,
        own_federation=federation,
        indices=indices,
        train=train,
        observers=observers,
        pause=pause,
    )
    if is_finished(Path(directory)):
        result = read_result(Path(directory))
        if observers:
            config = Config.load(Path(directory) / "config.toml")  # first: a plugin may bring a tracker
            replay(result, config, audience_of(observers))
        return result
    if (Path(directory) / "journal.sqlite").exists():
        raise RunError(
            f"{directory} is the state of a deployed cloud; go on with: hiflash cloud --dir {directory}"
        )
    folder = RunDirectory.open(Path(directory))
    try:
        given = {"workers": workers, "executor": executor, "ray.address": ray_address}
        overrides = {key: value for key, value in given.items() if value is not None}
        if federation is not None:
            remember(federation)
        config = Config.load(folder.path / "config.toml", overrides)
        _check_own(config, data=data, model=model, federation=federation, train=train)
        audience = audience_of(observers)
        state = folder.load()
        built = build(config, data, model, indices, train)
        try:
            return _go(built, folder, audience, pause, state)
        finally:
            built.close()
    finally:
        folder.close()


def _go(
    federation: Federation,
    folder: RunDirectory | None,
    audience: Audience,
    pause: Callable[[], bool] | None,
    state: Mapping[str, Any] | None = None,
) -> Result:
    """Run a federation to the end, from a saved state if there is one, and return its result.

    With a folder everything is saved there.
    """
    config, identity = federation.config, _identity(federation)
    made_by = makers([] if state is None else state.get("made_by", []))
    if state is not None:
        _check_identity(state["identity"], identity)
    about = RunInfo(_name(config, folder), config, folder.path if folder else None)
    hooks = Hooks(log=audience.log(about, folder.log if folder else Hooks.log), pause=pause or Hooks.pause)
    if audience:
        hooks = replace(hooks, progress=lambda status: audience.progress(about, status))
    if folder is not None:
        hooks = replace(
            hooks,
            checkpoint=lambda session: folder.save(
                {"identity": identity, "made_by": made_by, "session": session}
            ),
            checkpoint_s=config.checkpoint_s,
        )
    evaluate = None if federation.pool is None else federation.evaluate
    goals = goals_of(federation)
    session = Session(federation.engine(hooks.log), evaluate, goals, hooks)
    with audience.following(about):
        if state is not None and folder is not None:
            session.restore(state["session"])
            audience.replay(about, folder.events)
        if not session.started:
            hooks.log(0.0, "start", edges_of(federation, session.engine))
        reason = session.run()
        if reason is None:
            raise Paused(str(folder.path) if folder else None)
        result = result_of(
            federation,
            session.engine,
            session,
            name=about.name,
            reason=reason,
            wall_s=session.wall_s,
            path=about.directory,
            made_by=made_by,
        )
        totals = {name: value for name, value in session.engine.totals().items() if name != "virtual_s"}
        hooks.log(result.virtual_s, "stop", {"reason": reason, "digest": result.digest, **totals})
        if folder is not None:
            _save(federation, result, folder)
    audience.finished(about, result)
    return result


def _save(federation: Federation, result: Result, folder: RunDirectory) -> None:
    """Write the model and the figure, if anything was trained, and the result."""
    model = None
    if federation.pool is not None:
        model = to_bytes(result.weights, federation.start.spec)
        draw_result(result, folder.path)
    folder.finish(result.to_dict(), model)


def _name(config: Config, folder: RunDirectory | None) -> str:
    return folder.path.name if folder else f"{config.method}-s{config.seed}"


def _identity(federation: Federation) -> dict[str, Any]:
    """Return what must be the same when a run goes on."""
    measured = federation.population.measured
    return {
        **({} if measured is None else {"federation": measured.digest[:12]}),
        "config": federation.config.digest(),
        "data": "none" if federation.data is None else federation.data.digest(),
        "parameters": federation.start.spec.size,
        "trainer": federation.trainer,
    }


def _check_identity(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in {**now, **saved}:
        before, after = saved.get(name, "none"), now.get(name, "none")
        if before != after:
            raise RunError(
                f"the run was begun with {name} {before} and cannot go on with {after}; "
                f"use the same {name}, or start a new run"
            )


def _check_own(config: Config, **given: object) -> None:
    """Raise if a user passes data, a model, a federation or a function to a run that was begun without."""
    files = config.federation.files
    named = {
        "data": ("data.name", config.data.name, config.data.name == "own"),
        "model": ("model.name", config.model.name, config.model.name == "own"),
        "federation": ("federation.files", files, is_remembered(files)),
        "train": ("client.function", config.client.function, config.client.function == "own"),
    }
    problems = [
        f'the run was begun without {name}=... in Python ({key} is "{value}"); leave {name} out'
        for name, (key, value, own) in named.items()
        if given[name] is not None and not own
    ]
    if problems:
        raise ConfigError(problems)


def _config(
    config: Config | str | Path | None,
    settings: dict[str, Any],
    data: Dataset | None,
    model: object,
    federation: FederationData | None,
    train: object,
) -> Config:
    own = {"data.name": data, "model.name": model, "client.function": train}
    settings = {**flatten(settings), **{key: "own" for key, value in own.items() if value is not None}}
    if train is not None:
        settings = {"client.algorithm": "function", **settings}
    if federation is not None:
        settings["federation.files"] = remember(federation)
    chosen = config.with_settings(settings) if isinstance(config, Config) else Config.load(config, settings)
    if data is not None and data.task != "classification" and chosen.data.task == "auto":
        chosen = chosen.with_settings({"data.task": data.task})  # which decides whether there is a target
    return chosen


def draw_result(result: Result, folder: Path) -> None:
    """Draw the figures of a result into its folder."""
    from hiflash.report.client_figures import draw_clients, has_clients
    from hiflash.report.figures import draw_run

    numbers = result.to_dict()
    draw_run(numbers, folder / "figure")
    if has_clients(numbers):
        draw_clients(numbers, folder / "clients")
