from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from hiflash.core.thresholds.agent import Agent, network_shapes
from hiflash.errors import ConfigError
from hiflash.seeding import rng
from hiflash.store.agent_file import load_agent, save_agent
from hiflash.store.checksums import arrays_sha256


def make(network: str = "paper", edges: int | None = 3, about: dict[str, Any] | None = None) -> Agent:
    stream = rng(0, network)
    shapes = network_shapes(network, edges, 6)
    arrays = {name: stream.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return Agent(network, arrays, edges, 4, about or {})


@pytest.mark.parametrize(("network", "edges"), [("paper", 3), ("shared", None)])
def test_an_agent_comes_back_as_it_was(network: str, edges: int | None, tmp_path: Path) -> None:
    agent = make(network, edges, {"episodes": 150, "data": "mnist \u00fc", "cost": 0.5})
    save_agent(tmp_path / "a.safetensors", agent)
    loaded = load_agent(tmp_path / "a.safetensors")
    assert (loaded.network, loaded.edges, loaded.threshold_max) == (network, edges, 4)
    assert loaded.about == agent.about
    assert loaded.digest == agent.digest
    for name, array in agent.arrays.items():
        assert np.array_equal(loaded.arrays[name], array)
    states = rng(1, "states").random((4, 15), dtype=np.float32)
    assert loaded.values(states).tobytes() == agent.values(states).tobytes()


def test_saving_replaces_the_file_whole(tmp_path: Path) -> None:
    save_agent(tmp_path / "a", make(about={"n": 1}))
    save_agent(tmp_path / "a", make(about={"n": 2}))
    assert load_agent(tmp_path / "a").about == {"n": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_too_much_to_say_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="say less"):
        save_agent(tmp_path / "a", make(about={"story": "x" * 100_000}))
    assert not list(tmp_path.iterdir())


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.safetensors does not exist; train one"):
        load_agent(tmp_path / "none.safetensors")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_agent(tmp_path)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 100, (10**9).to_bytes(8, "little") + b"{}"])
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ConfigError, match="is not an agent"):
        load_agent(tmp_path / "a")


def test_a_model_is_no_agent(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(save({"w": np.zeros(3, np.float32)}))
    with pytest.raises(ConfigError, match="is not an agent"):
        load_agent(tmp_path / "a")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"format": 1}, "has format 1, this version reads 2"),
        ({"network": "other"}, "damaged"),
        ({"network": "shared"}, "damaged"),
        ({"edges": 4}, "damaged"),
        ({"edges": None}, "damaged"),
        ({"edges": 10**9}, "damaged"),
        ({"edges": True}, "damaged"),
        ({"threshold_max": 5}, "damaged"),
        ({"threshold_max": -1}, "damaged"),
        ({"about": [1]}, "damaged"),
        ({"about": {"a": [1]}}, "damaged"),
        ({"about": {"a": float("nan")}}, "damaged"),
        ({"about": {"a": 10**400}}, "damaged"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(told: dict[str, Any], said: str, tmp_path: Path) -> None:
    agent = make()
    description = {"format": 2, "network": "paper", "edges": 3, "threshold_max": 4, "about": {}, **told}
    text = json.dumps(description)
    metadata = {"hiflash_agent": text, "sha256": arrays_sha256(text, agent.arrays)}
    (tmp_path / "a").write_bytes(save(dict(agent.arrays), metadata=metadata))
    with pytest.raises(ConfigError, match=said):
        load_agent(tmp_path / "a")


def test_infinite_arrays_are_refused(tmp_path: Path) -> None:
    agent = make()
    agent.arrays["head.0.weight"][0, 0] = np.inf
    save_agent(tmp_path / "a", agent)
    with pytest.raises(ConfigError, match=r"damaged \(an agent's arrays must be finite"):
        load_agent(tmp_path / "a")


def test_cut_or_changed_arrays_and_descriptions_are_refused(tmp_path: Path) -> None:
    save_agent(tmp_path / "a", make(about={"cost": 1}))
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-4])
    with pytest.raises(ConfigError, match=r"damaged \(the model has"):
        load_agent(tmp_path / "cut")
    for changed in (data[:-1] + bytes([data[-1] ^ 1]), data.replace(b'cost\\": 1', b'cost\\": 2')):
        assert changed != data
        (tmp_path / "a").write_bytes(changed)
        with pytest.raises(ConfigError, match=r"a is damaged \(its checksum does not match\)"):
            load_agent(tmp_path / "a")
