"""Deployed federations: the simulator's digest where it can be, the journal's digest always."""

import json

import numpy as np
import pytest

pytest.importorskip("grpc", reason='needs pip install "hiflash[serve]"')

import hiflash
from hiflash.errors import ConfigError
from hiflash.methods.recipes import METHODS
from hiflash.serve.journal import SqliteJournal
from hiflash.serve.kernel import replay
from hiflash.serve.state import JOURNAL
from hiflash.store.checkpoint import load_checkpoint
from hiflash.weights import digest
from serve.inside import Inside, tiny_config
from tiny import make_norm_model

SMALL = {"cloud.participants": 2}
METHOD_SETTINGS = {
    "tifl": {"cloud.tiers": 2},
    "fedasync": {"cloud.concurrency": 2},
    "fedbuff": {"cloud.concurrency": 2, "cloud.buffer": 2},
}


def settings_of(method: str) -> dict:
    synchronous = METHODS[method].settings.get("cloud.schedule") == "sync"
    return {"method": method, **(SMALL if synchronous else {}), **METHOD_SETTINGS.get(method, {})}


def replayed(inside: Inside) -> str:
    """Return the digest that the journal leads to, from its first row."""
    live = inside.deploy().live(lambda now, kind, row: None)
    journal = SqliteJournal(inside.state / JOURNAL)
    try:
        replay(live, journal.rows())
    finally:
        journal.close()
    return digest(live.weights)


@pytest.mark.parametrize("method", ["hierfavg", "fedavg", "fedprox", "fedavgm", "fedadam", "fednova"])
def test_a_synchronous_method_ends_with_the_simulators_digest(method, tmp_path):
    inside = Inside(tiny_config(**settings_of(method)), tmp_path)
    deployed, simulated = inside.run(), inside.simulated()
    assert deployed.digest == simulated.digest == replayed(inside)
    for name in ("version", "communications", "client_steps", "client_uploads", "wan_bytes", "lan_bytes"):
        assert getattr(deployed, name) == getattr(simulated, name), name
    rows = [(row["communications"], row["version"], row["accuracy"]) for row in deployed.evaluations]
    assert rows == [(row["communications"], row["version"], row["accuracy"]) for row in simulated.evaluations]


@pytest.mark.parametrize(
    "method", ["hifl", "hiflash", "fedat", "fedasync", "fedbuff", "tifl", "scaffold", "feddyn", "fedyogi"]
)
def test_every_other_method_runs_deployed_and_ends_with_the_digest_of_its_journal(method, tmp_path):
    extra = {"cloud.threshold": "parallel"} if method == "hiflash" else {}  # tiny data have no agent
    inside = Inside(tiny_config(**settings_of(method), **extra), tmp_path)
    result = inside.run()
    assert result.digest == replayed(inside)
    assert result.communications == 12
    assert result.evaluations[-1]["communications"] == 12


@pytest.mark.parametrize(
    "settings",
    [
        {"wan.upload": "topk", "wan.download": "topk", "wan.topk": 0.2},
        {"wan.upload": "int8", "wan.download": "fp16"},
        {"edge.aggregate": "median"},
        {"cost.accounting": "paper"},
        {"client.algorithm": "scaffold"},
        {"client.algorithm": "feddyn", "cloud.enforce": "cancel"},
        {"client.algorithm": "function", "client.function": "tiny:train_named", "client.extra_values": 2},
        {"cloud.mixing": "delta", "cloud.momentum": 0.5, "edge.edge_rounds": [2], "cloud.enforce": "discard"},
    ],
    ids=lambda settings: next(iter(settings.values())),
)
def test_parts_of_asynchronous_methods_run_deployed(settings, tmp_path):
    inside = Inside(tiny_config(**settings), tmp_path)
    result = inside.run()
    assert result.digest == replayed(inside)
    assert np.isfinite(result.weights).all()


def test_a_deployed_cloud_holds_the_validation_set_and_stops_on_it(tmp_path):
    config = tiny_config(**settings_of("hierfavg"), **{"evaluate.validation": 0.2, "evaluate.every": 2})
    whole = Inside(config, tmp_path / "whole").simulated()
    target = whole.evaluations[2]["validation_accuracy"]
    first = next(row for row in whole.evaluations if row["validation_accuracy"] >= target)
    inside = Inside(config.with_settings({"stop.target": target}), tmp_path / "stopped")
    deployed, simulated = inside.run(), inside.simulated()
    assert deployed.stop_reason == simulated.stop_reason == f"target {target} reached on the validation set"
    assert simulated.communications == first["communications"]
    names = ("version", "accuracy", "validation_accuracy", "validation_loss")
    reached = [[row[name] for name in names] for row in simulated.evaluations]
    # Testing takes time, so a deployed cloud may go on a little before it knows.
    assert [[row[name] for name in names] for row in deployed.evaluations][: len(reached)] == reached
    assert deployed.validation["samples"] == 60
    assert deployed.digest == replayed(inside)


@pytest.mark.parametrize("codec", ["fp16", "int8", "topk"])
def test_a_compressed_synchronous_run_has_the_simulators_digest(codec, tmp_path):
    config = tiny_config(**settings_of("hierfavg"), **{"wan.upload": codec, "wan.download": codec})
    inside = Inside(config, tmp_path)
    assert inside.run().digest == inside.simulated().digest


def test_clients_keep_their_batch_norm_and_the_digest_is_the_simulators(tmp_path):
    config = tiny_config(**settings_of("hierfavg"), **{"client.batch_norm": "local"})
    inside = Inside(config, tmp_path, make_norm_model)
    assert inside.run().digest == inside.simulated().digest
    memory = load_checkpoint(tmp_path / "client-0.safetensors")["memory"]
    assert memory.after.kept.shape == (20,)  # weight, bias, mean and variance of 5 features


def test_calls_have_room_for_the_states_of_flat_feddyn(tmp_path):
    """A simulation does not count them, because an exact cloud could work them out; yet they travel."""
    inside = Inside(tiny_config(**settings_of("feddyn")), tmp_path)
    assert inside.deployment.wire.beside >= inside.deployment.federation.start.trained


def test_a_state_folder_reads_like_a_run_directory(tmp_path):
    inside = Inside(tiny_config(method="hierfavg", **SMALL), tmp_path)
    result = inside.run()
    again = hiflash.resume(inside.state)  # finished, so it is only read
    assert again.digest == result.digest
    rows = [json.loads(line) for line in (inside.state / "events.jsonl").read_text().splitlines()]
    assert rows[0]["event"] == "start"
    assert rows[-1]["event"] == "stop"
    assert rows[-1]["digest"] == result.digest
    kinds = {row["event"] for row in rows}
    assert {"grant", "edge_round", "upload", "round", "evaluate"} <= kinds
    assert sum(row["steps"] for row in rows if row["event"] == "edge_round") == result.client_steps


def test_a_snapshot_journal_forgets_and_still_ends_with_its_digest(tmp_path):
    config = tiny_config(**{"serve.keep": "snapshot", "serve.snapshot_rows": 3})
    inside = Inside(config, tmp_path)
    result = inside.run()
    journal = SqliteJournal(inside.state / JOURNAL)
    state = load_checkpoint(inside.state / "checkpoint.safetensors")
    live = inside.deploy().live(lambda now, kind, row: None)
    live.restore(state["live"])
    assert journal.first > 1
    replay(live, journal.rows(state["number"]))
    journal.close()
    assert digest(live.weights) == result.digest


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "centralized"}, "nothing to deploy"),
        ({"trainer": "none"}, "deployed clients train"),
        ({"executor": "ray"}, "processes of their own"),
        ({"attack.kind": "sign_flip", "attack.share": 0.5}, "attack.kind"),
        ({"mobility.moves_per_s": 1.0}, "mobility"),
        ({"evaluate.clients": 0.2}, "evaluate.clients"),
        ({"serve.data": "own", "evaluate.validation": 0.2}, "evaluate.validation holds back"),
        ({"serve.data": "own", "federation.association": "heterogeneity"}, "needs the labels"),
        ({"method": "fedavg", **SMALL, "serve.keep_client_updates": False}, "keep_client_updates"),
        ({"edge.clients_per_round": 1, "serve.keep_client_updates": False}, "keep_client_updates"),
        ({"edge.clients_per_round": 0.5, "serve.keep_client_updates": False}, "a round of edge 0 has one"),
        ({"federation.edges": 4, "serve.keep_client_updates": False}, "a round of edge 0 has one client"),
    ],
)
def test_what_cannot_be_deployed_says_why(settings, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        Inside(tiny_config(**settings), tmp_path)
