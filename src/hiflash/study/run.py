"""Runs an experiment from configuration to result, in memory or in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiflash.agents import acting_agent
from hiflash.config import Config
from hiflash.data import Dataset
from hiflash.errors import Paused, RunError
from hiflash.sim.federation import Federation, build
from hiflash.sim.result import Result
from hiflash.sim.session import Session
from hiflash.store.run_directory import RunDirectory, check_name
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
    directory: str | Path | None = None,
    progress: Progress | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Any,
) -> Result:
    """Run one method and return its result.

    `config` is a `Config` or the path of a TOML file; `settings` override it (`method="fedavg"`,
    `cloud={"alpha": 0.5}`, `data={"name": "mnist"}`). `data` and `model` may also be your own. With a
    `directory` everything is saved there and the run can be resumed; without, nothing is written.
    `pause` is asked between events: true saves the state and raises `Paused`.
    """
    if directory is not None:
        check_name(Path(directory).name)
    # `data` and `model` are sections of the configuration too.
    if isinstance(data, Mapping):
        settings["data"], data = data, None
    if isinstance(model, Mapping):
        settings["model"], model = model, None
    chosen = _config(config, settings, data, model)
    federation = build(chosen, data, model, indices)
    try:
        if directory is None:
            return _Run(federation, None, progress, pause).go()
        folder = RunDirectory.create(Path(directory), chosen.to_toml())
        try:
            return _Run(federation, folder, progress, pause).go()
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
    progress: Progress | None = None,
    pause: Callable[[], bool] | None = None,
) -> Result:
    """Go on with a run that was stopped and return its result; a finished one is only read.

    Workers and executor may be others than before.
    """
    folder = RunDirectory.open(Path(directory))
    try:
        if folder.finished:
            return Result.from_dict(folder.result(), path=folder.path)
        given = {"workers": workers, "executor": executor, "ray.address": ray_address}
        overrides = {key: value for key, value in given.items() if value is not None}
        config = Config.load(folder.path / "config.toml", overrides)
        state = folder.load()
        federation = build(config, data, model, indices)
        try:
            going = _Run(federation, folder, progress, pause)
            if state is not None:
                going.restore(state)
            return going.go()
        finally:
            federation.close()
    finally:
        folder.close()


class _Run:
    """A run under way: a session, and the directory that keeps what it does."""

    def __init__(
        self,
        federation: Federation,
        folder: RunDirectory | None,
        progress: Progress | None,
        pause: Callable[[], bool] | None,
    ) -> None:
        self.federation = federation
        self.folder = folder
        config = federation.config
        self.session = Session(
            federation.engine(self._log),
            None if federation.pool is None else federation.pool.evaluate,
            every=config.evaluate.every,
            target=_target(config),
            log=self._log,
            progress=progress or (lambda status: None),
            checkpoint=self._checkpoint,
            checkpoint_s=config.checkpoint_s,
            pause=pause or (lambda: False),
        )
        agent = acting_agent(config)
        self._agent = None if agent is None else agent.digest
        self._identity = {
            "config": config.digest(),
            "data": "none" if federation.data is None else federation.data.digest(),
            "parameters": federation.spec.size,
            "trainer": federation.trainer,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a checkpoint that was made of the same run."""
        for name, value in self._identity.items():
            if state["identity"][name] != value:
                raise RunError(
                    f"the run was begun with {name} {state['identity'][name]} and cannot go on with {value}; "
                    f"use the same {name}, or start a new run"
                )
        self.session.restore(state["session"])

    def go(self) -> Result:
        """Run to the end, save what there is to save, and return the result."""
        if not self.session.started:
            self._log(0.0, "start", self._edges())
        reason = self.session.run()
        if reason is None:
            raise Paused(str(self.folder.path) if self.folder else None)
        result = self._result(reason)
        totals = {name: value for name, value in self.session.engine.totals().items() if name != "virtual_s"}
        self._log(result.virtual_s, "stop", {"reason": reason, "digest": result.digest, **totals})
        if self.folder is not None:
            model = None
            if self.federation.pool is not None:
                model = to_bytes(result.weights, self.federation.spec)
                _draw(result, self.folder.path / "figure")
            self.folder.finish(result.to_dict(), model)
        return result

    def _result(self, reason: str) -> Result:
        federation, session = self.federation, self.session
        config, engine = federation.config, session.engine
        last = session.evaluations[-1] if session.evaluations else {"accuracy": None, "loss": None}
        edges = self._edges()
        return Result(
            name=self.folder.path.name if self.folder else f"{config.method}-s{config.seed}",
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
            agent=self._agent,
            path=self.folder.path if self.folder else None,
            weights=engine.weights,
            **engine.totals(),
            **engine.figures(),
        )

    def _edges(self) -> dict[str, Any]:
        """Return what there is to know of every edge at any time."""
        federation, engine = self.federation, self.session.engine
        flat = federation.config.federation.flat
        return {
            "cluster_sizes": [len(cluster) for cluster in engine.clusters],
            # Clients are no edges: a sum over them cannot be compared with one over edges (decision 33).
            "js_per_edge": [] if flat else federation.population.js_per_edge(engine.clusters),
            **engine.edges_ms(),
        }

    def _log(self, now: float, kind: str, row: Mapping[str, Any]) -> None:
        if self.folder is not None:
            self.folder.log(now, kind, row)

    def _checkpoint(self, state: dict[str, Any]) -> None:
        if self.folder is not None:
            self.folder.save({"identity": self._identity, "session": state})


def _config(
    config: Config | str | Path | None, settings: dict[str, Any], data: Dataset | None, model: object
) -> Config:
    own = {"data.name": data, "model.name": model}
    settings = {**settings, **{key: "own" for key, value in own.items() if value is not None}}
    return config.with_settings(settings) if isinstance(config, Config) else Config.load(config, settings)


def _target(config: Config) -> float | None:
    """Return the accuracy that ends a run; a centralized one takes all its steps, to show the level."""
    if config.stop.target == "none" or config.cloud.schedule == "centralized":
        return None
    return config.stop.target


def _draw(result: Result, stem: Path) -> None:
    from hiflash.report.figures import draw_run

    draw_run(result.to_dict(), stem)
