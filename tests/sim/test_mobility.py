"""Clients that move, join and leave while a run goes on: their schedule, and what must hold at any time."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hiflash
from hiflash.config import Config
from hiflash.core.association.membership import ABSENT
from hiflash.errors import ConfigError, Paused
from hiflash.execute.executor import LazyExecutor
from hiflash.messages import Round
from hiflash.sim.events import RoundEnd
from hiflash.sim.federation import Federation, build
from hiflash.sim.mobility import Change
from hiflash.sim.simulator import Simulator
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.train.task import TaskResult
from tiny import TINY, assert_same_run, make_tiny_data, make_tiny_model

Run = Callable[..., hiflash.Result]

LIVELY: dict[str, Any] = {
    "mobility.moves_per_s": 8.0,
    "mobility.joins_per_s": 3.0,
    "mobility.leaves_per_s": 3.0,
    "mobility.absent": 0.3,
    "mobility.repair_s": 0.4,
    "mobility.switching_cost": 1.0,
}
FLAT: dict[str, Any] = {
    key: value for key, value in LIVELY.items() if key not in ("mobility.repair_s", "mobility.switching_cost")
}

VARIANTS: dict[str, dict[str, Any]] = {
    "admit": {**LIVELY},
    "discard": {**LIVELY, "cloud.enforce": "discard", "cloud.threshold_max": 2},
    "cancel": {**LIVELY, "cloud.enforce": "cancel", "cloud.threshold": 1},
    "fluctuating": {**LIVELY, "resources.fluctuation": "on", "edge.redraw": "grant"},
    "deadline": {**LIVELY, "edge.deadline_s": 0.0006},
    "some of each": {**LIVELY, "edge.clients_per_round": 2, "federation.capacity": 4},
    "near": {**LIVELY, "federation.association": "heterogeneity", "federation.reach": 2},
    "hierfavg": {**LIVELY, "method": "hierfavg", "edge.clients_per_round": 2, "cloud.deadline_s": 0.2},
    "fedavg": {**FLAT, "method": "fedavg", "cloud.deadline_s": 0.35, "cloud.quorum": 0.2},
    "flat asynchronous": {
        **FLAT,
        "federation.flat": True,
        "edge.edge_rounds": [1],
        "cloud.threshold": 2,
    },
    "tiers": {**FLAT, "method": "tifl", "cloud.participants": 4, "cloud.tiers": 2, "cloud.tier_interval": 2},
    "buffered": {**FLAT, "method": "fedbuff", "cloud.concurrency": 4, "cloud.buffer": 3},
    "skipping": {**LIVELY, "mobility.repair_s": "none", "cloud.threshold": "skip_slowest"},
}


class Counting:
    """Stands in for a trainer: moves a model a little."""

    def train(self, tasks: Any) -> list[TaskResult]:
        return [TaskResult(task.weights + np.float32(task.client + 1), 0.0) for task in tasks]


@pytest.fixture(scope="module")
def federations() -> Callable[..., Federation]:
    data = make_tiny_data()

    def make(**given: Any) -> Federation:
        config = Config(**{**TINY, "data.name": "own", "model.name": "own", "trainer": "none", **given})
        return build(config, data, make_tiny_model)

    return make


def simulator(federation: Federation, log: list[Any]) -> Simulator:
    """Return a simulation whose tasks are issued and counted, with stand-ins for models."""
    from hiflash.sim.build import Materials
    from hiflash.sim.build import simulator as assemble
    from hiflash.sim.machines import StartModel

    start = StartModel(np.zeros(3, np.float32), federation.start.spec, federation.parameters)
    materials = Materials(
        executor=LazyExecutor(Counting()), log=lambda now, kind, row: log.append((now, kind, dict(row)))
    )
    return assemble(federation.config, federation.population, start, materials)


class Watch:
    """Checks after every event that nobody is lost, doubled or in two leases, and no step is."""

    def __init__(self, engine: Simulator) -> None:
        self.engine = engine
        self.taken: Counter[int] = Counter()
        self.seen: set[tuple[int, int]] = set()
        self.rounds: dict[tuple[int, int], Round] = {}
        start = engine.training.start

        def noted(opened: Round, *rest: Any, **more: Any) -> Any:
            self.rounds[opened.lease_id, opened.index] = opened
            return start(opened, *rest, **more)

        engine.training.start = noted  # type: ignore[method-assign]

    def check(self) -> None:
        engine, mobility = self.engine, self.engine.mobility
        assert mobility is not None
        members = mobility.membership
        places = {client: edge.edge for edge in engine.edges for client in edge.everyone}
        assert len(places) == sum(len(edge.everyone) for edge in engine.edges)  # in one cluster at most
        for client, (home, place) in enumerate(
            zip(members.home.tolist(), members.place.tolist(), strict=True)
        ):
            assert places.get(client, ABSENT) == place
            if place not in (home, ABSENT):
                assert place in members.busy  # it finishes its lease there
            if place == ABSENT != home:
                assert home in members.busy  # on its way to exactly one
        for edge in engine.edges:
            assert engine.cloud.examples[edge.edge] == sum(
                edge.workloads[client].examples for client in edge.everyone
            )
            assert engine.world.clusters[edge.edge].tolist() == list(edge.everyone)
            asks = edge.edge in engine.cloud.waiting
            if not edge.everyone:
                assert not asks
                assert edge.edge not in members.busy
            elif asks:
                assert edge.edge not in members.busy
        training: Counter[int] = Counter()
        for end in (event for _, _, event in engine.heap if isinstance(event, RoundEnd)):
            opened = self.rounds[end.lease_id, end.index]
            training.update(task.client for task in opened.work)
            if (opened.lease_id, opened.index) not in self.seen:
                self.seen.add((opened.lease_id, opened.index))
                for task in opened.work:
                    assert task.first_step == self.taken[task.client]  # nothing repeated, nothing left out
                    self.taken[task.client] += task.steps
        assert max(training.values(), default=1) == 1  # never two tasks of one client
        held = {client: edge.taken[client] for edge in engine.edges for client in edge.everyone}
        assert {**mobility.steps, **held} == {
            client: self.taken[client] for client in {*mobility.steps, *held}
        }
        assert sum(self.taken.values()) == sum({**mobility.steps, **held}.values())


@given(
    variant=st.sampled_from(sorted(VARIANTS)),
    seed=st.integers(0, 1000),
    rates=st.tuples(*[st.sampled_from([0.0, 1.0, 20.0])] * 3),
    absent=st.sampled_from([0.0, 0.5, 0.99]),
)
@settings(max_examples=25, deadline=None)
def test_nobody_is_lost_doubled_or_in_two_leases_and_no_step_is(federations, variant, seed, rates, absent):
    names = ("mobility.moves_per_s", "mobility.joins_per_s", "mobility.leaves_per_s")
    given = {**VARIANTS[variant], **dict(zip(names, rates, strict=True)), "mobility.absent": absent}
    engine = simulator(federations(seed=seed, **given), [])
    if engine.mobility is None:  # a flat one with no rates and nobody absent
        return
    engine.start()
    watch = Watch(engine)
    watch.check()
    for _ in range(150):
        engine.step()
        watch.check()
    assert sum(watch.taken.values()) > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_going_on_from_a_checkpoint_at_any_event_gives_the_same_history(variant, federations, tmp_path):
    federation = federations(**VARIANTS[variant])
    history: list[Any] = []
    engine = simulator(federation, history)
    engine.start()
    states, lengths = [], []
    for event in range(160 + 24):
        if event % 16 == 0 and event < 160:
            save_checkpoint(tmp_path / str(event), engine.snapshot())
            states.append(tmp_path / str(event))
            lengths.append(len(history))
        engine.step()
    unsettled = 0
    for state, length in zip(states, lengths, strict=True):
        rest: list[Any] = []
        other = simulator(federation, rest)
        other.restore(load_checkpoint(state))
        unsettled += len(other.mobility.membership.unsettled)
        for _ in range(24):
            other.step()
        assert rest == history[length : length + len(rest)]
        assert len(rest) > 0
    assert unsettled > 0  # some were saved on their way
    kinds = {kind for _, kind, _ in history}
    assert {"move", "join", "leave"} <= kinds
    assert ("repair" in kinds) == (federation.config.mobility.repair_s != "none")


def test_a_used_simulation_can_go_back(federations):
    history: list[Any] = []
    engine = simulator(federations(**LIVELY), history)
    engine.start()
    for _ in range(40):
        engine.step()
    saved, length = copy.deepcopy(engine.snapshot()), len(history)
    for _ in range(60):
        engine.step()
    expected = history[length:]
    del history[length:]
    engine.restore(saved)
    for _ in range(60):
        engine.step()
    assert history[length:] == expected


def test_who_moves_joins_and_leaves_when_does_not_depend_on_the_method(federations):
    def schedule(**given: Any) -> list[Any]:
        history: list[Any] = []
        engine = simulator(federations(**given), history)
        engine.start()
        while engine.heap[0][0] < 5.0:
            engine.step()
        return [(now, kind, row["client"]) for now, kind, row in history if kind in ("move", "join", "leave")]

    seen = [schedule(**VARIANTS[variant]) for variant in ("admit", "cancel", "hierfavg", "fedavg")]
    assert len(seen[0]) > 30
    assert all(other == seen[0] for other in seen)
    assert schedule(**LIVELY, seed=1) != seen[0]


def test_changes_come_at_their_rates(federations):
    engine = simulator(federations(**{**LIVELY, "mobility.moves_per_s": 40.0}), [])
    time, change = engine.mobility.first()[0]
    assert change == Change("move", 1)
    for _ in range(2000):
        time, change = engine.mobility.following(change, time)
    assert change.index == 2001
    assert time == pytest.approx(2001 / 40, rel=0.07)  # three standard deviations of a mean of 2001 gaps
    assert engine.mobility.following(Change("repair", 4), 1.7) == (2.0, Change("repair", 5))


def test_a_move_draws_new_bandwidths_and_the_next_lease_is_timed_with_them(federations):
    engine = simulator(federations(**{"mobility.moves_per_s": 1.0}), [])
    engine.start()
    mobility, world = engine.mobility, engine.world
    before = world.send_s.copy()
    timelines = [world.timeline(edge, 99, 0.0) for edge in engine.edges]
    assert mobility.handle(Change("move", 3), 0.5) == []  # nothing for the cloud
    (client,) = mobility.moved
    edge = int(mobility.membership.home[client])
    drawn = mobility.paths.after_move(3)
    assert world.send_s[client] == mobility.send_s[edge, client] == drawn[edge] != before[client]
    assert np.delete(world.send_s, client).tolist() == np.delete(before, client).tolist()
    for other, timeline in zip(engine.edges, timelines, strict=True):
        again = world.timeline(other, 99, 0.0)
        assert (again == timeline) == (other.edge != edge)


def test_without_edges_a_client_uses_its_best_path_after_a_move_too(federations):
    engine = simulator(federations(**{**FLAT, "method": "fedavg", "mobility.absent": 0.0}), [])
    engine.mobility.handle(Change("move", 1), 0.5)
    (client,) = engine.mobility.moved
    edges = federations(**FLAT).population.resources.moved_send_s(1)
    assert len(edges) == 4
    assert engine.world.send_s[client] == edges.min()


def test_latency_and_waiting_are_those_of_the_clusters_as_they_are(federations):
    engine = simulator(federations(**{"mobility.absent": 0.7, "mobility.moves_per_s": 1.0}), [])
    assert (engine.figures()["response_latency_ms"], engine.figures()["waiting_ms"]) != (0.0, 0.0)
    engine.start()
    engine.mobility.handle(Change("move", 1), 1.0)
    send_s, compute_s = engine.mobility.send_s, engine.world.compute_s
    own = [
        [compute_s[k] + send_s[m, k] for k in cluster] for m, cluster in enumerate(engine.clusters) if cluster
    ]
    assert engine.figures()["response_latency_ms"] == pytest.approx(
        1000 * np.mean([max(each) for each in own])
    )
    waits = [np.mean(each) - min(each) for each in own]
    assert engine.figures()["waiting_ms"] == pytest.approx(1000 * np.mean(waits))


def test_repairs_and_joins_keep_to_the_edges_that_reach_a_client(federations):
    history: list[Any] = []
    engine = simulator(federations(**VARIANTS["near"]), history)
    engine.start()
    changed = 0
    for _ in range(300):
        engine.step()
        for _, kind, row in history:
            goes = [[row["client"], None, row["edge"]]] if kind == "join" else row.get("switched", [])
            for client, _, edge in goes:
                assert edge in np.argsort(engine.mobility.send_s[:, client])[:2]  # federation.reach
                changed += 1
        history.clear()
    assert changed > 5


def test_an_edge_that_waits_asks_again_with_what_its_new_cluster_will_take(federations):
    engine = simulator(federations(**{"mobility.leaves_per_s": 1.0}), [])
    engine.start()
    change, check_in = engine.mobility.handle(Change("leave", 1), 0.0)
    edge = engine.edges[change.edge]
    assert change.examples == edge.examples == sum(edge.workloads[k].examples for k in edge.everyone)
    assert len(edge.everyone) == 2  # of three
    latency_s = engine.world.compute_s + engine.mobility.send_s[edge.edge]
    assert check_in.request_id == edge.request_id == 2
    assert check_in.costs.train_s == pytest.approx(edge.rounds * latency_s[list(edge.everyone)].max())
    assert check_in.costs.compute_s == pytest.approx(
        edge.rounds * engine.world.compute_s[list(edge.everyone)].sum()
    )


def test_the_last_client_never_leaves_and_nobody_joins_who_is_there(federations):
    history: list[Any] = []
    engine = simulator(federations(**{"mobility.leaves_per_s": 50.0, "mobility.joins_per_s": 0.0}), history)
    engine.start()
    for _ in range(400):
        engine.step()
    leaves = [row["client"] for _, kind, row in history if kind == "leave"]
    assert len(leaves) == len(set(leaves)) == 11  # of 12 clients
    assert engine.cloud.version > 0
    everybody = simulator(federations(**{"mobility.joins_per_s": 1.0}), history)
    assert everybody.mobility.handle(Change("join", 1), 0.0) == []
    assert everybody.mobility.counts["joins"] == 0


def test_so_many_are_absent_at_first(federations):
    for absent, count in ((0.3, 8), (0.99, 1), (0.0, 12)):  # 12 - round(3.6); at least one
        engine = simulator(federations(**{"mobility.absent": absent, "mobility.moves_per_s": 1.0}), [])
        engine.start()
        assert sum(len(edge.everyone) for edge in engine.edges) == count
        assert sum(engine.cloud.examples.values()) == sum(edge.examples for edge in engine.edges)


def test_a_run_in_which_nothing_happens_is_the_run_without_mobility(run_tiny: Run) -> None:
    """Mobility is on, but its first event would be ages later."""
    for variant in ({}, {"cloud__enforce": "cancel", "cloud__threshold": 1}, {"method": "fedavg"}):
        off, idle = run_tiny(**variant), run_tiny(**variant, mobility__moves_per_s=1e-9)
        numbers = [{**run.to_dict(), "wall_s": 0, "config_digest": "", "mobility": {}} for run in (off, idle)]
        assert numbers[0] == numbers[1]
        assert off.mobility == {}
        still = 0.0 if variant.get("method") == "fedavg" else pytest.approx(off.total_js)
        assert idle.mobility.pop("mean_latency_ms") > 0
        assert idle.mobility == {
            "moves": 0, "joins": 0, "leaves": 0, "switches": 0, "mean_total_js": still, "repairs": []
        }  # fmt: skip


@pytest.mark.usefixtures("no_figures")
def test_the_first_event_is_about_the_clients_that_are_there(run_tiny: Run, tmp_path: Path) -> None:
    result = run_tiny(mobility__absent=0.7, stop__communications=5, directory=tmp_path / "run")
    start = json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[0])
    assert sum(start["cluster_sizes"]) == 4
    for name in ("cluster_sizes", "js_per_edge", "latency_per_edge_ms", "waiting_per_edge_ms"):
        assert start[name] == getattr(result, name)  # nobody moves, joins or leaves later


def test_divergence_and_latency_are_averaged_over_virtual_time(federations):
    engine = simulator(federations(**{"mobility.repair_s": 1.0, "mobility.switching_cost": 0.0}), [])
    engine.start()
    population = federations(**LIVELY).population

    def levels() -> list[float]:
        latency_s = population.resources.latency_s()
        own = [latency_s[edge, client] for edge, cluster in enumerate(engine.clusters) for client in cluster]
        return [sum(population.js_per_edge(engine.clusters)), 1000 * sum(own) / 12]

    before = levels()
    engine.mobility.handle(Change("repair", 1), 3.0)
    after = levels()
    assert after[0] < before[0]
    figures = engine.mobility.figures(4.0)  # three seconds as before, one as after
    means = [(3 * old + new) / 4 for old, new in zip(before, after, strict=True)]
    assert [figures["mean_total_js"], figures["mean_latency_ms"]] == pytest.approx(means)


def test_repairs_are_reported_as_they_happened(federations):
    history: list[Any] = []
    engine = simulator(federations(**LIVELY), history)
    engine.start()
    while engine.heap[0][0] < 4.0:
        engine.step()
    repairs = [(now, row) for now, kind, row in history if kind == "repair"]
    figures = engine.figures()["mobility"]
    assert [now for now, _ in repairs] == pytest.approx([0.4 * n for n in range(1, 10)])
    assert [row["virtual_s"] for row in figures["repairs"]] == [now for now, _ in repairs]
    assert [row["switches"] for row in figures["repairs"]] == [len(row["switched"]) for _, row in repairs]
    assert figures["switches"] == sum(len(row["switched"]) for _, row in repairs) > 0
    # The log alone tells who belongs where.
    home = {
        client: m
        for m, cluster in enumerate(simulator(federations(**LIVELY), []).clusters)
        for client in cluster
    }
    for _, kind, row in history:
        if kind == "join":
            assert row["client"] not in home
            home[row["client"]] = row["edge"]
        elif kind == "leave":
            assert home.pop(row["client"]) == row["edge"]
        elif kind == "move":
            assert home[row["client"]] == row["edge"]
        elif kind == "repair":
            for client, source, target in row["switched"]:
                assert home[client] == source != target
                home[client] = target
    assert engine.clusters == [sorted(k for k, m in home.items() if m == edge) for edge in range(4)]
    js = federations(**LIVELY).population.js_per_edge(engine.clusters)
    if history[-1][1] == "repair":
        assert sum(js) == pytest.approx(repairs[-1][1]["total_js"])


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("variant", ["admit", "cancel", "fedavg"])
def test_a_run_on_the_move_is_the_same_with_two_workers_and_when_resumed(
    variant: str, run_tiny: Run, resume_tiny: Run, tmp_path: Path
) -> None:
    options = {key.replace(".", "__"): value for key, value in VARIANTS[variant].items()}
    whole = run_tiny(**options, directory=tmp_path / "whole")
    assert_same_run(whole, run_tiny(**options, directory=tmp_path / "two", workers=2))
    counts = whole.mobility
    assert min(counts["moves"], counts["joins"], counts["leaves"]) > 0
    assert sum(whole.cluster_sizes) == round(0.7 * 12) + counts["joins"] - counts["leaves"]

    def pause_after(events: int) -> Callable[[], bool]:
        left = iter(range(events))
        return lambda: next(left, None) is None

    with pytest.raises(Paused):
        run_tiny(**options, directory=tmp_path / "parts", pause=pause_after(1))
    while True:
        try:
            resumed = resume_tiny(tmp_path / "parts", pause=pause_after(41))
            break
        except Paused:
            pass
    assert_same_run(whole, resumed)
    kinds = Counter(
        json.loads(line)["event"] for line in (whole.path / "events.jsonl").read_text().splitlines()
    )
    assert (kinds["move"], kinds["join"], kinds["leave"]) == (
        counts["moves"],
        counts["joins"],
        counts["leaves"],
    )
    assert kinds["repair"] == len(counts["repairs"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mobility.moves_per_s": -1.0}, "mobility.moves_per_s must be in [0, 1e6], got -1.0"),
        ({"mobility.joins_per_s": float("inf")}, "mobility.joins_per_s must be in [0, 1e6]"),
        ({"mobility.leaves_per_s": "often"}, "mobility.leaves_per_s must be in [0, 1e6]"),
        ({"mobility.absent": 1.0}, "mobility.absent must be in [0, 1), got 1.0"),
        ({"mobility.repair_s": 0.0}, 'mobility.repair_s must be in [0.0001, 1e12] or "none", got 0.0'),
        ({"mobility.switching_cost": -5.0}, "mobility.switching_cost must be in [0, 1e12]"),
        ({"mobility.repair": 3.0}, "unknown key mobility.repair; did you mean mobility.repair_s?"),
        (
            {"method": "fedavg", "mobility.repair_s": 5.0},
            "needs edges, and fedavg has none (federation.flat)",
        ),
        (
            {"mobility.absent": 0.1, "federation.clients": 1_000_000, "federation.edges": 501},
            "must be at most 500,000,000, got 501,000,000",
        ),
        ({"method": "centralized", "mobility.absent": 0.5}, "centralized has none; leave it out"),
        (
            {"method": "fedat", "mobility.absent": 0.5},
            "the edges of fedat are latency tiers",
        ),
    ],
)
def test_impossible_settings_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**given)
    assert said in caught.value.problems[0]


def test_a_repair_needs_no_rates_and_a_comparison_leaves_out_what_does_not_apply() -> None:
    from hiflash.study.compare import comparison_cells

    assert Config(**{"mobility.repair_s": 5.0}).mobility.active
    assert not Config(**{"mobility.switching_cost": 5.0}).mobility.active
    settings = {"mobility.repair_s": 5.0, "mobility.moves_per_s": 1.0}
    cells = comparison_cells(methods=["hifl", "fedavg", "centralized"], seeds=1, settings=settings)
    assert [cell.config.mobility.repair_s for cell in cells] == [5.0, "none", "none"]
    assert [cell.config.mobility.moves_per_s for cell in cells] == [1.0, 1.0, 0.0]


def test_mobility_from_the_command_line(tmp_path: Path) -> None:
    def hiflash_run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hiflash", "run", "--name", "moving", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    wrong = hiflash_run("--mobility.leaves_per_s=-1")
    assert wrong.returncode == 2
    assert "mobility.leaves_per_s must be in [0, 1e6], got -1" in wrong.stderr
    assert not (tmp_path / "runs").exists()
    (tmp_path / "moving.toml").write_text(
        "[mobility]\nmoves_per_s = 5\njoins_per_s = 2\nleaves_per_s = 2\nabsent = 0.25\nrepair_s = 0.5\n"
    )
    done = hiflash_run("moving.toml", "--trainer=none", "--stop.virtual_s=3", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    lines = (tmp_path / "runs/moving/events.jsonl").read_text().splitlines()
    kinds = Counter(json.loads(line)["event"] for line in lines)
    assert len(result["mobility"]["repairs"]) == kinds["repair"] == 5  # the stop comes before the sixth
    assert result["mobility"]["moves"] == kinds["move"] > 0
    assert sum(result["cluster_sizes"]) == 75 + kinds["join"] - kinds["leave"]
    assert result["total_js"] == pytest.approx(sum(result["js_per_edge"]))
    assert result["communications"] > 10
