"""Runs whose thresholds an agent decides: in every engine, stopped and resumed, and with a wrong agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hiflash
from hiflash import agents
from hiflash.cli import main
from hiflash.config import Config
from hiflash.control.surrogate.file import load_surrogate
from hiflash.core.thresholds.agent import Agent, network_shapes
from hiflash.errors import ConfigError, Paused, RunError
from hiflash.seeding import rng
from hiflash.store.agent_file import save_agent
from tiny import assert_same_run


def make_agent(network: str = "paper", edges: int | None = 4, seed: int = 0) -> Agent:
    """Return an agent with random weights: its thresholds are arbitrary, but the same in the same state."""
    stream = rng(seed, "agent of a test")
    shapes = network_shapes(network, edges, 10)
    arrays = {name: stream.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    arrays["head.4.bias"][0] -= 10  # seldom refuses, so that the run gets somewhere
    return Agent(network, arrays, edges, 8)


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.safetensors"
    save_agent(path, make_agent())
    return path


@pytest.fixture
def own_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the signals of the tests alone: a command would go on listening to them."""
    for module in ("run", "common"):
        monkeypatch.setattr(f"hiflash.cli.{module}.pause_on_signal", lambda: lambda: False)


def with_agent(path: Path, **more: Any) -> dict[str, Any]:
    return {"cloud.threshold": "agent", "cloud.agent": str(path), **more}


def test_an_agent_decides_thresholds(run_tiny: Callable[..., Any], agent_file: Path) -> None:
    result = run_tiny(**with_agent(agent_file))
    assert result.communications == 60
    granted = {int(threshold) for threshold in result.to_dict()["thresholds"]}
    assert granted
    assert granted <= set(range(9))
    assert result.digest != run_tiny().digest


def test_an_agent_that_would_refuse_everybody_for_ever_gets_there(
    run_tiny: Callable[..., Any], tmp_path: Path
) -> None:
    agent = make_agent()
    agent.arrays["head.4.bias"][0] = 1e6
    save_agent(tmp_path / "agent.safetensors", agent)
    result = run_tiny(**with_agent(tmp_path / "agent.safetensors", **{"stop.virtual_s": 500.0}))
    assert result.communications == 60


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("network", ["paper", "shared"])
@pytest.mark.usefixtures("no_figures")
def test_a_resumed_run_is_that_of_one_that_never_stopped(
    network: str, temperature: float, run_tiny: Any, resume_tiny: Any, tmp_path: Path
) -> None:
    path = tmp_path / "agent.safetensors"
    save_agent(path, make_agent(network, 4 if network == "paper" else None))
    settings = with_agent(path, **{"cloud.temperature": temperature})
    straight = run_tiny(directory=tmp_path / "straight", **settings)
    asked = 0

    def after_some() -> bool:
        nonlocal asked
        asked += 1
        return asked > 200

    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "stopped", pause=after_some, **settings)
    assert not (tmp_path / "stopped/result.json").exists()
    assert_same_run(straight, resume_tiny(tmp_path / "stopped"))


@pytest.mark.usefixtures("no_figures")
def test_another_agent_cannot_go_on_with_a_run(
    run_tiny: Any, resume_tiny: Any, agent_file: Path, tmp_path: Path
) -> None:
    asked = iter(range(1000))
    with pytest.raises(Paused):
        run_tiny(directory=tmp_path / "run", pause=lambda: next(asked) > 100, **with_agent(agent_file))
    save_agent(agent_file, make_agent(seed=1))
    with pytest.raises(RunError, match=r"began with agent .* use the same agent"):
        resume_tiny(tmp_path / "run")
    agent_file.unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        resume_tiny(tmp_path / "run")
    save_agent(agent_file, make_agent())
    assert resume_tiny(tmp_path / "run").communications == 60


@pytest.mark.parametrize("content", [None, b"garbage", "other edges"])
def test_a_wrong_agent_is_an_error_before_anything_is_written(
    content: Any, run_tiny: Any, tmp_path: Path
) -> None:
    path = tmp_path / "agent.safetensors"
    if content == "other edges":
        save_agent(path, make_agent(edges=10))
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"does not exist|not an agent|for 10 edges, but this federation has 4"
    ):
        run_tiny(directory=tmp_path / "run", **with_agent(path))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["fedat", "hiflash", "fedasync"])
def test_other_asynchronous_methods_take_an_agent_too(method: str, run_tiny: Any, tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    save_agent(path, make_agent("shared", None))
    assert run_tiny(method, **with_agent(path)).communications == 60


def test_keys_of_an_agent_are_only_for_one() -> None:
    for key, value in (("cloud.agent", "default"), ("cloud.temperature", 1.0)):
        with pytest.raises(ConfigError, match=f'{key} is for cloud.threshold = "agent"'):
            Config(**{key: value})
        assert key not in Config().settings()
        assert key in Config(**{"cloud.threshold": "agent"}).settings()
    with pytest.raises(ConfigError, match="asynchronous"):
        Config(method="fedavg", **{"cloud.agent": "default"})


def test_auto_is_the_agent_for_the_data_and_the_association(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ["default", "mnist", "mnist-noniid", "femnist", "mnist-discard", "mnist-noniid-discard"]
    for number, name in enumerate(names):
        save_agent(tmp_path / f"{name}.safetensors", make_agent(seed=number))
    monkeypatch.setattr(agents, "FOLDER", tmp_path)
    assert agents.shipped() == sorted(names)

    def found(wanted: str, data: str, association: str, enforce: str = "admit") -> str:
        digest = agents.find_agent(acting(wanted, data, association, enforce)).digest
        return next(name for n, name in enumerate(names) if make_agent(seed=n).digest == digest)

    assert found("auto", "mnist5k", "heterogeneity") == "default"
    assert found("auto", "own", "edge-noniid") == "mnist-noniid"
    assert found("auto", "mnist", "edge-iid") == "mnist"
    assert found("auto", "mnist", "random") == "mnist-noniid"
    assert found("auto", "mnist", "heterogeneity", "discard") == "mnist-discard"
    assert found("auto", "mnist", "data", "cancel") == "mnist-discard"
    assert found("auto", "mnist", "edge-noniid", "discard") == "mnist-noniid-discard"
    assert found("auto", "mnist5k", "latency", "cancel") == "mnist-noniid-discard"
    assert found("auto", "mnist5k", "heterogeneity", "discard") == "default"  # there is no other
    assert found("mnist", "mnist", "heterogeneity", "discard") == "mnist"
    assert found("auto", "femnist", "data") == "femnist"
    assert found("auto", "femnist", "latency") == "femnist"
    assert found("mnist", "femnist", "latency") == "mnist"


def test_an_agent_that_does_not_ship_is_an_error_that_lists_those_that_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save_agent(tmp_path / "mnist.safetensors", make_agent())
    monkeypatch.setattr(agents, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match=r"no agent 'minst' comes with HiFlash; there are: mnist\. Give"):
        agents.find_agent(acting("minst", "mnist", "random"))
    with pytest.raises(ConfigError, match=r'"auto" with data.name = cifar10 and association random'):
        agents.find_agent(acting("auto", "cifar10", "random"))


@pytest.mark.parametrize("association", ["heterogeneity", "random"])
def test_nothing_that_was_made_for_digits_decides_on_cifar10(association: str) -> None:
    there = "default, femnist, mnist, mnist-discard, mnist-noniid, mnist-noniid-discard"
    curves = "default, femnist, mnist, mnist-noniid"
    with pytest.raises(ConfigError, match=rf"no agent 'cifar10' .*: {there}\. .* --cloud.threshold parallel"):
        agents.find_agent(acting("auto", "cifar10", association))
    with pytest.raises(ConfigError, match=rf"no surrogate 'cifar10' .*: {curves}\. Make one with hiflash"):
        load_surrogate("auto", acting("auto", "cifar10", association))
    assert agents.find_agent(acting("mnist", "cifar10", association)).digest  # asked for by name
    for data in ("mnist5k", "own"):
        assert agents.find_agent(acting("auto", data, association)).digest
        load_surrogate("auto", acting("auto", data, association))


@pytest.mark.usefixtures("own_signals")
def test_a_comparison_without_an_agent_for_its_data_does_not_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--methods=fedavg,hiflash", "--data.name=cifar10", "--runs", str(tmp_path / "runs")]
    assert main(words) == 2
    assert "no agent 'cifar10' comes with HiFlash" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def acting(agent: str, data: str, association: str, enforce: str = "admit") -> Config:
    """Return the configuration of a run in which an agent acts."""
    settings = {"cloud.agent": agent, "data.name": data, "federation.association": association}
    return Config(method="hiflash", **settings, **{"cloud.enforce": enforce})


BRIEF = ["--federation.clients=8", "--federation.edges=4", "--stop.communications=6", "--workers=1"]
BARE = ["--data.name=none", "--trainer=none", "--federation.association=random"]


@pytest.mark.usefixtures("own_signals")
def test_the_option_agent_of_a_run(
    agent_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = ["run", "--method=hiflash", *BRIEF, *BARE]
    assert main([*run, "--agent", "agent.safetensors", "--name=a"]) == 0
    saved = Config.load(tmp_path / "runs/a/config.toml")
    assert (saved.cloud.threshold, saved.cloud.agent) == ("agent", str(agent_file.resolve()))
    capsys.readouterr()
    assert main([*run, "--agent=none.safetensors", "--name=b"]) == 2
    assert "none.safetensors does not exist; train one" in capsys.readouterr().err
    assert main([*run, "--agent=agent.safetensors", "--cloud.threshold=3", "--name=b"]) == 2
    assert "--agent and --cloud.threshold are both given" in capsys.readouterr().err
    assert main([*run, "--agent=agent.safetensors", "--federation.edges=2", "--name=b"]) == 2
    assert "the agent is for 4 edges, but this federation has 2" in capsys.readouterr().err
    assert not (tmp_path / "runs/b").exists()
    assert main(["run", "--resume=runs/a", "--agent=agent.safetensors"]) == 2
    assert "leave out cloud.agent, cloud.threshold" in capsys.readouterr().err


@pytest.mark.usefixtures("own_signals")
def test_the_option_agent_of_a_comparison_is_for_those_with_an_agent(
    agent_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    learned = "learned=hiflash cloud.threshold=agent"
    words = ["compare", "--methods=hifl,fedavg", "--variant", learned, "--seeds=1", "--processes=1"]
    brief = [*BRIEF, *BARE, "--cloud.participants=2"]
    assert main([*words, *brief, "--agent=agent.safetensors", "--name=c"]) == 0
    configs = {path.parent.name: Config.load(path) for path in tmp_path.glob("runs/c/*/config.toml")}
    thresholds = {name.split("-")[0]: config.cloud.threshold for name, config in configs.items()}
    assert thresholds == {"learned": "agent", "hifl": "random", "fedavg": "random"}
    learned_in = next(config for name, config in configs.items() if name.startswith("learned"))
    assert learned_in.cloud.agent == str(agent_file.resolve())
    assert main([*words[:2], *brief, "--agent=agent.safetensors", "--name=d"]) == 2
    assert "cloud.agent applies to none of hifl, fedavg" in capsys.readouterr().err


def test_a_run_in_python_takes_an_agent_by_path(agent_file: Path) -> None:
    result = hiflash.run(
        method="hifl",
        trainer="none",
        data={"name": "none"},
        federation={"clients": 8, "edges": 4},
        cloud={"threshold": "agent", "agent": str(agent_file)},
        stop={"communications": 10},
    )
    assert result.communications == 10


def test_a_finished_run_is_not_taken_for_one_of_another_agent_in_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    save_agent(file, make_agent())
    given = {
        "data.name": "none",
        "trainer": "none",
        "federation.association": "random",
        "federation.clients": 8,
        "federation.edges": 4,
        "stop.communications": 6,
        "cloud.agent": str(file),
    }

    def compare() -> list[hiflash.Result]:
        return hiflash.compare(methods=["hiflash"], seeds=1, directory=tmp_path / "c", **given).results

    (result,) = compare()
    assert result.agent == make_agent().digest
    assert [again.digest for again in compare()] == [result.digest]
    save_agent(file, make_agent(seed=1))
    with pytest.raises(RunError, match=r"was run with another agent \(\w{12}\) than .*mine"):
        compare()
