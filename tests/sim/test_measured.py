"""Federations from files and arrays in a run: their times, their association, and who is there when."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash.config import Config
from hiflash.core.association.strategies import random_association
from hiflash.data.federation import files
from hiflash.data.federation.example import make_example
from hiflash.errors import ConfigError, Paused
from hiflash.sim.federation import build, survey
from hiflash.study.federation import write_federation
from tiny import TINY, assert_same_run, make_tiny_data, make_tiny_model

INF = np.inf
FOUR: dict[str, Any] = {
    "step_ms": [1, 2, 3, 4],
    "send_ms": [[10, 50], [20, 50], [50, 30], [50, 40]],
    "association": [0, 0, 1, 1],
    "wan_rtt_ms": [100, 200],
    "wan_bandwidth_mbps": [8, 16],
}
SMALL: dict[str, Any] = {
    key: value for key, value in TINY.items() if key not in ("federation.clients", "federation.edges")
}
PLAN: dict[str, Any] = {**SMALL, "trainer": "none", "data.name": "none"}


def planned(federation: hiflash.FederationData, **settings: Any) -> Any:
    """Return the simulator of a plan, before its first event."""
    given = {**PLAN, "federation.files": hiflash.data.federation.remember(federation), **settings}
    return build(Config(**given)).engine(lambda *_: None)


def test_measured_times_are_those_of_the_run() -> None:
    result = hiflash.run(federation=hiflash.FederationData(**FOUR), **PLAN)
    # Three steps and a model: 3 * 1 + 10, 3 * 2 + 20 and 3 * 3 + 30, 3 * 4 + 40 ms.
    assert result.latency_per_edge_ms == pytest.approx([26, 52])
    assert result.waiting_per_edge_ms == pytest.approx([13 / 2, 13 / 2])
    assert result.cluster_sizes == [2, 2]
    assert result.partition == "none"


def test_latency_and_bandwidth_add_up_and_the_rest_is_drawn_as_ever() -> None:
    engine = planned(hiflash.FederationData(bandwidth_mbps=[[6.9888, 13.9776]] * 4, latency_ms=[[4, 9]] * 4))
    values = engine.world.payloads.model // 4
    home = {client: edge.edge for edge in engine.edges for client in edge.everyone}
    for client in range(4):
        mbps, delay_ms = ((6.9888, 4), (13.9776, 9))[home[client]]
        assert engine.world.send_s[client] == pytest.approx(delay_ms / 1e3 + values * 32 / (mbps * 1e6))
    # With latencies alone, they come on top of the sending time that is drawn without them.
    alike = {"federation.clients": 4, "federation.edges": 2}
    drawn = build(Config(**{**PLAN, **alike})).engine(lambda *_: None)
    delayed = planned(hiflash.FederationData(latency_ms=[[7, 7]] * 4))
    assert delayed.world.send_s == pytest.approx(drawn.world.send_s + 0.007)
    assert delayed.world.compute_s.tolist() == drawn.world.compute_s.tolist()


def test_links_to_the_cloud_are_measured_and_flat_clients_take_that_of_their_best_edge() -> None:
    links = planned(hiflash.FederationData(**FOUR)).world.links
    assert [(link.rtt_s, link.bytes_per_s) for link in links] == [(0.1, 1e6), (0.2, 2e6)]
    flat = planned(hiflash.FederationData(**FOUR), method="fedavg", **{"cloud.participants": 2})
    assert [link.rtt_s for link in flat.world.links] == [
        0.1,
        0.1,
        0.2,
        0.2,
    ]  # 10 < 50, 20 < 50, 30 < 50, 40 < 50
    assert flat.world.send_s == pytest.approx([0.01, 0.02, 0.03, 0.04])


def test_a_frequency_gives_the_time_of_the_cost_model() -> None:
    found = planned(hiflash.FederationData(f_ghz=[1.5, 3.0], samples=[600, 600]), **{"federation.edges": 1})
    # 3 steps of 8 samples of 784 bytes, 20 cycles per bit: 3 * 8 * 784 * 8 * 20 / 1.5e9 s.
    assert found.world.compute_s == pytest.approx([0.002007, 0.0010035], rel=1e-3)


def test_clients_and_edges_are_counted_in_the_files_and_a_contradiction_names_both(tmp_path: Path) -> None:
    write_federation(make_example(30, 3), tmp_path / "f")
    config = Config(**{"federation.files": str(tmp_path / "f")})
    assert (config.federation.clients, config.federation.edges) == (30, 3)
    with pytest.raises(ConfigError, match=r"federation.clients is 40, and .*latency_ms.csv has 30 clients"):
        config.with_settings({"federation.clients": 40})
    assert config.with_settings({"federation.clients": 30}) == config
    other = Config(**{"federation.files": str(tmp_path / "f")})
    write_federation(make_example(12, 4), tmp_path / "g")
    moved = Config.load(None, config.settings()).with_settings({"federation.files": str(tmp_path / "g")})
    assert (moved.federation.clients, moved.federation.edges) == (12, 4)
    assert other.digest() == config.digest() != moved.digest()


def test_the_folder_is_relative_to_the_current_folder_and_saved_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_federation(make_example(30, 3), tmp_path / "f")
    write_federation(make_example(30, 3), tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    config = Config(**{"federation.files": "f"})
    assert f'files = "{tmp_path / "f"}"' in config.to_toml()
    monkeypatch.chdir("/")
    assert config.with_settings({"seed": 1}).federation.files == str(tmp_path / "f")
    # What decides a run is what the files say, not where they are.
    assert config.with_settings({"federation.files": str(tmp_path / "copy")}).digest() == config.digest()


@pytest.mark.parametrize(
    ("arrays", "given", "said"),
    [
        (FOUR, {"resources.f_ghz": [2, 3]}, "resources.f_ghz has no effect: step_ms gives step_ms"),
        (FOUR, {"resources.bandwidth_mhz": [2, 3]}, "resources.bandwidth_mhz has no effect: send_ms gives"),
        (FOUR, {"wan.rtt_ms": [2, 3]}, "wan.rtt_ms has no effect"),
        ({"step_ms": [1, 2]}, {"federation.association": "given", "federation.edges": 1}, "needs an assoc"),
        ({"availability": [(1, 0, "leave")]}, {"mobility.moves_per_s": 1.0}, "moves_per_s draws what"),
        ({"availability": [(1, 0, "leave")]}, {"resources.slow_edge": 2.0}, "slow_edge needs fixed clusters"),
        ({"availability": [(1, 0, "leave")]}, {"method": "fedat"}, "are latency tiers"),
        ({"availability": [(1, 999, "leave")]}, {}, "there is no client 999"),
    ],
)  # fmt: skip
def test_settings_that_files_leave_without_effect_are_errors(arrays: dict, given: dict, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        hiflash.run(federation=hiflash.FederationData(**arrays), **PLAN, **given)
    assert said in str(raised.value)


def test_a_given_association_needs_files() -> None:
    with pytest.raises(ConfigError, match=r"needs federation\.files"):
        Config(**{"federation.association": "given"})


def test_an_association_file_is_taken_where_a_method_has_places_and_no_other_is_asked_for() -> None:
    named = {"federation.files": hiflash.data.federation.remember(kept := hiflash.FederationData(**FOUR))}
    assert kept.edges == 2
    assert Config(method="hiflash", **named).federation.association == "given"
    assert Config(method="fedat", **named).federation.association == "latency"
    assert (
        Config(method="hifl", **named, **{"federation.association": "random"}).federation.association
        == "random"
    )


def test_random_clusters_stay_in_reach_and_balanced() -> None:
    reachable = np.zeros((3, 60), np.bool_)
    reachable[0, :30] = reachable[1, 20:] = reachable[2, 20:] = True
    clusters = random_association(60, 3, np.random.default_rng(0), reachable)
    assert sorted(client for cluster in clusters for client in cluster) == list(range(60))
    assert all(reachable[edge, client] for edge, cluster in enumerate(clusters) for client in cluster)
    # 20 clients reach edge 0 alone; 10 reach all three and 30 the others, so all clusters end with 20.
    assert [len(cluster) for cluster in clusters] == [20, 20, 20]


@pytest.mark.parametrize("association", ["random", "heterogeneity", "data"])
def test_associations_respect_reach(association: str) -> None:
    made = make_example(60, 6, seed=1)
    name = hiflash.data.federation.remember(made)
    config = Config(**{**PLAN, "federation.files": name, "federation.association": association})
    clusters = build(config).population.clusters
    assert made.reachable is not None
    assert all(made.reachable[client, edge] for edge, cluster in enumerate(clusters) for client in cluster)
    assert sum(map(len, clusters)) == 60


def test_an_association_that_knows_no_reach_is_refused_with_the_client() -> None:
    name = hiflash.data.federation.remember(kept := make_example(60, 6, seed=1))
    assert kept.edges == 6
    with pytest.raises(ConfigError, match=r"edge-iid puts client \d+ on edge \d, which does not reach it"):
        build(Config(**{**PLAN, "federation.files": name, "federation.association": "edge-iid"}))


def test_given_samples_must_be_those_of_the_training_data(run_tiny: Callable[..., hiflash.Result]) -> None:
    data = make_tiny_data()
    config = Config(**{**TINY, "data.name": "own", "model.name": "own"})
    population = build(config, data, make_tiny_model).population
    samples = population.examples.tolist()
    right = hiflash.FederationData(samples=samples, labels=population.labels)
    assert hiflash.run(data=data, model=make_tiny_model, federation=right, **TINY).accuracy is not None
    wrong = hiflash.FederationData(samples=[samples[0] + 1, *samples[1:]])
    with pytest.raises(ConfigError, match=r'samples has \d+ for client 0.*or use trainer = "none"'):
        hiflash.run(data=data, model=make_tiny_model, federation=wrong, **TINY)
    plan = hiflash.run(data=data, model=make_tiny_model, federation=wrong, trainer="none", **TINY)
    assert plan.partition == "given"


def test_training_is_the_same_with_measured_times_that_change_no_order(
    run_tiny: Callable[..., hiflash.Result],
) -> None:
    """A synchronous round waits for everyone, so the times of links change no model."""
    data = {"data": make_tiny_data(), "model": make_tiny_model, **TINY}
    drawn = hiflash.run(method="hierfavg", **data, **{"edge.clients_per_round": 2})
    timed = hiflash.FederationData(send_ms=np.full((12, 4), 5.0), step_ms=np.full(12, 2.0))
    measured = hiflash.run(method="hierfavg", federation=timed, **data, **{"edge.clients_per_round": 2})
    assert measured.digest == drawn.digest
    assert measured.virtual_s != drawn.virtual_s


EVENTS = [
    (0.2, 3, "leave"),
    (0.3, 5, "join"),
    (0.35, 7, "move", 2, 1.5),
    (0.4, 3, "join", 1),
    (0.5, 7, "leave"),
    (0.5, 8, "move", 0),
    (0.9, 7, "join"),
]


@pytest.mark.parametrize("method", ["hifl", "hierfavg", "fedavg", "fedasync"])
def test_a_schedule_happens_when_it_says_and_a_stop_changes_nothing(tmp_path: Path, method: str) -> None:
    made = hiflash.FederationData(
        send_ms=np.full((12, 4), 3.0), step_ms=np.linspace(0.5, 4, 12), availability=EVENTS
    )
    common: dict[str, Any] = {
        **TINY, "method": method, "data": make_tiny_data(), "model": make_tiny_model, "federation": made,
        **({"edge.clients_per_round": 2} if method == "hierfavg" else {}),
    }  # fmt: skip
    common["stop.communications"] = 200
    whole = hiflash.run(directory=tmp_path / "whole", **common)
    assert (whole.mobility["joins"], whole.mobility["leaves"], whole.mobility["moves"]) == (3, 2, 2)
    rows = [json.loads(line) for line in (tmp_path / "whole" / "events.jsonl").read_text().splitlines()]
    seen = [
        (row["t"], row["client"], row["event"]) for row in rows if row["event"] in ("join", "leave", "move")
    ]
    assert seen == [(time, client, event) for time, client, event, *_ in EVENTS]
    assert sum(whole.cluster_sizes) == 12
    asked = iter(range(10**9))
    with pytest.raises(Paused):
        hiflash.run(directory=tmp_path / "cut", pause=lambda: next(asked) == 150, **common)
    files._remembered.clear()  # as in another process
    with pytest.raises(ConfigError, match="begun with arrays in Python"):
        hiflash.resume(tmp_path / "cut", data=common["data"], model=make_tiny_model)
    rest = {"data": common["data"], "model": make_tiny_model, "federation": made}
    assert_same_run(hiflash.resume(tmp_path / "cut", workers=2, **rest), whole)


def test_a_scheduled_move_changes_the_edge_and_its_link() -> None:
    made = hiflash.FederationData(**{**FOUR, "availability": [(1.0, 0, "move", 1, 25.0), (2.0, 3, "leave")]})
    engine = planned(made, **{"stop.communications": 1000, "edge.edge_rounds": [1]})
    engine.start()
    while engine.now < 3:
        engine.step()
    assert engine.clusters == [[1], [0, 2]]
    assert engine.world.send_s[0] == pytest.approx(0.025)
    flat = planned(made, method="fedasync")
    flat.start()
    while flat.now < 1.5:
        flat.step()
    assert flat.world.send_s[0] == pytest.approx(0.025)


def test_clients_whose_first_event_is_a_join_are_absent_at_the_start() -> None:
    made = hiflash.FederationData(
        **{**FOUR, "availability": [(5.0, 1, "join"), (6.0, 2, "leave"), (7.0, 2, "join")]}
    )
    assert planned(made).clusters == [[0], [2, 3]]


def test_drawn_moves_lead_to_the_place_of_another_client_and_never_out_of_reach() -> None:
    made = replace(make_example(40, 5, seed=2), availability=None)
    settings = {"mobility.moves_per_s": 40.0, "stop.virtual_s": 8.0, "stop.communications": "none"}
    result = hiflash.run(federation=made, **{**PLAN, **settings})
    assert result.mobility["moves"] > 200
    assert np.isfinite(result.response_latency_ms)
    assert np.isfinite(result.mobility["mean_latency_ms"])


def test_labels_of_files_stand_in_for_data_and_a_survey_takes_them(tmp_path: Path) -> None:
    write_federation(made := make_example(30, 3), tmp_path / "f")
    config = Config(**{"federation.files": str(tmp_path / "f"), "federation.association": "heterogeneity"})
    data, population = survey(config)
    assert data is not None
    assert population.labels.tolist() == made.labels.tolist()
    without = hiflash.FederationData(step_ms=[1.0, 2.0, 3.0])
    name = hiflash.data.federation.remember(without)
    blind = Config(
        **{**PLAN, "federation.files": name, "federation.edges": 1, "federation.association": "data"}
    )
    with pytest.raises(ConfigError, match=r"give labels in federation\.files"):
        build(blind)
