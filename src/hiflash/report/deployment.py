"""A deployed run as people see it: a few lines, a table of nodes, a live view."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hiflash.report.outcome import metric_of, show
from hiflash.report.privacy import histogram_words

__all__ = ["DeploymentView", "nodes_table", "status_lines"]

MOST_NODES = 20  # rows of the table; of more, the first
PLAIN_EVERY_S = 5.0
SILENT_S = 6.0  # longer than the time between two signs of life


def status_lines(status: Mapping[str, Any]) -> list[str]:
    """Return the state of a run in a few lines."""
    if not status.get("started"):
        here = sum(node["silent_s"] is not None for node in status.get("nodes", ()))
        role, of = status.get("role", "edge"), len(status.get("nodes", ()))
        where = "running" if status["running"] else "stopped"
        return [f"{where}: waiting for {role}s to start ({here} of {of} have said hello)"]
    state = "finished" if status["complete"] else "running" if status["running"] else "stopped"
    why = f": {status['finished']}" if status["finished"] else ""
    lines = [
        f"{state}{why}",
        f"version {status['version']:,}, {status['communications']:,} communications, "
        f"{status['client_steps']:,} client steps, {status['virtual_s']:.1f} s of cloud time",
        _score(status),
    ]
    if status.get("privacy"):
        lines.append(_privacy(status["privacy"]))
    refused = {name: count for name, count in status["refused_calls"].items() if count}
    if refused:
        lines.append("refused calls: " + ", ".join(f"{count:,} {name}" for name, count in refused.items()))
    return [*lines, *status["warnings"]]


def nodes_table(status: Mapping[str, Any]) -> Table:
    """Return what the cloud knows of every edge, or of every client of a flat method."""
    role, nodes = status["role"], status["nodes"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(role, justify="right")
    for name in ("clients", "state", "lease", "behind", "grants", "applied"):
        table.add_column(name, justify="left" if name == "state" else "right")
    for node in nodes[:MOST_NODES]:
        table.add_row(
            str(node["node"]),
            str(node["clients"]),
            _state(node) if status["running"] else "-",
            *("-" if node[name] is None else f"{node[name]:,}" for name in ("lease", "behind")),
            f"{node['grants']:,}",
            f"{node['applied']:,}",
        )
    if len(nodes) > MOST_NODES:
        table.caption = f"and {len(nodes) - MOST_NODES} more"
    return table


class DeploymentView:
    """A live view of a deployed run on a terminal; plain lines in a pipe.

    Its thread starts with the first status: the processes of the federation are forked before that.
    """

    def __init__(self, what: str, began: float, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._what = what
        self._began = began
        self._latest: Mapping[str, Any] = {}
        self._said_at = -math.inf
        self._updated = False
        self._plain = not self._stream.isatty()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._say(f"starting {self._what}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: Mapping[str, Any]) -> None:
        """Show the latest status."""
        self._latest, now = status, time.monotonic()
        if status.get("version") and not self._updated:
            self._updated = True
            self._say(f"first cloud update {now - self._began:.1f} s after the start")
        if self._plain:
            if now - self._said_at >= PLAIN_EVERY_S:
                self._said_at = now
                for line in status_lines(status):
                    self._say(line)
        elif self._live is None:
            self._live = Live(console=Console(file=self._stream), get_renderable=self._board)
            self._live.start(refresh=True)

    def _say(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(Text(text))
        else:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def _board(self) -> RenderableType:
        head = Text("\n".join(["", *status_lines(self._latest), ""]))
        return Group(head, nodes_table(self._latest)) if self._latest.get("nodes") else head


def _score(status: Mapping[str, Any]) -> str:
    metric = metric_of(status)
    target = status["target"]
    aim = "" if target is None else f" (target {metric.text(target)})"
    return f"{metric.name} {show(status[metric.name], metric)}{aim}, staleness {status['staleness']:.1f}"


def _privacy(spent: Mapping[str, Any]) -> str:
    sent = histogram_words(spent)
    if "epsilon" not in spent:
        return f"privacy: {sent}"
    of = "" if spent["budget"] is None else f" of {spent['budget']:g}"
    able = sum(edge["able"] for edge in spent["edges"].values())
    return (
        f"privacy: epsilon {spent['epsilon']:.3g}{of} at delta {spent['delta']:g} "
        f"({spent['epsilon_participation']:.3g} for those who see who takes part), "
        f"{able} of {len(spent['edges'])} edges can pay for more" + (f"; {sent}" if sent else "")
    )


def _state(node: Mapping[str, Any]) -> str:
    if node["silent_s"] is None:
        return "not seen"
    if node["silent_s"] > SILENT_S:
        return f"silent for {node['silent_s']:.0f} s"
    return "works" if node["lease"] is not None else "waits"
