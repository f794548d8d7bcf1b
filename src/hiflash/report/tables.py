"""One run as a table for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from hiflash.core.metrics import ACCURACY
from hiflash.report.alerts import alerts_of
from hiflash.report.grid import new_table
from hiflash.report.methods import label
from hiflash.report.outcome import best_of, final, mark, metric_of, show
from hiflash.report.privacy import spent_words
from hiflash.report.summary import Result
from hiflash.report.units import count, duration, size

__all__ = ["run_table"]


def run_table(result: Result) -> Table:
    """Return a summary of one run in two columns; warnings come first."""
    table = new_table(
        f"{label(result['method'])} on {result['data']}, {result['partition']}, seed {result['seed']}"
    )
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for warning in alerts_of(result):
        table.add_row(Text("warning", style="yellow"), Text(warning, style="yellow"))
    staleness, metric = result["staleness"], metric_of(result)
    reached = [
        f"{mark(float(target), metric)} after {count(state['communications'])}"
        for target, state in sorted(result["targets"].items(), key=lambda item: float(item[0]))
        if state is not None
    ]
    divergence = result["total_js"]
    trained = result["trainer"] != "none"
    rows = {
        "trained": "" if trained else "nothing (trainer none): only times, bytes and costs were simulated",
        metric.name: f"{show(final(result), metric)} (best {show(best_of(result), metric)})"
        if trained
        else "",
        "validation": _validation(result),
        "metrics": _others(result),
        "clients": _clients(result),
        "targets": _targets(result, reached) if trained else "",
        "communications": f"{count(result['communications'])} to the cloud, "
        f"{count(result['client_uploads'])} client uploads",
        "client steps": f"{count(result['client_steps'])} ({count(result['wasted_client_steps'])} wasted)",
        "virtual time": duration(result["virtual_s"]),
        "bytes": f"WAN {_both_ways(result, 'wan')}, LAN {_both_ways(result, 'lan')}",
        "cost": f"{count(result['total_cost'])} (computing {count(result['compute_cost'])}, "
        f"sending {count(result['send_cost'])})",
        "staleness": f"mean {count(staleness['mean'])}, max {count(staleness['max'])}",
        "thresholds": _histogram(result["thresholds"]),
        "check-ins": _counts(result, "refused", "waited"),
        "leases": _counts(result, "cancelled", "discarded", "rejected", "abandoned"),
        "secure sums": _secure(result),
        "per edge": f"grants {_range(result['grants_per_edge'])}, "
        f"applied {_range(result['applied_per_edge'])}",
        "latency": f"response {count(result['response_latency_ms'])} ms, "
        f"waiting {count(result['waiting_ms'])} ms",
        "privacy": spent_words(result.get("privacy") or {}),
        "labels": "" if divergence is None else f"total JS divergence of the edges {divergence:.3f}",
        "stopped": result["stop_reason"],
        "digest": result["digest"][:12],
    }
    for name, value in rows.items():
        if value:  # empty if the method has no such thing
            # As Text, because rich would read brackets in a reason as markup.
            table.add_row(name, Text(value))
    return table


def _others(result: Result) -> str:
    """Write the metrics beside that of the target; accuracy and its loss are known enough."""
    if metric_of(result) == ACCURACY and set(result.get("scores", ())) <= {"accuracy", "loss"}:
        return ""
    return ", ".join(
        f"{name} {count(value)}" for name, value in result["scores"].items() if name != result["metric"]
    )


def _validation(result: Result) -> str:
    """Write the metric on the validation set, and that of the test set where this one was best."""
    metric, told = metric_of(result), result.get("validation")
    if not told:
        return ""
    last, best, test = (
        show(value, metric) for value in (told["scores"][metric.name], told["best"], told["test_at_best"])
    )
    return f"{last} (best {best}, with {test} on the test set), {count(told['samples'])} samples"


def _clients(result: Result) -> str:
    """Write the metric on the clients' own held-out samples."""
    metric, told = metric_of(result), result.get("clients")
    if not told:
        return ""
    parts = {"": told, "with their own BatchNorm values ": told.get("own_batch_norm")}
    return "; ".join(
        f"{words}mean {show(part['mean'], metric)}, deviation {show(part['std'], metric)}, "
        f"worst tenth {show(part['worst_tenth'], metric)}"
        for words, part in parts.items()
        if part
    )


def _targets(result: Result, reached: Sequence[str]) -> str:
    if reached:
        return ", ".join(reached) + " communications"
    return "none reached" if result["targets"] else ""


def _secure(result: Result) -> str:
    """Write what happened in secure sums."""
    told = result.get("secure")
    if not told:
        return ""
    lost = {phase: clients for phase, clients in told["lost"].items() if clients}
    parts = [
        f"{count(told['rounds'] - told['abandoned'])} of {count(told['rounds'])} opened",
        f"{size(sum(told['bytes'].values()))} beside models",
        *(f"{count(clients)} clients lost at {phase}" for phase, clients in lost.items()),
        *([f"{count(told['clipped_values'])} values clipped"] if told["clipped_values"] else []),
    ]
    return ", ".join(parts)


def _both_ways(result: Result, net: str) -> str:
    up, down = result[f"{net}_bytes_up"], result[f"{net}_bytes_down"]
    return f"{size(result[f'{net}_bytes'])} ({size(up)} up, {size(down)} down)" if up or down else "none"


def _counts(result: Result, *names: str) -> str:
    return ", ".join(f"{count(result[name])} {name}" for name in names if result[name])


def _histogram(counts: Mapping[str, Any]) -> str:
    """Write mean and range of the granted thresholds, and the number of unbounded ones."""
    numbers = {float(text): times for text, times in counts.items() if text != "inf"}
    told = [f"{count(counts['inf'])} unbounded"] if "inf" in counts else []
    if numbers:
        mean = sum(number * times for number, times in numbers.items()) / sum(numbers.values())
        told.insert(0, f"mean {count(mean)}, {min(numbers):.0f} to {max(numbers):.0f}")
    return ", ".join(told)


def _range(values: list[int]) -> str:
    return f"{count(min(values, default=0))} to {count(max(values, default=0))}"
