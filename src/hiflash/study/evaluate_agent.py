"""Evaluates learned thresholds against others in real runs, from a plan to the saved tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from hiflash.errors import DataError, RunError
from hiflash.methods.registry import make
from hiflash.sim.result import Result
from hiflash.store.files import check_writable
from hiflash.study.arguments import check_arguments
from hiflash.study.cells import Cell, saved
from hiflash.study.observers import Observers
from hiflash.study.policies import Evaluation, Plan, plan
from hiflash.study.run_cells import read_cells, run_cells

if TYPE_CHECKING:
    from hiflash.config.typed import AllSettings

__all__ = ["evaluate_agent", "evaluate_plan"]


def evaluate_agent(
    config: str | Path | None = None,
    *,
    directory: str | Path,
    agent: str | Mapping[str, str] | None = None,
    quick: bool = False,
    policies: Sequence[str] | None = None,
    associations: Sequence[str] | None = None,
    enforce: Sequence[str] | None = None,
    dynamics: Sequence[str] | None = None,
    seeds: int | Sequence[int] | None = None,
    choice_seeds: Sequence[int] | None = None,
    finished: bool = False,
    processes: int = 1,
    observers: Observers | None = None,
    progress: Callable[[int], None] | None = None,
    pause: Callable[[], bool] | None = None,
    **settings: Unpack[AllSettings],
) -> Evaluation:
    """Run threshold policies with real training, save runs and tables in `directory` and return them.

    `hiflash.evaluate_agent(directory="runs/evaluation", quick=True, data={"name": "mnist5k"}).to_json()`.
    Missing arguments come from the file's section `[evaluate_agent]`. `agent` is a name or a file, or one by
    condition. With `finished` nothing is run and the finished runs are reported. `progress` gets the number
    of runs whose edges are measured. A second call resumes interrupted runs and does not repeat finished
    ones.
    """
    check_arguments(
        file=config,
        folder=directory,
        agent=agent,
        policies=policies,
        associations=associations,
        enforce=enforce,
        dynamics_list=dynamics,
        seeds=seeds,
        choice_seeds=choice_seeds,
        processes=processes,
        observers=observers,
        progress=progress,
        pause=pause,
    )
    wanted = plan(
        config,
        quick=quick,
        settings=settings,
        agent=agent,
        policies=policies,
        associations=associations,
        enforce=enforce,
        dynamics=dynamics,
        seeds=seeds,
        choice_seeds=choice_seeds,
    )

    def run(cells: Sequence[Cell]) -> list[Result]:
        return run_cells(cells, directory=directory, processes=processes, observers=observers, pause=pause)

    return evaluate_plan(wanted, Path(directory), None if finished else run, progress)


def evaluate_plan(
    plan: Plan,
    folder: Path,
    run: Callable[[Sequence[Cell]], list[Result]] | None,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Return the evaluation of a plan's runs and save it in their folder; without `run`, of finished runs.

    The first time, measuring the edges takes about half a second per run.
    """
    check_writable(folder)
    if run is None:
        cells = [cell for cell in plan.cells if (folder / cell.name / "result.json").is_file()]
        if not cells:
            raise RunError(
                f"{folder} has no finished run of this evaluation; leave out --finished to make them"
            )
        results = read_cells(cells, folder)
    else:
        cells = plan.cells
        _check_data(cells[0])
        results = run(cells)
    if progress is not None:
        progress(0)
    return saved(Evaluation.of(plan, cells, results, progress), folder)


def _check_data(cell: Cell) -> None:
    """Report missing data once, before any run starts."""
    try:
        make("dataset", cell.config)
    except DataError as error:
        raise DataError(f"{error}\nOr use --data.name mnist5k, which comes with the package.") from None
