"""What `execute/test_ray.py` does with Ray, as a script in a network that consists of a loopback only.

`python ray_scenarios.py SCENARIO FOLDER` runs one; it fails if a process of Ray is left at its end.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hiflash
from hiflash.config import Config
from hiflash.control.networks import make_agent, q_network
from hiflash.errors import ConfigError, Paused, RunError
from hiflash.execute.executor import RoundWork
from hiflash.execute.ray_cluster import connect
from hiflash.messages import Assignment
from hiflash.sim.federation import build
from hiflash.store.agent_file import save_agent
from hiflash.study import run as experiment
from hiflash.study.compare import compare
from tiny import TINY, assert_same_run, make_norm_model, make_tiny_data, make_tiny_model, train_named

SET_FLAGS, UP, LISTENS = 0x8914, 1, "0A"  # SIOCSIFFLAGS, IFF_UP, and TCP_LISTEN in /proc/net/tcp
LOOPBACKS = {"0100007F", "0000000000000000FFFF00000100007F"}
SMALL: dict[str, Any] = {
    "federation.clients": 20,
    "federation.edges": 4,
    "stop.communications": 20,
    "client.local_steps": 1,
    "client.batch": 8,
}
ROBUST: dict[str, Any] = {
    "federation.edges": 2,
    "edge.aggregate": "krum",
    "edge.krum_keep": 2,
    "client.clip_norm": 0.5,
    "attack.kind": "noise",
}
FEDBN: dict[str, Any] = {
    "client.batch": 9,
    "client.batch_norm": "local",
    "edge.aggregate": "norm_clip",
    "edge.clip_norm": 0.5,
    "attack.kind": "label_flip",
    "stop.communications": 20,
}
DATA = make_tiny_data()
ROWS = hiflash.Dataset.from_arrays(DATA.x.reshape(len(DATA.x), -1), DATA.y / 2, task="regression")


def run(model: Any = make_tiny_model, **settings: Any) -> hiflash.Result:
    settings = {"data": DATA, **TINY, "method": "hifl", "workers": 2, **settings}
    return hiflash.run(model=model, **settings)


def one_node(folder: Path) -> None:
    """Show everything that takes one Ray on one node: workers belong to a program and are slow to start."""
    killed(folder)
    wait_until_alone()  # the run started a Ray of its own
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = connect("local", 2)
    assert signal.signal(signal.SIGTERM, signal.SIG_DFL) == signal.SIG_IGN  # Ray would take it over
    same(folder)
    dropped()
    connection.close()
    wait_until_alone()
    expect(RunError, "cannot use Ray at ray.address auto", run, executor="ray", **{"ray.address": "auto"})


def killed(folder: Path) -> None:
    """Show that a worker killed in a task costs time, and nothing else; and that only loopback is used."""
    marker, victims = folder / "pid", []
    listening: set[str] = set()
    events = count()

    def kill() -> None:
        while not (text := marker.read_text() if marker.exists() else "").endswith("\n"):
            time.sleep(0.02)
        victims.append(int(text))
        os.kill(victims[0], signal.SIGKILL)

    def look() -> bool:
        if next(events) % 50 == 0:  # the kernel is slow to list them
            listening.update(listening_addresses())
        return False

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    plain = run(trainer="torch", directory=folder / "plain")
    disturbed = run(
        partial(Waiting, marker), trainer="torch", executor="ray", directory=folder / "disturbed", pause=look
    )
    killer.join(timeout=1)
    assert victims
    assert victims[0] != os.getpid()
    assert_same_run(plain, disturbed)
    assert listening
    assert listening <= LOOPBACKS, listening
    assert (Path.home() / ".ray").stat().st_mode & 0o077 == 0


def same(folder: Path) -> None:
    """Show that a run on Ray equals a local one: several methods, own modules, stopped in between."""
    local = run(directory=folder / "local")
    assert local.trainer == "native"
    assert_same_run(local, run(directory=folder / "alone", workers=1))
    assert_same_run(local, run(directory=folder / "ray", executor="ray"))
    for variant in (
        {"cloud.enforce": "cancel", "cloud.threshold": 1},
        {"method": "hierfavg", "edge.clients_per_round": 2},
        {"method": "centralized", "stop.steps": 250},
        {"client.algorithm": "scaffold", "cloud.enforce": "discard"},
        {"method": "feddyn", "cloud.participants": 4},
        {"method": "hierfavg", "edge.clients_per_round": 2, "cloud.optimizer": "adam"},
        {
            "method": "hierfavg",
            "dp.unit": "client",
            "dp.noise": 1.0,
            "dp.sampling": "poisson",
            "edge.clients_per_round": 0.3,
        },
        {"dp.unit": "sample", "dp.noise": 1.0, "stop.communications": 12},
    ):
        name = "-".join(map(str, variant.values()))
        one = run(directory=folder / f"{name}-local", **variant)
        assert_same_run(one, run(directory=folder / f"{name}-ray", executor="ray", **variant))
    save_agent(folder / "agent.safetensors", make_agent(q_network("paper", 4, 8, seed=0), 8, {}))
    own = {"plugins": [str(Path(__file__).with_name("every_kind.py"))], "data.name": "tiny", "model.units": 7}
    own |= {"edge.aggregate": "shrunk", "attack.kind": "lazy", "client.algorithm": "pulled"}
    own |= {"stop.communications": 20}
    one = hiflash.run(directory=folder / "own-local", workers=2, **own)
    assert_same_run(one, hiflash.run(directory=folder / "own-ray", workers=2, executor="ray", **own))
    learned = {"cloud.threshold": "agent", "cloud.agent": str(folder / "agent.safetensors")}
    for name, model, settings in (
        ("robust", make_tiny_model, ROBUST),
        ("fedbn", make_norm_model, FEDBN),
        ("secure", make_tiny_model, {"edge.secure": "secagg", "federation.edges": 2}),
        ("learned", make_tiny_model, learned | {"cloud.temperature": 1.0}),
    ):
        one = run(model, directory=folder / f"{name}-local", **settings)
        assert_same_run(one, run(model, directory=folder / f"{name}-ray", executor="ray", **settings))
    numbers = {"evaluate.clients": 0.2, "evaluate.validation": 0.1, "stop.metric": "rmse", "data": ROWS}
    one = run(make_linear_model, directory=folder / "rows-local", **numbers)
    assert one.clients["mean"] > 0
    assert one.validation["best"] > 0
    assert_same_run(one, run(make_linear_model, directory=folder / "rows-ray", executor="ray", **numbers))
    (folder / "own_training.py").write_text(
        "def train(*task):\n    from tiny import train_named\n\n    return train_named(*task)\n"
    )
    for name, train in (
        ("mine", {"train": train_own}),
        ("named", {"client.function": "tiny:train_named"}),
        ("file", {"client.function": f"{folder}/own_training.py:train"}),
    ):
        settings = {**train, "client.algorithm": "function", "client.extra_values": 2}
        settings |= {"stop.communications": 20}
        one = run(directory=folder / f"{name}-local", **settings)
        assert one.client_metrics["tasks"] > 1
        assert_same_run(one, run(directory=folder / f"{name}-ray", executor="ray", **settings))
    assert_same_run(local, run(directory=folder / "module", executor="ray", model=seeded_module()))

    path, executors = folder / "pieces", ["ray", "local", "ray"]
    with suppress(Paused):
        run(directory=path, executor=executors[0], pause=pause_after(40))
    for number in range(1, 50):
        try:
            resumed = hiflash.resume(
                path, executor=executors[number % 3], data=DATA, model=make_tiny_model, pause=pause_after(60)
            )
            break
        except Paused:
            assert number < 40
    assert number >= 2
    assert_same_run(local, resumed)


def dropped() -> None:
    """Show that what is dropped disturbs nothing, an unusable model is none, and failures are told."""
    config = Config(**TINY, data={"name": "own"}, model={"name": "own"})
    local = build(config, DATA, make_tiny_model)
    base = local.start.weights
    ray = build(config.with_settings({"executor": "ray"}), DATA, make_tiny_model)
    bad = np.full_like(base, np.nan)
    for pool in (local.pool, ray.pool):
        for _ in range(2):  # while the workers start, and when they run
            for lease in range(50):
                pool.begin(work(lease, 0, base))
                pool.begin(work(lease, 1, None))
            for lease in range(50):
                assert pool.begun(lease, 1)
                pool.drop(lease)
            assert pool.leases() == []
            assert not pool.begun(3, 0)
            pool.begin(work(99, 0, base))
            assert pool.result(99, 0) is not None
            pool.drop(99)
        pool.begin(work(100, 0, base, due=5.0))
        pool.begin(work(100, 1, None, due=1.0))  # and yet after the round that it builds on
        pool.begin(work(101, 0, bad))
        pool.begin(work(101, 1, None))
        assert pool.result(101, 1) is None
    models = [pool.result(100, 1).weights for pool in (local.pool, ray.pool)]
    np.testing.assert_array_equal(*models)
    for lease in range(200, 260):  # more than Ray is given at once
        ray.pool.begin(work(lease, 0, base, due=-lease))
        ray.pool.begin(work(lease, 1, None, due=-lease))
    assert len(ray.pool._running) <= 4
    for lease in range(200, 260):
        np.testing.assert_array_equal(ray.pool.result(lease, 1).weights, models[0])
        ray.pool.drop(lease)
    assert ray.pool._waiting == []
    models[1][0] = 1  # it is the caller's
    assert local.pool.evaluate(base) == ray.pool.evaluate(base)
    big = np.zeros(30_000, np.float32)
    assert ray.pool._send(big) is not ray.pool._send(big.copy())
    sent = ray.pool._send(big)
    assert sent is ray.pool._send(big)
    del sent
    assert len(ray.pool._sent) == 0

    ray.pool.begin(work(102, 0, base[:-1]))
    expect(
        RunError,
        "Ray could not run a task: ValueError: a model of 209 parameters got weights of shape",
        ray.pool.result,
        102,
        0,
    )
    ray.pool.begin(work(103, 0, base))
    assert ray.pool.result(103, 0) is not None
    for pool in (local.pool, ray.pool):
        pool.close()
    expect(ConfigError, "cannot be sent", run, Unsendable(), executor="ray", trainer="torch")


def two_nodes(folder: Path) -> None:
    """Show that a run equals one on two nodes, whose object stores a big model goes through."""
    from ray.cluster_utils import Cluster

    few = {"stop.communications": 20}
    seen = folder / "nodes"
    seen.mkdir()
    model = partial(make_wide_model, seen)
    local = run(model, directory=folder / "local", **few)
    settings: dict[str, Any] = {**TINY, "methods": ["hierfavg", "hifl"], "seeds": 1, "data": DATA, **few}
    settings |= {"model": make_tiny_model, "edge.clients_per_round": 2}
    at_home = compare(**settings).results
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # these nodes find no token
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        there = {"executor": "ray", "ray.address": cluster.address}
        spread = run(model, directory=folder / "spread", **there, **few)
        on_ray = compare(**there, **settings).results
        cluster.shutdown()
    assert_same_run(local, spread)
    assert len(list(seen.iterdir())) == 2
    assert [result.digest for result in on_ray] == [result.digest for result in at_home]


def comparison(folder: Path) -> None:
    """Show that the cells of a comparison share one Ray, from processes of their own."""
    common: dict[str, Any] = {"methods": ["fedavg", "hifl"], "seeds": 1, **SMALL}
    local = [result.digest for result in compare(**common).results]
    apart = compare(directory=folder / "apart", processes=2, executor="ray", workers=1, **common)
    assert [result.digest for result in apart.results] == local
    assert 'address = "local"' in (apart.results[1].path / "config.toml").read_text()


def train_own(model: nn.Module, data: Any, context: Any) -> Any:
    """Train as `tiny.train_named`, from a function that only this script has."""
    return train_named(model, data, context)


class Waiting(nn.Module):
    """The tiny model; whoever trains it first says who it is, and waits."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self.layers = make_tiny_model()
        self.marker = marker

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled() and not self.marker.exists():
            try:
                with open(self.marker, "x") as file:
                    file.write(f"{os.getpid()}\n")
            except FileExistsError:
                pass
            else:
                time.sleep(60)
        return self.layers(x)  # type: ignore[no-any-return]


class Unsendable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = make_tiny_model()

    def __reduce__(self) -> Any:
        raise TypeError("this model stays here")

    def __deepcopy__(self, memo: Any) -> nn.Module:
        return make_tiny_model()


def make_wide_model(seen: Path) -> nn.Module:
    """Return a network too big for the message of a task; the node that makes it says so in a folder."""
    import ray

    if ray.is_initialized():
        (seen / ray.get_runtime_context().get_node_id()).touch()
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 800), nn.ReLU(), nn.Linear(800, 4))


def make_linear_model() -> nn.Module:
    """Return a model of one number."""
    return nn.Linear(36, 1)


def seeded_module() -> nn.Module:
    """Return the model that a local run starts from: an instance is taken as it is, values and all."""
    from hiflash.train.models import FlatModel, initial_weights

    module = make_tiny_model()
    FlatModel(module, next(module.parameters()).device).load(initial_weights(make_tiny_model, 0)[0])
    return module


def work(lease: int, index: int, base: Any, due: float = 0.0) -> RoundWork:
    assignments = tuple(Assignment(client, 3 * index, 3, 0.05, 0) for client in (0, 3, 5))
    return RoundWork(lease, index, assignments, (10, 20, 30), 2, base, {}, due)


def pause_after(events: int) -> Callable[[], bool]:
    left = iter(range(events))
    return lambda: next(left, None) is None


def expect(kind: type[Exception], said: str, call: Callable[..., Any], *args: Any, **more: Any) -> None:
    with pytest.raises(kind) as caught:
        call(*args, **more)
    assert said in str(caught.value)


def listening_addresses() -> set[str]:
    """Return the addresses that any process of this network listens on, as the kernel writes them."""
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == LISTENS}


def others(namespace: str) -> list[int]:
    """Return the processes of a network, without this one and the helper that multiprocessing keeps."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "ns/net") == namespace:
                helper = b"resource_tracker" in (entry / "cmdline").read_bytes()
                found += [] if helper or int(entry.name) == os.getpid() else [int(entry.name)]
        except OSError:  # it has ended
            continue
    return found


def wait_until_alone() -> None:
    """Wait for the processes of a Ray that was stopped."""
    until = time.monotonic() + 20
    while left := others(os.readlink("/proc/self/ns/net")):
        assert time.monotonic() < until, f"processes {left} are left"
        time.sleep(0.05)


def main(scenario: str, folder: Path) -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"], "for a network namespace only"
    (folder / "namespace").write_text(os.readlink("/proc/self/ns/net"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH22x", b"lo", UP))
    experiment.draw_result = lambda result, folder: None  # it takes longer than a tiny run
    {"one_node": one_node, "two_nodes": two_nodes, "comparison": comparison}[scenario](folder)
    wait_until_alone()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
