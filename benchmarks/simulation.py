"""The whole simulation: its speed against a bare loop, its scaling, its overheads and its memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import hiflash
from benchmarks.loop import BareLoop, mnist
from hiflash.data import load
from hiflash.train.models import lenet
from hiflash.train.native.trainer import NativeTrainer

__all__ = [
    "control_plane_1m_s",
    "memory_growth_mb",
    "overhead_share",
    "scaling_2_workers",
    "simulation_vs_loop",
]


def simulation_vs_loop() -> float:
    """Return the time of a bare loop over the time of HiFL with two workers, for the same work."""
    data = load(mnist())
    x, x_test = (torch.from_numpy(array) for array in data.normalised())
    loop = BareLoop(lenet, x, torch.from_numpy(data.y), 60)
    ratios = []
    for seed in range(3):
        before = _loop_s(loop, x_test, torch.from_numpy(data.y_test))
        result = _hifl(workers=2, seed=seed)
        after = _loop_s(loop, x_test, torch.from_numpy(data.y_test))
        step_s, evaluation_s = ((b + a) / 2 for b, a in zip(before, after, strict=True))
        theirs = step_s * result.client_steps + evaluation_s * len(result.evaluations)
        ratios.append(theirs / result.wall_s)
    return statistics.median(ratios)


def scaling_2_workers() -> float:
    """Return how many times faster HiFL runs with two workers than with one."""
    ratios = []
    for seed in range(3):
        one, two = _hifl(workers=1, seed=seed), _hifl(workers=2, seed=seed)
        if one.digest != two.digest:
            raise AssertionError("the digest depends on the number of workers")
        ratios.append(one.wall_s / two.wall_s)
    return statistics.median(ratios)


def overhead_share() -> dict[str, float]:
    """Return the shares of events, sampling and aggregation, and of evaluation, in the wall time of a run."""
    spent = {"train": 0.0, "evaluate": 0.0}
    run, evaluate = NativeTrainer._run, NativeTrainer.evaluate
    lock = threading.Lock()

    def timed(name: str, call: Any) -> Any:
        def wrapper(*arguments: Any) -> Any:
            begun = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                with lock:
                    spent[name] += time.perf_counter() - begun

        return wrapper

    NativeTrainer._run, NativeTrainer.evaluate = timed("train", run), timed("evaluate", evaluate)  # type: ignore[method-assign]
    try:
        wall_s = _hifl(workers=1, seed=0, communications=80).wall_s
    finally:
        NativeTrainer._run, NativeTrainer.evaluate = run, evaluate  # type: ignore[method-assign]
    overhead = 1 - (spent["train"] + spent["evaluate"]) / wall_s
    return {"overhead_share": overhead, "evaluation_share": spent["evaluate"] / wall_s}


def memory_growth_mb() -> float:
    """Return how much memory a run gains between cloud update 1,000 and 5,000 and more."""
    resident: dict[int, float] = {}

    class Watch(hiflash.Observer):
        def progress(self, run: hiflash.RunInfo, status: Mapping[str, Any]) -> None:
            resident[status["version"]] = _resident_mb()

    hiflash.run(
        method="hifl",
        client={"local_steps": 1, "batch": 4},
        federation={"clients": 30, "edges": 10},
        evaluate={"every": 1000},
        stop={"target": "none", "communications": 5500, "client_steps": "none"},
        observers=[Watch()],
    )
    early = [mb for version, mb in resident.items() if 1000 <= version < 1500]
    late = [mb for version, mb in resident.items() if version >= 5000]
    return statistics.median(late) - statistics.median(early)


def control_plane_1m_s() -> dict[str, float]:
    """Return seconds, with set-up, and peak GiB of a million clients, 1,000 edges, 100,000 updates."""
    code = """
import json, resource, time
begun = time.perf_counter()
import hiflash
result = hiflash.run(method="hifl", trainer="none", data={"name": "none"},
    federation={"clients": 1_000_000, "edges": 1_000},
    stop={"communications": 105_000, "client_steps": "none", "target": "none"})
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([time.perf_counter() - begun, peak, result.version]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, peak, version = json.loads(done.stdout)
    if version < 100_000:
        raise AssertionError(f"only {version} cloud updates")
    return {"control_plane_1m_s": seconds, "control_plane_1m_gib": peak}


def _hifl(workers: int, seed: int, communications: int = 40) -> hiflash.Result:
    return hiflash.run(
        method="hifl",
        data={"name": mnist()},
        seed=seed,
        workers=workers,
        trainer="native",
        stop={"target": "none", "communications": communications},
    )


def _loop_s(loop: BareLoop, x_test: torch.Tensor, y_test: torch.Tensor) -> tuple[float, float]:
    """Return the seconds of a step and of an evaluation."""
    steps = [loop.train_s(20) / 20 for _ in range(5)]
    return float(np.median(steps)), loop.evaluate_s(x_test, y_test)


def _resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
