"""Runs an experiment from configuration to result, in memory or in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.agents import acting_agent
from hiflash.config import Config
from hiflash.config.settings import flatten
from hiflash.data import Dataset
from hiflash.errors import Paused, RunError
from hiflash.sim.federation import Federation, build
from hiflash.sim.result import Result
from hiflash.sim.session import Goals, Hooks, Session
from hiflash.store.run_directory import RunDirectory, check_name, is_finished
from hiflash.study.arguments import check_arguments
from hiflash.study.saved import read_result
from hiflash.weights import digest, to_bytes

if TYPE_CHECKING:
    from torch import nn

__all__ = ["resume", "run"]

Progress = Callable[[dict[str, Any]], None]


def run(
    config: Config | str | Path | None = None,
    *,
    data: Dataset | Mapping[str, Any] | None = None,
    model: nn.Module | Callable[[], nn.Module] | Mapping[str, Any] | None = None,
    indices: Sequence[Any] | None = None,
    train: Callable[..., Any] | None = None,
    directory: str | Path | None = None,
    progress: Progress | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Any,
) -> Result:
    """Run one method and return its result.

    `config` is a `Config` or the path of a TOML file; `settings` override it (`method="fedavg"`,
    `cloud={"alpha": 0.5}`, `data={"name": "mnist"}`). `data` and `model` may also be your own. `train(model,
    data, context)` is your own training of a client (docs/client_algorithms.md). With a `directory`
    everything is saved there and the run can be resumed; without, nothing is written.
    `pause` is asked between events: true saves the state and raises `Paused`.
    """
    check_arguments(
        config=config,
        data=data,
        model=model,
        indices=indices,
        train=train,
        directory=directory,
        progress=progress,
        pause=pause,
    )
    if directory is not None:
        check_name(Path(directory).name)
    # `data` and `model` are sections of the configuration too.
    if isinstance(data, Mapping):
        settings["data"], data = data, None
    if isinstance(model, Mapping):
        settings["model"], model = model, None
    chosen = _config(config, settings, data, model, train)
    federation = build(chosen, data, model, indices, train)
    try:
        if directory is None:
            return _go(federation, None, progress, pause)
        folder = RunDirectory.create(Path(directory), chosen.to_toml())
        try:
            return _go(federation, folder, progress, pause)
        finally:
            folder.close()
    finally:
        federation.close()


def resume(
    directory: str | Path,
    *,
    workers: int | None = None,
    executor: str | None = None,
    ray_address: str | None = None,
    data: Dataset | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    indices: Sequence[Any] | None = None,
    train: Callable[..., Any] | None = None,
    progress: Progress | None = None,
    pause: Callable[[], bool] | None = None,
) -> Result:
    """Go on with a run that was stopped and return its result; a finished one is only read.

    Workers and executor may be others than before.
    """
    check_arguments(
        folder=directory,
        own_data=data,
        own_model=model,
        indices=indices,
        train=train,
        progress=progress,
        pause=pause,
    )
    if is_finished(Path(directory)):
        return read_result(Path(directory))
    folder = RunDirectory.open(Path(directory))
    try:
        given = {"workers": workers, "executor": executor, "ray.address": ray_address}
        overrides = {key: value for key, value in given.items() if value is not None}
        config = Config.load(folder.path / "config.toml", overrides)
        state = folder.load()
        federation = build(config, data, model, indices, train)
        try:
            return _go(federation, folder, progress, pause, state)
        finally:
            federation.close()
    finally:
        folder.close()


def _go(
    federation: Federation,
    folder: RunDirectory | None,
    progress: Progress | None,
    pause: Callable[[], bool] | None,
    state: Mapping[str, Any] | None = None,
) -> Result:
    """Run a federation to the end, from a saved state if there is one, and return its result.

    With a folder everything is saved there.
    """
    config, identity = federation.config, _identity(federation)
    hooks = Hooks(progress=progress or Hooks.progress, pause=pause or Hooks.pause)
    if folder is not None:
        hooks = replace(
            hooks,
            log=folder.log,
            checkpoint=lambda session: folder.save({"identity": identity, "session": session}),
            checkpoint_s=config.checkpoint_s,
        )
    evaluate = None if federation.pool is None else federation.pool.evaluate
    goals = Goals(config.evaluate.every, _target(config), federation.chance())
    session = Session(federation.engine(hooks.log), evaluate, goals, hooks)
    if state is not None:
        _check_identity(state["identity"], identity)
        session.restore(state["session"])
    if not session.started:
        hooks.log(0.0, "start", _edges(federation, session))
    reason = session.run()
    if reason is None:
        raise Paused(str(folder.path) if folder else None)
    result = _result(federation, session, reason, folder)
    totals = {name: value for name, value in session.engine.totals().items() if name != "virtual_s"}
    hooks.log(result.virtual_s, "stop", {"reason": reason, "digest": result.digest, **totals})
    if folder is not None:
        model = None
        if federation.pool is not None:
            model = to_bytes(result.weights, federation.start.spec)
            _draw(result, folder.path / "figure")
        folder.finish(result.to_dict(), model)
    return result


def _identity(federation: Federation) -> dict[str, Any]:
    """Return what must be the same when a run goes on."""
    return {
        "config": federation.config.digest(),
        "data": "none" if federation.data is None else federation.data.digest(),
        "parameters": federation.start.spec.size,
        "trainer": federation.trainer,
    }


def _check_identity(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name, value in now.items():
        if saved[name] != value:
            raise RunError(
                f"the run was begun with {name} {saved[name]} and cannot go on with {value}; "
                f"use the same {name}, or start a new run"
            )


def _result(federation: Federation, session: Session, reason: str, folder: RunDirectory | None) -> Result:
    config, engine = federation.config, session.engine
    last = session.evaluations[-1] if session.evaluations else {"accuracy": None, "loss": None}
    edges, agent = _edges(federation, session), acting_agent(config)
    return Result(
        name=folder.path.name if folder else f"{config.method}-s{config.seed}",
        method=config.method,
        data=config.data.name if federation.data is None else federation.data.name,
        partition=federation.population.split.name,
        model=federation.model_name,
        seed=config.seed,
        config_digest=config.digest(),
        digest=digest(engine.weights),
        trainer=federation.trainer,
        stop_reason=reason,
        stop_target=None if config.stop.target == "none" else config.stop.target,
        parameters=federation.parameters,
        version=engine.version,
        total_js=sum(edges["js_per_edge"]) if edges["js_per_edge"] else None,
        **edges,
        sample_overlap=federation.population.split.overlap,
        accuracy=last["accuracy"],
        best_accuracy=max((row["accuracy"] for row in session.evaluations), default=None),
        loss=last["loss"],
        evaluations=session.evaluations,
        targets=session.targets,
        targets_stable=session.targets_stable,
        wall_s=session.wall_s,
        warnings=session.warnings(),
        agent=None if agent is None else agent.digest,
        path=folder.path if folder else None,
        weights=engine.weights,
        **engine.totals(),
        **engine.figures(),
    )


def _edges(federation: Federation, session: Session) -> dict[str, Any]:
    """Return what there is to know of every edge at any time."""
    engine, flat = session.engine, federation.config.federation.flat
    return {
        "cluster_sizes": [len(cluster) for cluster in engine.clusters],
        # Clients are no edges: a sum over them cannot be compared with one over edges (decision 33).
        "js_per_edge": [] if flat else federation.population.js_per_edge(engine.clusters),
        **engine.edges_ms(),
    }


def _config(
    config: Config | str | Path | None,
    settings: dict[str, Any],
    data: Dataset | None,
    model: object,
    train: object,
) -> Config:
    own = {"data.name": data, "model.name": model, "client.function": train}
    settings = {**flatten(settings), **{key: "own" for key, value in own.items() if value is not None}}
    if train is not None:
        settings = {"client.algorithm": "function", **settings}
    return config.with_settings(settings) if isinstance(config, Config) else Config.load(config, settings)


def _target(config: Config) -> float | None:
    """Return the accuracy that ends a run; a centralized one takes all its steps, to show the level."""
    if config.stop.target == "none" or config.cloud.schedule == "centralized":
        return None
    return config.stop.target


def _draw(result: Result, stem: Path) -> None:
    from hiflash.report.figures import draw_run

    draw_run(result.to_dict(), stem)
