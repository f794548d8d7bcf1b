"""Every metric of a result is there, adds up, and can be made again from the events alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import hiflash

RunTiny = Callable[..., hiflash.Result]


@pytest.fixture
def saved(run_tiny: RunTiny, no_figures: None, tmp_path: Path) -> Callable[..., tuple[Any, list[Any]]]:
    """Return a maker of runs: what `result.json` and `events.jsonl` hold."""

    def make(method: str, **settings: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        path = tmp_path / method
        run_tiny(method, directory=path, **settings)
        events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
        return json.loads((path / "result.json").read_text()), events

    return make


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("hifl", {"cloud__threshold": 1, "cloud__enforce": "discard"}),
        ("hifl", {"cloud__threshold": 1, "cloud__enforce": "cancel", "edge__edge_rounds": [2, 3]}),
        ("hifl", {"edge__deadline_s": 0.00043, "edge__quorum": 1.0, "stop__client_steps": 5000}),
        ("fedavg", {"cloud__deadline_s": 0.2, "cloud__quorum": 0.9}),
        ("hierfavg", {}),
        # Most rounds close while their edges still try; those then give up leases that have ended.
        (
            "hierfavg",
            {
                "edge__deadline_s": 0.00043,
                "edge__quorum": 1.0,
                "cloud__deadline_s": 0.12,
                "stop__client_steps": 3000,
            },
        ),
        ("fedbuff", {"cloud__buffer": 7, "cloud__concurrency": 4}),
    ],
)
def test_the_books_can_be_made_again_from_the_events(
    saved: Callable[..., Any], method: str, settings: dict[str, Any]
) -> None:
    result, events = saved(method, **settings)
    by: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        by.setdefault(event["event"], []).append(event)
    uploads, rounds, grants = (by.get(kind, []) for kind in ("upload", "edge_round", "grant"))
    assert result["communications"] == len(uploads)
    assert result["client_steps"] == sum(event["steps"] for event in rounds)
    assert result["client_uploads"] == sum(event["clients"] for event in rounds)

    wasted = {event["lease"] for event in uploads if event["status"] == "rejected"}
    wasted |= {event["lease"] for event in by.get("cancel", [])}
    abandoned = [event["lease"] for event in by.get("expire", []) if event["reason"] == "abandoned"]
    assert result["abandoned"] == len(abandoned)
    wasted |= set(abandoned)
    wasted |= {lease for event in by.get("round", []) for lease in event["dropped"]}
    if method == "fedbuff":  # what is left in the buffer is in vain
        used = {lease for event in by["round"] for lease in event["leases"]}
        wasted |= {event["lease"] for event in uploads if event["status"] == "buffered"} - used
    assert result["wasted_client_steps"] == sum(e["steps"] for e in rounds if e["lease"] in wasted)

    edge_of = {event["lease"]: event["edge"] for event in grants}
    applied = [event["lease"] for event in uploads if event["status"] == "applied"]
    applied += [lease for event in by.get("round", []) for lease in event["leases"]]
    edges = range(len(result["grants_per_edge"]))
    assert result["grants_per_edge"] == [list(edge_of.values()).count(edge) for edge in edges]
    assert result["applied_per_edge"] == [[edge_of[a] for a in applied].count(edge) for edge in edges]
    staleness = Counter(str(e["staleness"]) for e in uploads if e["lease"] in applied)
    if method in ("hifl", "fedbuff"):
        assert result["staleness"]["histogram"] == dict(staleness)
        assert result["thresholds"] == dict(Counter(event["threshold"] for event in grants))
    reasons = Counter(event["reason"] for event in by.get("refuse", []))
    assert (result["refused"], result["waited"]) == (reasons["refused"], reasons["waited"])
    assert result["cancelled"] == len(by.get("cancel", []))
    assert result["discarded"] == sum(event["reason"] == "stale" for event in uploads)

    model = result["wan_bytes_up"] // max(len(uploads), 1)
    assert result["wan_bytes_up"] == model * len(uploads)
    assert result["wan_bytes_down"] == model * len(grants)
    flat = method in ("fedavg", "fedbuff")
    assert result["lan_bytes_up"] == (0 if flat else model * result["client_uploads"])
    assert result["lan_bytes_down"] == (0 if flat else model * sum(event["asked"] for event in rounds))
    for net in ("wan", "lan"):
        assert result[f"{net}_bytes"] == result[f"{net}_bytes_up"] + result[f"{net}_bytes_down"]

    assert [event["event"] for event in events].count("start") == 1
    assert events[0] == {
        "t": 0.0,
        "event": "start",
        **{name: result[name] for name in _PER_EDGE},
    }
    (stop,) = by["stop"]
    assert stop["t"] == result["virtual_s"]
    assert {name: stop[name] for name in _TOTALS} == {name: result[name] for name in _TOTALS}


_PER_EDGE = ("cluster_sizes", "js_per_edge", "latency_per_edge_ms", "waiting_per_edge_ms")
_TOTALS = (
    "communications", "client_steps", "wan_bytes", "lan_bytes", "compute_cost", "send_cost", "total_cost",
)  # fmt: skip


def test_an_evaluation_has_every_coordinate_and_a_target_says_what_it_took(run_tiny: RunTiny) -> None:
    result = run_tiny("hifl", stop__communications=120, stop__target=0.93)
    for row in result.evaluations:
        assert set(row) == {*_TOTALS, "virtual_s", "version", "accuracy", "loss"}
    goals = {"0.7", "0.8", "0.85", "0.9", "0.93", "0.95"}
    assert set(result.targets) == set(result.targets_stable) == set(result.targets_interpolated) == goals
    first = next(row for row in result.evaluations if row["accuracy"] >= 0.7)
    names = ("communications", "client_steps", "virtual_s", "wan_bytes", "total_cost")
    assert result.targets["0.7"] == {name: first[name] for name in names}


def test_edges_have_latencies_and_divergences_of_their_own(run_tiny: RunTiny) -> None:
    result = run_tiny("hifl")
    assert len(result.latency_per_edge_ms) == len(result.waiting_per_edge_ms) == 4
    assert result.response_latency_ms == pytest.approx(fmean(result.latency_per_edge_ms))
    assert result.waiting_ms == pytest.approx(fmean(result.waiting_per_edge_ms))
    pairs = zip(result.waiting_per_edge_ms, result.latency_per_edge_ms, strict=True)
    assert all(0 < waiting < latency for waiting, latency in pairs)
    assert result.total_js == pytest.approx(sum(result.js_per_edge))
    assert len(result.js_per_edge) == 4


@pytest.mark.parametrize("method", ["fedavg", "centralized"])
def test_without_edges_there_is_no_divergence_between_them(run_tiny: RunTiny, method: str) -> None:
    result = run_tiny(method, stop__steps=20)
    assert (result.total_js, result.js_per_edge) == (None, [])
    assert result.waiting_ms == 0
    assert len(result.latency_per_edge_ms) == (12 if method == "fedavg" else 0)
