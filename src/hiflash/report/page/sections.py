"""The part of a page about one study: figures, tables, differences, digests, commands, configurations."""

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from hiflash.report.alerts import compare_alerts, sweep_alerts
from hiflash.report.client_figures import clients_figure, has_clients
from hiflash.report.compare_figures import compare_figures
from hiflash.report.compare_tables import compare_tables
from hiflash.report.figures import run_figure
from hiflash.report.methods import label
from hiflash.report.page.blocks import Block, Cell, Heading, Items, Listing, Row, Sheet, Words, sheet_of
from hiflash.report.page.makers import maker_blocks
from hiflash.report.page.shown import ShownRun, ShownStudy
from hiflash.report.page.svg import drawing
from hiflash.report.summary import is_reference
from hiflash.report.sweep import shown, sweep_tables
from hiflash.report.sweep_figures import sweep_figure
from hiflash.report.tables import run_table
from hiflash.report.units import duration
from hiflash.report.work import is_untrained, work_tables
from hiflash.report.work_figures import work_figures

__all__ = ["study_blocks"]

WIDE = 100_000
"""Characters of a table's width: a page scrolls wide tables, so nothing is cut or split."""
MOST_LABELS = 12
"""Columns of the table of differences; every configuration has them anyway."""
MOST_LINES = 24
"""Commands that stand open; more are folded."""
FREE = ("seed", "workers", "checkpoint_s")
"""Settings that differ without a difference between methods."""
OWN = {"data.name": "data", "model.name": "model", "client.function": "train"}

_CAPTIONS = {
    "run": "The test metric of the cloud's model against communications, client steps and virtual time.",
    "clients": "The shared model on samples that clients held out of their own data.",
    "compare": "The test metric of the cloud's model against communications, client steps and virtual time. "
    "Over several seeds, lines are means as far as all seeds have data, and shades are ranges.",
    "targets": "What each method spent until it first reached the target.",
    "tradeoff": "Communications until each target that all seeds of a method reached.",
    "latency": "Mean latency of a response and mean waiting at the edge, from the model of resources.",
    "work": "What a thousand client rounds take; nothing was trained.",
    "sweep": "The measure that ranks the points, and its counterpart, over the settings of the sweep.",
}


_AGAIN = "Each command makes one run again; on the same kind of machine it prints the model digest above."
_REPLAY = (
    "Each command replays the journal of a deployed run and checks that it leads to the model digest above."
)


def study_blocks(study: ShownStudy, number: int) -> list[Block]:
    """Return the part of a page about the study with this number; the number keeps its anchors apart."""
    anchor = f"study-{number}"
    blocks: list[Block] = [Heading(study.path, anchor), Words(_summary(study))]
    alerts = [line.plain.removeprefix("warning: ") for line in _alerts(study)]
    blocks += [Items("Warnings", alerts, warning=True)] if alerts else []
    first, *others = (sheet_of(table) for table in _tables(study))
    drawings = (drawing(f"{anchor}-{name}", made, _CAPTIONS[name]) for name, made in _figures(study).items())
    blocks += [first, *drawings, *others]
    blocks.append(Heading("Repeat it", f"{anchor}-repeat", 3))
    made = {_below(run, study): run.result.get("made_by", []) for run in study.runs}
    blocks += [_runs(study), *maker_blocks(made), *_commands(study.runs)]
    blocks.append(Heading("Configuration", f"{anchor}-configuration", 3))
    return [*blocks, *_differences(study), *_configurations(study)]


def _summary(study: ShownStudy) -> str:
    first, runs = study.results[0], len(study.runs)
    parts = dict.fromkeys(str(r["partition"]) for r in study.results if not is_reference(r))
    where = ", ".join([str(first["data"]), *parts])
    seeds = sorted({int(result["seed"]) for result in study.results})
    with_seeds = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"
    what = {
        "run": "One deployed run" if study.runs[0].deployed else "One run",
        "comparison": f"A comparison of {runs} runs",
        "collection": f"{runs} runs of one folder, not planned as one comparison",
        "sweep": f"A sweep of {runs} runs",
    }
    names = ", ".join(label(name) for name in study.labelled)
    wall = duration(sum(float(result["wall_s"]) for result in study.results))
    took = f"It took {wall} of wall time." if runs == 1 else f"The runs took {wall} of wall time in all."
    return f"{what[study.kind]}: {names} on {where}, {with_seeds}. {took}"


def _figures(study: ShownStudy) -> dict[str, Figure]:
    results = study.results
    if study.kind == "sweep":
        return {"sweep": sweep_figure(results, study.by)}
    if is_untrained(results):
        return work_figures(results)
    if study.kind != "run":
        return compare_figures(results)
    clients = {"clients": clients_figure(results[0])} if has_clients(results[0]) else {}
    return {"run": run_figure(results[0]), **clients}


def _tables(study: ShownStudy) -> list[Table]:
    results = study.results
    if study.kind == "sweep":
        return sweep_tables(results, study.by, WIDE)
    if study.kind == "run":
        return [run_table(results[0])]
    if is_untrained(results):
        return work_tables(results, WIDE)
    return compare_tables(results, WIDE, deviations=True)


def _alerts(study: ShownStudy) -> list[Text]:
    if study.kind == "run":
        return []  # its table has them
    return (sweep_alerts if study.kind == "sweep" else compare_alerts)(study.results)


def _runs(study: ShownStudy) -> Sheet:
    """Return a row per run with everything that tells whether a repetition is the same run."""
    heads = ["run", "seed", "trainer", "stopped", "wall time", "model digest", "configuration digest"]
    rows = [
        Row(
            [
                Cell(_below(run, study)),
                Cell(str(run.result["seed"])),
                Cell(str(run.result["trainer"])),
                Cell(str(run.result["stop_reason"])),
                Cell(duration(float(run.result["wall_s"]))),
                Cell(str(run.result["digest"]), code=True),
                Cell(str(run.result["config_digest"]), code=True),
            ]
        )
        for run in study.runs
    ]
    return Sheet("Runs, their digests and their wall time", heads, rows, words=frozenset({3, 5, 6}))


def _commands(runs: Iterable[ShownRun]) -> list[Block]:
    """Return the commands that make each run again, and what commands alone cannot do."""
    runs = list(runs)
    blocks: list[Block] = []
    simulated = [run for run in runs if not run.deployed and not _own(run)]
    deployed = [run for run in runs if run.deployed]
    for title, some in ((_AGAIN, simulated), (_REPLAY, deployed)):
        lines = [_command(run) for run in some]
        if lines:
            text = "\n".join(lines) + "\n"
            blocks.append(Listing(title, text, "sh", folded=len(lines) > MOST_LINES))
    own = sorted({argument for run in runs if not run.deployed for argument in _own(run)})
    if own:
        objects = ", ".join(f"{name}=..." for name in own)
        told = f"Some runs had objects of a Python program: hiflash.run(CONFIG, {objects}) makes them again."
        blocks.append(Words(told))
    return blocks


def _command(run: ShownRun) -> str:
    if run.deployed:
        return f"hiflash replay {shlex.quote(run.path)}"
    name = PurePosixPath(run.path).name[:90]
    return f"hiflash run {shlex.quote(f'{run.path}/config.toml')} --name {shlex.quote(f'{name}-again')}"


def _own(run: ShownRun) -> list[str]:
    """Return the arguments of `hiflash.run` that took objects: no command has them."""
    return [argument for key, argument in OWN.items() if run.settings.get(key) == "own"]


def _differences(study: ShownStudy) -> list[Block]:
    """Return a table of the settings in which the labels of a comparison differ."""
    labelled = study.labelled
    if study.kind in ("run", "sweep") or not 2 <= len(labelled) <= MOST_LABELS:
        return []
    named = "method" if list(labelled) == [runs[0].result["method"] for runs in labelled.values()] else ""
    keys = dict.fromkeys(key for run in study.runs for key in run.settings if key not in (*FREE, named))
    told_by = [_values(run.settings for run in runs) for runs in labelled.values()]
    rows = []
    for key in keys:
        values = [found.get(key, "") for found in told_by]
        if len(set(values)) > 1:
            rows.append(Row([Cell(key, code=True), *(Cell(value or "–") for value in values)]))
    if not rows:
        return []
    heads = ["setting", *map(label, labelled)]
    note = "– is a setting that the method does not have."
    return [
        Sheet(
            "Settings that differ",
            heads,
            rows,
            note if any(c.text == "–" for r in rows for c in r.cells) else "",
        )
    ]


def _values(settings: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return the value of every setting over some runs, several with commas."""
    found: dict[str, dict[str, None]] = {}
    for each in settings:
        for key, value in each.items():
            found.setdefault(key, {})[shown(value)] = None
    return {key: ", ".join(values) for key, values in found.items()}


def _configurations(study: ShownStudy) -> list[Block]:
    """Return each configuration once; runs that differ only in their seed share one."""
    groups: dict[str, list[ShownRun]] = {}
    for run in study.runs:
        others = {key: value for key, value in run.settings.items() if key != "seed"}
        groups.setdefault(json.dumps(others, sort_keys=True, default=str), []).append(run)
    blocks: list[Block] = []
    for runs in groups.values():
        seeds = ", ".join(str(run.result["seed"]) for run in runs[1:])
        also = f" (the same with seed {seeds})" if seeds else ""
        title = f"{_below(runs[0], study)}: config.toml{also}"
        blocks.append(Listing(title, runs[0].config, "toml"))
    return blocks


def _below(run: ShownRun, study: ShownStudy) -> str:
    """Return the path of a run from its study on."""
    return run.path.removeprefix(f"{study.path}/") if run.path != study.path else PurePosixPath(run.path).name
