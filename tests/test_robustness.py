"""Rules, malicious clients and BatchNorm that stays local, in whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import hiflash
from hiflash import Config
from hiflash.config.tree import inapplicable
from hiflash.core.attack import draw_malicious
from hiflash.data import flip_labels
from hiflash.errors import ConfigError, Paused
from hiflash.execute.executor import LazyExecutor
from hiflash.sim.build import Materials, simulator
from hiflash.sim.federation import build
from hiflash.train.models import FlatModel, batch_norm_spans, resnet
from hiflash.weights import cut, graft
from tiny import TINY, assert_same_run, make_norm_model, make_tiny_data, make_tiny_model

DATA = make_tiny_data()
CROWDED = {"federation.edges": 2}  # six clients each

VARIANTS: dict[str, dict[str, Any]] = {
    "clipped clients": {"method": "hifl", "client.clip_norm": 0.1},
    "krum": {
        "method": "hifl", **CROWDED, "edge.aggregate": "krum", "edge.krum_keep": 2,
        "attack.kind": "sign_flip", "cloud.enforce": "discard", "cloud.threshold": 0,
    },
    "trimmed mean": {
        "method": "hierfavg", **CROWDED, "edge.clients_per_round": 5, "edge.aggregate": "trimmed_mean",
        "cloud.aggregate": "median", "attack.kind": "noise",
    },
    "norm clipping": {
        "method": "hifl", "edge.aggregate": "norm_clip", "edge.clip_norm": 0.3, "attack.kind": "nan",
    },
    "flat": {
        "method": "fedavg", "cloud.participants": 6, "cloud.aggregate": "krum", "attack.kind": "label_flip",
    },
    "FedBN": {"method": "hifl", "client.batch_norm": "local", "cloud.mixing": "delta"},
    "FedBN of drawn clients": {
        "method": "hierfavg", "edge.clients_per_round": 2, "client.batch_norm": "local",
        "attack.kind": "label_flip",
    },
    "FedBN of discarded work": {
        "method": "hifl", "client.batch_norm": "local", "cloud.enforce": "discard", "cloud.threshold": 1,
    },
}  # fmt: skip


# 25 samples a client: in batches of 9 there is none of one sample, which BatchNorm cannot have.
SMALL = {**TINY, "client.batch": 9, "client.local_steps": 2, "stop.communications": 20, "evaluate.every": 10}


def model_of(settings: dict[str, Any]) -> Callable[[], nn.Module]:
    return make_norm_model if "client.batch_norm" in settings else make_tiny_model


def run(directory: Path | None = None, pause: Any = None, **settings: Any) -> hiflash.Result:
    model = model_of(settings)
    return hiflash.run(data=DATA, model=model, directory=directory, pause=pause, **{**SMALL, **settings})


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_option_gives_the_same_run_with_two_workers_and_in_pieces(variant: str, tmp_path: Path) -> None:
    settings = VARIANTS[variant]
    whole = run(tmp_path / "whole", **settings)
    assert_same_run(whole, run(tmp_path / "two", **settings, workers=2))

    def pause_after(events: int) -> Callable[[], bool]:
        left = iter(range(events))
        return lambda: next(left, None) is None

    with pytest.raises(Paused):
        run(tmp_path / "pieces", pause=pause_after(21), **settings)
    for piece in range(100):
        try:
            resumed = hiflash.resume(
                tmp_path / "pieces",
                data=DATA,
                model=model_of(settings),
                pause=pause_after(33),
                workers=1 + piece % 2,
            )
            break
        except Paused:
            continue
    assert piece > 0
    assert_same_run(whole, resumed)


@pytest.mark.parametrize("variant", ["FedBN", "FedBN of discarded work", "krum"])
def test_it_does_not_matter_when_a_round_is_computed(variant: str) -> None:
    settings = {**SMALL, **VARIANTS[variant]}
    config = Config(data={"name": "own"}, model={"name": "own"}, trainer="torch", **settings)
    digests = []
    for lazy in (False, True):
        federation = build(config, DATA, model_of(settings))
        pool = federation.pool
        executor: Any = LazyExecutor(pool, pool.rules) if lazy else pool
        engine = simulator(config, federation.population, federation.start, Materials(executor=executor))
        engine.start()
        while max(engine.used().values()) < 1:
            engine.step()
        digests.append(
            (engine.weights.tobytes(), {k: v.tobytes() for k, v in sorted(engine.training.kept.items())})
        )
        federation.close()
    assert digests[0] == digests[1]


@pytest.mark.parametrize("kind", ["sign_flip", "noise"])
def test_two_of_ten_poisoned_clients_ruin_a_mean_and_no_robust_rule(kind: str) -> None:
    common: dict[str, Any] = {
        "method": "fedavg", "data.partition": "iid", "federation.clients": 10, "federation.edges": 1,
        "stop.communications": 300, "stop.client_steps": 900, "evaluate.every": 300,
    }  # fmt: skip
    clean = run(**common).accuracy
    assert clean > 0.85
    common |= {"attack.kind": kind, "attack.share": 0.2}
    assert run(**common).accuracy < clean - 0.2
    for rule in (
        {"cloud.aggregate": "median"},
        {"cloud.aggregate": "trimmed_mean"},
        {"cloud.aggregate": "krum", "cloud.byzantine": 2, "cloud.krum_keep": 5},
    ):
        assert run(**common, **rule).accuracy > clean - 0.03, rule


def test_malicious_clients_that_send_nan_are_left_out_and_not_counted() -> None:
    seen = []
    common = {"method": "hifl", "attack.kind": "nan", "attack.share": 0.25}
    config = Config(data={"name": "own"}, model={"name": "own"}, **{**SMALL, **common})
    federation = build(config, DATA, make_tiny_model)
    engine = federation.engine(lambda *_: None)
    engine.start()
    handle = engine.cloud.handle
    engine.cloud.handle = lambda event: (seen.append(event), handle(event))[1]
    while max(engine.used().values()) < 1:
        engine.step()
    federation.close()
    malicious = draw_malicious(12, 0.25, config.seed)
    counts = federation.population.examples
    for upload in (event for event in seen if isinstance(event, hiflash.messages.Upload)):
        honest = [k for k in engine.edges[upload.edge].everyone if k not in malicious]
        assert upload.examples == sum(int(counts[k]) for k in honest)
        assert np.isfinite(upload.weights).all()


def test_flipped_labels_are_those_of_malicious_clients_alone() -> None:
    x, y = np.arange(6, dtype=np.float32)[:, None], np.array([0, 1, 2, 3, 0, 1])
    parts = [np.array([0, 1]), np.array([1, 5, 3]), np.array([4])]
    new_x, new_y, new_parts = flip_labels(x, y, parts, frozenset({1, 2}), classes=4)
    assert [new_x[part, 0].tolist() for part in new_parts] == [[0, 1], [1, 5, 3], [4]]
    assert [new_y[part].tolist() for part in new_parts] == [[0, 1], [2, 2, 0], [3]]  # 3 - label
    assert y.tolist() == [0, 1, 2, 3, 0, 1]
    assert new_y.dtype == y.dtype


def test_the_entries_of_batch_norm_are_found_in_the_flat_vector() -> None:
    # Linear(36, 5): 180 + 5; BatchNorm1d(5): 5 + 5; Linear(5, 4): 20 + 4; then running mean and variance.
    assert batch_norm_spans(make_norm_model()) == ((185, 195), (219, 229))
    assert batch_norm_spans(make_tiny_model()) == ()
    assert batch_norm_spans(nn.BatchNorm1d(3)) == ((0, 12),)
    module = resnet()
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    expected = 4 * sum(layer.num_features for layer in norms)
    assert sum(stop - start for start, stop in batch_norm_spans(module)) == expected
    flat = FlatModel(module, next(module.parameters()).device)
    for layer in norms:
        layer.weight.data.fill_(7.0)
        layer.bias.data.fill_(7.0)
        layer.running_mean.fill_(7.0)
        layer.running_var.fill_(7.0)
    assert (cut(flat.weights(), batch_norm_spans(module)) == 7).all()
    assert (flat.weights() == 7).sum() == expected


def test_what_is_cut_out_can_be_grafted_in() -> None:
    values = np.arange(6, dtype=np.float32)
    assert graft(values, ((1, 2), (4, 6)), np.float32([10, 20, 30])).tolist() == [0, 10, 2, 3, 20, 30]
    assert values.tolist() == [0, 1, 2, 3, 4, 5]


def test_local_batch_norm_makes_a_difference_and_every_client_ends_up_with_its_own() -> None:
    local = run(method="hifl", **{"client.batch_norm": "local"})
    assert local.digest != run(method="hifl", **{"client.batch_norm": "average"}).digest


def test_variances_stay_positive_under_delta_mixing() -> None:
    def model() -> nn.Module:
        module = make_norm_model()
        module[1].weight.data *= 0.01  # every edge sees variances far below the 1 that they start from
        return module

    settings = {**SMALL, "client.lr": 1e-6, "client.local_steps": 8, "stop.communications": 8}
    mixing = {"mixing": "delta", "alpha": 1.0, "threshold": "inf"}
    result = hiflash.run(data=DATA, model=model, method="hifl", cloud=mixing, **settings)
    assert (result.weights[224:229] > 0).all()


def test_a_model_without_batch_norm_cannot_keep_it_local(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a model with BatchNorm, and own has none; leave it out"):
        hiflash.run(
            data=DATA, model=make_tiny_model, directory=tmp_path / "run", client={"batch_norm": "local"}
        )
    assert list(tmp_path.iterdir()) == []


def problems(**given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Config(**given)
    return caught.value.problems


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"edge.aggregate": "trimmed_mean", "edge.trim": 0.5},
            "edge.trim must be in [0, 0.5), got 0.5. The default is 0.2.",
        ),
        (
            {"edge.trim": 0.1},
            'edge.trim is for edge.aggregate = "trimmed_mean", and here that is "mean"; leave it out',
        ),
        (
            {"edge.byzantine": 2},
            'edge.byzantine is for edge.aggregate = "krum", and here that is "mean"; leave it out',
        ),
        (
            {"edge.clip_norm": 1.0},
            'edge.clip_norm is for edge.aggregate = "norm_clip", and here that is "mean"; leave it out',
        ),
        (
            {"edge.aggregate": "norm_clip"},
            'edge.aggregate = "norm_clip" needs edge.clip_norm, a number > 0',
        ),
        (
            {"edge.aggregate": "krum", "edge.byzantine": 2, "edge.clients_per_round": 6},
            'edge.aggregate = "krum" with edge.byzantine = 2 and edge.krum_keep = 1 needs 7 models, '
            "and edge.clients_per_round is 6",
        ),
        (
            {"edge.aggregate": "krum", "edge.byzantine": 2, "edge.clients_per_round": 0.06},
            'edge.aggregate = "krum" with edge.byzantine = 2 and edge.krum_keep = 1 needs 7 models, '
            "and edge.clients_per_round = 0.06 of all clients is 6",
        ),
        (
            {"method": "fedavg", "cloud.aggregate": "krum", "cloud.byzantine": 4},
            'cloud.aggregate = "krum" with cloud.byzantine = 4 and cloud.krum_keep = 1 needs 11 models, '
            "and cloud.participants is 10",
        ),
        (
            {"method": "fedavg", "edge.aggregate": "median"},
            "edge.aggregate needs edges, and fedavg has none (federation.flat); "
            "use cloud.aggregate with a synchronous method, or a method with edges",
        ),
        (
            {"method": "hifl", "cloud.aggregate": "median"},
            "cloud.aggregate is for synchronous methods, and hifl is asynchronous; leave it out",
        ),
        (
            {"method": "centralized", "attack.kind": "nan"},
            "attack.kind is about clients, and centralized has none; leave it out",
        ),
        (
            {"attack.kind": "nan", "attack.share": 0.001},
            "attack.share = 0.001 of federation.clients = 100 is less than one client; raise it",
        ),
    ],
)
def test_impossible_parameters_are_refused(given: dict[str, Any], said: str) -> None:
    assert problems(**given) == [said]


def test_an_edge_with_too_few_clients_for_its_rule_is_named_before_anything_runs(tmp_path: Path) -> None:
    said = r"needs 7 clients, and edge 0 has 6; use fewer edges"
    with pytest.raises(ConfigError, match=said):
        run(tmp_path / "run", **CROWDED, **{"edge.aggregate": "krum", "edge.byzantine": 2})
    assert list(tmp_path.iterdir()) == []


def test_a_share_of_an_edge_that_is_too_small_for_its_rule_is_named_before_anything_runs(
    tmp_path: Path,
) -> None:
    said = r"needs 5 clients, and edge 0 draws edge\.clients_per_round = 0\.5 of its 6; use fewer edges"
    share = {"edge.aggregate": "krum", "edge.byzantine": 1, "edge.clients_per_round": 0.5}
    with pytest.raises(ConfigError, match=said):
        run(tmp_path / "run", **CROWDED, **share)
    run(tmp_path / "run", **CROWDED, **{**share, "edge.clients_per_round": 0.8})  # ceil(4.8) is 5


def test_a_comparison_leaves_out_what_a_method_cannot_have() -> None:
    assert "edge.aggregate" in inapplicable("fedavg", {})
    assert "cloud.aggregate" in inapplicable("hifl", {})
    assert "attack.kind" in inapplicable("centralized", {})
    assert not {"edge.aggregate", "cloud.aggregate", "attack.kind"} & inapplicable("hierfavg", {})
