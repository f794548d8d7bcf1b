"""Parts of one's own with keys of their own: what may be declared, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hiflash
from hiflash import Config, Key, Part
from hiflash.config.tree import describe_keys
from hiflash.core.thresholds.fixed import FixedThreshold
from hiflash.errors import ConfigError, DataError
from hiflash.methods.kinds import KINDS
from hiflash.methods.registry import registered, threshold_policy
from tiny import make_tiny_model

pytestmark = pytest.mark.usefixtures("parts_as_before")


def fixed(key: Key, name: str = "mine", **more: Any) -> Part:
    return Part(name, "as `limit` says", lambda c: FixedThreshold(c.cloud.limit), keys=(key,), **more)


LIMIT = Key("limit", int, default=2, low=0, high=9, about="threshold mine: the limit")


def test_a_key_works_in_files_keywords_saved_configurations_and_other_configurations(tmp_path: Path) -> None:
    before = Config(seed=4)
    hiflash.register("threshold", fixed(LIMIT))
    (tmp_path / "c.toml").write_text('[cloud]\nthreshold = "mine"\nlimit = 7\n')
    config = Config.load(tmp_path / "c.toml")
    assert config.cloud.limit == 7
    assert threshold_policy(config).threshold == 7  # type: ignore[attr-defined]
    assert Config(cloud={"threshold": "mine"}).cloud.limit == 2
    assert "limit = 7" in config.to_toml()
    (tmp_path / "again.toml").write_text(config.to_toml())
    assert Config.load(tmp_path / "again.toml") == config
    assert config.digest() != config.with_settings({"cloud.limit": 6}).digest()
    # A configuration from before the registration is still one, and equal to one from after it.
    assert before == Config(seed=4)
    assert before.with_settings({"cloud.threshold": "mine"}).cloud.limit == 2
    assert json.loads(json.dumps(config.settings()))["cloud.limit"] == 7


def test_a_key_is_described_behind_the_key_that_chooses_its_part() -> None:
    hiflash.register("threshold", fixed(LIMIT))
    keys = [key for key, *_ in describe_keys()]
    assert keys[keys.index("cloud.limit") - 1] == "cloud.temperature"
    assert keys[keys.index("cloud.limit") + 1] == "cloud.enforce"
    described = {key: rest for key, *rest in describe_keys()}
    assert described["cloud.limit"] == ["a whole number from 0 to 9", 2, "threshold mine: the limit"]


def test_a_key_of_a_rule_is_in_the_sections_of_edges_and_cloud() -> None:
    key = Key("power", float, default=1.0, above=0, below=4, about="power")
    part = Part("power_mean", "x", lambda c, section: None, keys=(key,))
    hiflash.register("aggregate", part)
    assert {"edge.power", "cloud.power"} <= {name for name, *_ in describe_keys()}
    with pytest.raises(ConfigError, match=r"edge.power is for edge.aggregate = .power_mean., and here"):
        Config(**{"edge.power": 2.0})
    with pytest.raises(ConfigError, match=r"edge.power must be in \(0, 4\), got 4"):
        Config(**{"edge.aggregate": "power_mean", "edge.power": 4})


@pytest.mark.parametrize(
    ("key", "good", "bad", "said"),
    [
        (Key("limit", float, default=1, low=0, high=2, about="x"), [0, 2.0], [-0.1, "x"], r"in \[0, 2\]"),
        (Key("limit", bool, default=False, about="x"), [True], [1, "no"], "true or false"),
        (Key("limit", str, default="a", words=("a", "b"), about="x"), ["b"], ["c", 1], '"a" or "b"'),
        (Key("limit", str, default="a", high=3, allowed="a word", about="x"), ["abc"], ["abcd"], "a word"),
        (
            Key("limit", int, default="all", low=1, high=5, words=("all",), about="x"),
            [5, "all"],
            [6, "none"],
            'a whole number from 1 to 5 or "all"',
        ),
        (
            Key("limit", float, default=(0.0, 1.0), length=2, low=0, high=1, about="x"),
            [[0.5, 0.5]],
            [[1], 0.5, [0, 2]],
            r"a list of 2 numbers, each in \[0, 1\]",
        ),
    ],
)
def test_a_key_allows_what_it_says(key: Key, good: list[Any], bad: list[Any], said: str) -> None:
    hiflash.register("threshold", fixed(key))
    for value in good:
        kept = Config(cloud={"threshold": "mine", "limit": value}).cloud.limit
        assert kept == (tuple(value) if isinstance(value, list) else value)
    for value in bad:
        with pytest.raises(ConfigError, match=f"cloud.limit must be {said}, got"):
            Config(cloud={"threshold": "mine", "limit": value})


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            Key("alpha", float, default=1, low=0, high=2, about="x"),
            "the key cloud.alpha, which exists already",
        ),
        (Key("enforce", float, default=1, low=0, high=2, about="x"), "cloud.enforce, which exists already"),
        (Key("Limit", int, default=1, low=0, high=2, about="x"), "use lower-case letters, digits and _"),
        (Key("model_dump", int, default=1, low=0, high=2, about="x"), "and no word of pydantic"),
        (
            Key("limit", int, default=1, about="x"),
            r"needs bounds \(low or above, high or below\) for a number",
        ),
        (Key("limit", float, default=1, low=0, about="x"), "needs bounds"),
        (Key("limit", str, default="x", about="x"), "`words` or `allowed` for a text"),
        (Key("limit", int, default=3, low=0, high=2, about="x"), "default of the key limit must be a whole"),
        (
            Key("limit", str, default="x", words=("y",), about="x"),
            'default of the key limit must be "y", got',
        ),
        ("limit", "must be a hiflash.Key, got str"),
    ],
)
def test_a_bad_key_is_refused_and_nothing_is_kept(key: Any, said: str) -> None:
    before = list(describe_keys())
    with pytest.raises(ConfigError, match=said):
        hiflash.register("threshold", fixed(key))
    assert "mine" not in KINDS["threshold"].parts
    assert list(describe_keys()) == before
    assert not registered()


def test_a_key_of_another_part_of_ones_own_is_taken_too() -> None:
    hiflash.register("threshold", fixed(LIMIT))
    with pytest.raises(ConfigError, match=r"the threshold other declares the key cloud\.limit, which exists"):
        hiflash.register("threshold", fixed(LIMIT, "other"))
    hiflash.register(
        "threshold", Part("other", "x", lambda c: FixedThreshold(c.cloud.limit), reads=("limit",))
    )
    assert Config(cloud={"threshold": "other", "limit": 3}).cloud.limit == 3
    with pytest.raises(ConfigError, match="third reads the key nothing, and no part declares it"):
        hiflash.register("threshold", Part("third", "x", lambda c: None, reads=("nothing",)))
    assert "third" not in KINDS["threshold"].parts


def test_a_part_that_is_replaced_may_have_other_keys() -> None:
    hiflash.register("threshold", fixed(LIMIT))
    assert Config(cloud={"threshold": "mine", "limit": 3}).cloud.limit == 3
    wider = Key("limit", int, default=20, low=0, high=99, about="x")
    hiflash.register("threshold", fixed(wider), replace=True)
    assert Config(cloud={"threshold": "mine"}).cloud.limit == 20
    hiflash.register("threshold", Part("mine", "x", lambda c: FixedThreshold(1)), replace=True)
    with pytest.raises(ConfigError, match=r"unknown key cloud\.limit"):
        Config(cloud={"threshold": "mine", "limit": 3})


def test_a_part_may_object_to_a_configuration() -> None:
    hiflash.register(
        "threshold",
        fixed(
            LIMIT, problem=lambda c: "too much for one edge" if c.federation.edges < c.cloud.limit else None
        ),
    )
    assert Config(cloud={"threshold": "mine"})
    with pytest.raises(ConfigError, match="too much for one edge"):
        Config(cloud={"threshold": "mine", "limit": 9}, federation={"edges": 8})


@pytest.mark.parametrize(
    ("kind", "part", "said"),
    [
        ("treshold", fixed(LIMIT), "unknown kind of part 'treshold'; there are association, "),
        ("threshold", "mine", "the threshold that you register must be a hiflash.Part, got str"),
        ("threshold", Part("mine", "x", 3), "needs a function that makes one, got int"),  # type: ignore[arg-type]
        ("threshold", Part("mine", "x", "no place"), "needs a function that makes one, got str"),
        ("threshold", Part("mine", "x", print, number=LIMIT), "which are for a partition; leave them out"),
        ("mixing", Part("mine", "x", print, settings={"seed": 1}), "which are for a dataset; leave them out"),
        ("partition", Part("mine2", "x", print), "the name of a partition has no digits"),
        (
            "association",
            Part("random", "x", print),
            "the association random comes with HiFlash; choose another",
        ),
        ("model", Part("auto", "x", print), "auto is a word of model.name; choose another name"),
        ("dataset", Part("none", "x", print), "none is a word of data.name; choose another name"),
    ],
)
def test_what_is_no_part_is_refused(kind: str, part: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        hiflash.register(kind, part)
    assert not registered()


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("weighting", {"cloud.weighting": "mine"}, "must return a function of the staleness, got int"),
        (
            "aggregate",
            {"edge.aggregate": "mine"},
            "with the methods combine and the attributes least, got int",
        ),
        ("attack", {"attack.kind": "mine"}, "with the methods tamper, poison, got int"),
        ("compression", {"wan.upload": "mine"}, "encode, decode and the attributes partial, payload_bytes"),
        ("selection", {"method": "fedavg", "cloud.selection": "mine"}, "wants_recall, observe, choose"),
        ("association", {"federation.association": "mine"}, "must return 4 lists with each of 12 clients"),
    ],
)
def test_what_makes_a_part_must_return_one(
    kind: str, settings: dict[str, Any], said: str, run_tiny: Any
) -> None:
    hiflash.register(kind, Part("mine", "x", lambda *_: 3))
    with pytest.raises(ConfigError, match=said):
        run_tiny(settings.pop("method", "hifl"), **settings)


def test_a_dataset_a_model_and_a_partition_must_be_some(tiny_data: Any) -> None:
    small = {"federation": {"clients": 4, "edges": 2}, "stop": {"communications": 4}}
    hiflash.register("dataset", Part("mine", "x", lambda c: 3))
    with pytest.raises(
        ConfigError, match="what makes the dataset mine must return an object with the methods"
    ):
        hiflash.run(data={"name": "mine"}, **small)
    hiflash.register("model", Part("mine", "x", lambda c, shape, classes: 3))
    with pytest.raises(ConfigError, match="model must be a torch module or return one, got int"):
        hiflash.run(data=tiny_data, model={"name": "mine"}, **small)
    for name, dealt, said in (
        ("number", 3, "partition 'number': expected a list with the sample indices of every client, got int"),
        ("few", [[0], [1]], "partition 'few': deals to 2 clients, not to 4"),
        ("far", [[0], [1], [2], [300]], "partition 'far': client 3 has index 300, outside 0..299"),
    ):
        hiflash.register("partition", Part(name, "x", lambda *_, dealt=dealt: dealt))
        with pytest.raises(DataError, match=said):
            hiflash.run(data=tiny_data, model=make_tiny_model, **{**small, "data.partition": name})
    with pytest.raises(DataError, match=r"unknown partition 'nobody'.* Known: iid, noniid2, .*, far"):
        hiflash.run(data=tiny_data, model=make_tiny_model, **{**small, "data.partition": "nobody"})


def test_a_dataset_brings_settings_that_a_recipe_and_the_user_override(tiny_data: Any) -> None:
    brings = {"client.lr": 0.5, "client.mu": 0.5, "client.batch": 7, "federation.clients": 12}
    hiflash.register("dataset", Part("mine", "x", lambda c: tiny_data, settings=brings, model="lenet"))
    config = Config(method="fedprox", data={"name": "mine"}, client={"batch": 9})
    assert (config.client.lr, config.client.mu, config.client.batch) == (0.5, 0.01, 9)
    switched = config.with_settings({"data.name": "mnist"})
    assert (switched.client.lr, switched.federation.clients, switched.client.batch) == (0.01, 100, 9)
