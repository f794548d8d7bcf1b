from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hiflash
from hiflash import Config
from hiflash.config.tree import describe_keys
from hiflash.errors import ConfigError


def problems(**given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Config(**given)
    return caught.value.problems


def test_defaults_are_the_papers() -> None:
    config = Config()
    assert (config.federation.clients, config.federation.edges) == (100, 10)
    assert (config.client.local_steps, config.client.batch, config.client.lr) == (3, 60, 0.01)
    assert (config.client.lr_decay, config.client.lr_decay_steps) == (0.99, 100)
    assert config.edge.edge_rounds == (1, 2, 3)
    assert (config.cloud.alpha, config.cloud.penalty, config.cloud.threshold_max) == (0.7, 0.99, 16)
    assert (config.cloud.threshold, config.cloud.enforce) == ("random", "admit")
    assert (config.resources.slot_s, config.resources.snr_db) == (0.05, 17)
    assert (config.stop.communications, config.stop.client_steps) == (6000, 200_000)


@pytest.mark.parametrize(
    ("name", "clients", "target"),
    [
        ("flights", 89, 0.89),
        ("flights-carriers", 33, 0.89),
        ("flights-delay", 89, 21.0),
        ("flights-delay-carriers", 33, 21.0),
        ("shakespeare", 100, 0.3),
    ],
)
def test_data_with_natural_clients_brings_clients_partition_and_target(
    name: str, clients: int, target: float
) -> None:
    config = Config(data={"name": name})
    assert (config.federation.clients, config.data.partition, config.stop.target) == (
        clients,
        "group",
        target,
    )
    assert Config(data={"name": name}, federation={"clients": 20}).federation.clients == 20


def test_cifar10_brings_its_own_defaults_and_the_user_wins() -> None:
    config = Config(data={"name": "cifar10"}, client={"lr": 0.5})
    assert (config.client.batch, config.client.lr, config.cloud.threshold_max) == (50, 0.5, 4)


@pytest.mark.parametrize("method", ["hifl", "fedavg", "hierfavg", "fedprox", "centralized"])
def test_a_saved_configuration_gives_the_same_configuration(method: str, tmp_path: Path) -> None:
    config = Config(method=method, seed=3, wan="off", **{"client.lr": 0.5, "edge.redraw": "grant"})
    (tmp_path / "c.toml").write_text(config.to_toml())
    loaded = Config.load(tmp_path / "c.toml")
    assert loaded == config
    assert loaded.digest() == config.digest()
    assert tomllib.loads(config.to_toml())["wan"]["link"] == "off"


def test_another_method_on_top_of_a_saved_configuration_brings_its_own_recipe(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(Config(method="hifl", **{"client.lr": 0.5}).to_toml())
    loaded = Config.load(tmp_path / "c.toml", {"method": "fedavg"})
    assert loaded == Config(method="fedavg", **{"client.lr": 0.5})
    assert Config(method="fedavg").with_settings({"method": "hifl"}) == Config(method="hifl")
    assert Config().with_settings({"data.name": "cifar10"}) == Config(data={"name": "cifar10"})


def test_another_method_on_top_of_one_without_data_brings_its_own_recipe() -> None:
    bare = {"data.name": "none", "trainer": "none"}
    assert Config(**bare).with_settings({"method": "fedavg"}) == Config(method="fedavg", **bare)
    placed = {**bare, "federation.association": "random"}  # hiflash alone could not do without labels
    assert Config(method="hiflash", **placed).with_settings({"method": "hifl"}) == Config(**bare)
    assert Config(**bare).with_settings({"data.name": "mnist", "trainer": "auto"}) == Config(
        data={"name": "mnist"}
    )


@pytest.mark.parametrize("folder", ["/data/\u00fc \U0001f600", "C:\\data", 'a "b"\t\x7f'])
def test_any_folder_survives_saving(folder: str, tmp_path: Path) -> None:
    config = Config(**{"data.dir": folder})
    (tmp_path / "c.toml").write_text(config.to_toml(), encoding="utf-8")
    assert Config.load(tmp_path / "c.toml").data.dir == folder


def test_workers_and_device_do_not_change_the_digest() -> None:
    assert Config(workers=1, device="cpu").digest() == Config(workers=2).digest()
    assert Config(seed=1).digest() != Config(seed=2).digest()


def test_all_errors_come_at_once_with_key_value_and_default() -> None:
    assert problems(cloud={"alpha": 1.5, "tresholdd": 3}, sed=1, client=3, **{"stop.target": "x"}) == [
        "client must be a section of keys, got 3",
        "cloud.alpha must be in (0, 1], got 1.5. The default is 0.7.",
        "unknown key cloud.tresholdd; did you mean cloud.threshold?",
        'stop.target must be in (0, 1] for accuracy, any number for other metrics, or "none", got "x". '
        "The default is 0.9.",
        "unknown key sed; did you mean seed?",
    ]


def test_an_error_names_the_file_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "mnist.toml").write_text("[cloud]\nalpha = 1.5\n[client]\nlr = -1\n")
    with pytest.raises(ConfigError) as caught:
        Config.load(tmp_path / "mnist.toml", {"client.lr": -2})
    assert caught.value.problems == [
        "client.lr must be in (0, 1e12], got -2. The default is 0.01.",
        f"cloud.alpha must be in (0, 1], got 1.5 ({tmp_path}/mnist.toml). The default is 0.7.",
    ]


@pytest.mark.parametrize("key", ["threshold", "enforce", "alpha", "penalty", "mixing"])
def test_asynchronous_settings_of_a_synchronous_method_are_errors(key: str) -> None:
    value = Config().settings()[f"cloud.{key}"]
    assert problems(method="fedavg", cloud={key: value}) == [
        f"cloud.{key} is for asynchronous methods, and fedavg is synchronous; leave it out"
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"federation.edges": 200}, "must not exceed federation.clients"),
        ({"method": "hierfavg", "cloud.participants": 11}, "must not exceed federation.edges"),
        ({"method": "fedavg", "cloud.participants": 101}, "must not exceed federation.clients"),
        ({"method": "fedavg", "edge.edge_rounds": [2]}, "must be [1] without edges"),
        ({"cloud.momentum": 0.5}, 'is for cloud.mixing = "delta"'),
        ({"resources.f_ghz": [2.0, 1.0]}, "0 < low <= high"),
        ({"stop.communications": "none", "stop.client_steps": "none"}, "must be a number"),
        ({"seed": True}, "seed must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"client.lr": float("nan")}, "client.lr must be in (0, 1e12]"),
        ({"federation.clients": 10**18}, "federation.clients must be"),
        ({"data.name": "../../etc/passwd"}, "data.name must be"),
        ({"device": "gpu; rm -rf"}, "device must be"),
        ({"edge.edge_rounds": []}, "edge.edge_rounds must be"),
        ({"cloud.threshold": -1}, "cloud.threshold must be"),
    ],
)
def test_hostile_or_contradictory_settings_are_refused(given: dict[str, Any], said: str) -> None:
    assert said in problems(**given)[0]


@pytest.mark.parametrize("content", [b"alpha = ", b"\xff\xfe", b"[cloud]\n[cloud]\n", b"a" * 10])
def test_a_file_that_is_no_toml_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        Config.load(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="does not exist"):
        Config.load(tmp_path / "missing.toml")


KEYS = [key for key, *_ in describe_keys()]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=30)), VALUES, max_size=6))
def test_any_settings_give_a_configuration_or_a_config_error(given: dict[str, Any]) -> None:
    try:
        config = Config.load(None, given)
    except ConfigError as error:
        said = error.problems
    else:
        said = ["a configuration"]
        assert Config.load(None, config.settings()) == config
    assert said
    assert all(problem.strip() for problem in said)


def test_every_key_has_a_default_that_is_allowed_and_a_meaning() -> None:
    for key, allowed, default, about in describe_keys():
        assert allowed, key
        assert about, key
        assert default is not None, key


def test_a_slow_edge_is_for_federations_with_edges_that_stay():
    assert Config(method="hifl", **{"resources.slow_edge": 10}).resources.slow_edge == 10
    with pytest.raises(ConfigError, match=r"resources\.slow_edge needs edges"):
        Config(method="fedavg", **{"resources.slow_edge": 10})
    with pytest.raises(ConfigError, match="needs fixed clusters"):
        Config(method="hifl", **{"resources.slow_edge": 10, "mobility.moves_per_s": 1.0})


@pytest.mark.parametrize(
    "thresholds",
    [
        {"threshold": "agent", "agent": "mine.safetensors", "temperature": 1.0},
        {"threshold": "parallel", "parallelism": 3},
        {"threshold": "skip_slowest", "skipped": 2, "base_threshold": 4},
        {"threshold": 5},
        {},
    ],
)
def test_random_thresholds_replace_others_with_all_that_belongs_to_them(thresholds: dict[str, Any]) -> None:
    rest = {"method": "hiflash", "client": {"lr": 0.05}}
    replaced = Config(**rest, cloud={"alpha": 0.5, **thresholds}).with_random_thresholds()
    assert replaced == Config(**rest, cloud={"alpha": 0.5, "threshold": "random"})


@pytest.mark.parametrize(("old", "new"), [("engine", "executor"), ("parts", "indices")])
def test_a_renamed_key_is_an_error_that_gives_its_new_name(old, new):
    with pytest.raises(ConfigError, match=f"unknown key {old}; it is called {new} now"):
        Config(**{old: "ray"})


@pytest.mark.parametrize(
    ("settings", "target"),
    [
        ({}, 0.9),
        ({"stop.metric": "accuracy"}, 0.9),
        ({"data.task": "classification"}, 0.9),
        ({"stop.metric": "loss"}, "none"),
        ({"data.task": "regression"}, "none"),
        ({"data.task": "sequence"}, "none"),
        ({"data.task": "regression", "stop.target": 40.0}, 40.0),
        ({"stop.metric": "loss", "stop.target": -1.0}, -1.0),
    ],
)
def test_only_accuracy_on_classes_has_a_target_by_default(settings: dict[str, Any], target: Any) -> None:
    config = Config(**settings)
    assert config.stop.target == target
    assert Config.load(None, {"seed": 1}).with_settings(settings).stop.target == target


@pytest.mark.parametrize("settings", [{}, {"stop.metric": "accuracy"}, {"data.task": "sequence"}])
@pytest.mark.parametrize("target", [0.0, -0.5, 1.5])
def test_a_target_of_accuracy_is_a_share(settings: dict[str, Any], target: float) -> None:
    with pytest.raises(ConfigError, match=r'stop.target must be in \(0, 1\] or "none" for accuracy, got'):
        Config(**settings, **{"stop.target": target})


def test_a_dataset_may_bring_its_own_task_and_target(parts_as_before: None) -> None:
    brings = {"data.task": "regression", "stop.metric": "rmse", "stop.target": 35.0}
    hiflash.register("dataset", hiflash.Part("delays", "minutes", lambda config: None, settings=brings))
    config = Config(**{"data.name": "delays"})
    assert (config.data.task, config.stop.metric, config.stop.target) == ("regression", "rmse", 35.0)
    assert Config(**{"data.name": "delays", "stop.metric": "mae"}).stop.target == "none"
    late = {"data.name": "delays", "data.task": "classification", "stop.metric": "auto"}
    assert Config(**late).stop.target == 0.9


def test_centralized_training_has_no_clients_to_hold_samples_out() -> None:
    with pytest.raises(ConfigError, match=r"evaluate.clients is about clients, and centralized has none"):
        Config(method="centralized", **{"evaluate.clients": 0.2})
