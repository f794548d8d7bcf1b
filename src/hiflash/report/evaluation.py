"""An evaluation of threshold policies as tables for the terminal and as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.report.grid import Grid
from hiflash.report.measures import EVALUATED, MEASURES
from hiflash.report.units import count, goal, percent, spread

__all__ = ["condition_title", "evaluation_tables", "markdown", "tables_of", "verdicts"]

Told = Mapping[str, Any]
"""The object that `Evaluation.to_json` returns."""

_ASSOCIATIONS = {"aware": "heterogeneity-aware", "noniid": "Edge-NonIID"}
_EDGES = {
    "applied_share": "applied updates by edge",
    "refused_rate": "check-ins refused by the policy",
    "waited_rate": "check-ins not admitted",
}
_ORDER = "edges from the fastest to the slowest; "
NOT_POLICIES = (
    "main", "conditions", "comparisons", "seeds", "choice_seeds", "agents", "data", "partition", "target",
    "missing",
)  # fmt: skip
"""Keys that describe the evaluation; every other key is a policy of its main condition."""

ONE = "one seed"
_UNREACHED = "* some runs used up their budget below the target; reaching it would have cost more"


def tables_of(told: Told) -> dict[str, Mapping[str, Any]]:
    """Return the statistics of every condition by policy and dynamics, the main condition first."""
    main = {name: value for name, value in told.items() if name not in NOT_POLICIES}
    return {told["main"]: main, **told["conditions"]}


def condition_title(condition: str, kind: str | None = None) -> str:
    """Return a condition in words."""
    association, _, mode = condition.partition("-")
    where = f"{_ASSOCIATIONS.get(association, association)}, {mode}"
    return where if kind is None else f"{where}, {kind}"


def evaluation_tables(told: Told, width: int) -> list[Table]:
    """Return tables no wider than the width: costs at the target, and each edge's share of updates."""
    return [table for grid in _grids(told, ["applied_share"]) for table in grid.tables(width)]


def verdicts(told: Told) -> dict[str, list[str]]:
    """Return for every condition and dynamics the best fixed threshold and a line per criterion."""
    said = {}
    for condition, kinds in told["comparisons"].items():
        for kind, judged in kinds.items():
            lines = [_chosen(judged)] if judged["best_fixed"] is not None else []
            lines += [f"{bar['outcome'].upper()}: {bar['bar']}: {bar['said']}" for bar in judged["bars"]]
            if lines:
                said[condition_title(condition, kind)] = lines
    return said


def _chosen(judged: Mapping[str, Any]) -> str:
    seeds = ", ".join(map(str, judged["chosen_on"]))
    how = f"{'in hindsight ' if judged['hindsight'] else ''}on seeds {seeds}"
    means = ", ".join(f"{policy} {count(mean)}" for policy, mean in judged["choice"].items())
    return f"best fixed threshold {judged['best_fixed']}, chosen {how} (mean cost: {means})"


def markdown(told: Told) -> str:
    """Return verdicts and tables as a page of Markdown."""
    choice = ", ".join(map(str, told["choice_seeds"]))
    lines = [
        f"# Threshold policies on {told['data']}, {told['partition']}, to {_goal(told)}",
        "",
        f"{_reported(told)}. " + (f"The best fixed threshold is chosen on seeds {choice}." if choice else ""),
    ]
    if told["agents"]:
        agents = (f"{name} {each['agent']} ({each['digest'][:12]})" for name, each in told["agents"].items())
        lines.append(f"Agents: {', '.join(agents)}.")
    if told["missing"]:
        lines += ["", f"**{told['missing']} runs are missing.**"]
    for title, said in verdicts(told).items():
        lines += ["", f"**{title}**", "", *(f"- {line}" for line in said)]
    for grid in _grids(told, list(_EDGES)):
        heads = [grid.head, *(head.replace("\n", " ") for head, _ in grid.columns)]
        lines += ["", f"## {grid.title}", "", _line(heads), _line(["---"] + ["---:"] * len(grid.columns))]
        for row, name in enumerate(grid.names):
            lines.append(_line([name.plain, *(_bold(cells[row]) for _, cells in grid.columns)]))
        if grid.caption:
            lines += ["", grid.caption.replace("*", "\\*")]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _grids(told: Told, edges: Sequence[str]) -> Iterator[Grid]:
    for condition, table in tables_of(told).items():
        for kind in dict.fromkeys(kind for kinds in table.values() for kind in kinds):
            runs = {policy: kinds[kind] for policy, kinds in table.items() if kind in kinds}
            title = condition_title(condition, kind)
            many = any(run["runs"] > 1 for run in runs.values())
            yield _cost_grid(
                runs, f"{title}: to {_goal(told)}, {'mean±deviation over seeds' if many else ONE}"
            )
            for name in edges:
                shares = {policy: run["edges_fast_to_slow"][name] for policy, run in runs.items()}
                shares = {policy: values for policy, values in shares.items() if any(values)}
                if shares:
                    caption = _ORDER + ("mean over seeds" if many else ONE)
                    yield _edge_grid(shares, f"{title}: {_EDGES[name]}", caption)


def _cost_grid(runs: Mapping[str, Any], title: str) -> Grid:
    whole = {policy: run for policy, run in runs.items() if run["reached"] == run["runs"]}
    columns = [("reached", [Text(f"{run['reached']}/{run['runs']}") for run in runs.values()])]
    for name in EVALUATED:
        unit = MEASURES[name].unit
        pick = max if unit == "share" else min
        best = pick((run[name]["mean"] for run in whole.values()), default=None)
        cells = []
        for policy, run in runs.items():
            mark = "" if policy in whole or unit == "share" else "*"
            text = spread(run[name]["mean"], run[name]["spread"], unit) + mark
            wins = policy in whole and len(runs) > 1 and run[name]["mean"] == best
            cells.append(Text(text, style="bold" if wins else ""))
        columns.append((MEASURES[name].head, cells))
    caption = None if len(whole) == len(runs) else _UNREACHED
    return Grid(title, "policy", [Text(policy) for policy in runs], columns, caption)


def _edge_grid(shares: Mapping[str, Sequence[float]], title: str, caption: str) -> Grid:
    edges = max(map(len, shares.values()))
    columns = [(str(rank + 1), [Text(percent(s[rank])) for s in shares.values()]) for rank in range(edges)]
    return Grid(title, "policy", [Text(policy) for policy in shares], columns, caption)


def _reported(told: Told) -> str:
    """Return the seeds of the tables, and what their numbers are."""
    seeds = ", ".join(map(str, told["seeds"]))
    return f"Seeds {seeds}; mean±deviation of the sample" if len(told["seeds"]) > 1 else f"Seed {seeds} alone"


def _goal(told: Told) -> str:
    return f"{goal(told['target'])} accuracy"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bold(text: Text) -> str:
    plain = text.plain.replace("*", "\\*")
    return f"**{plain}**" if text.style == "bold" else plain
