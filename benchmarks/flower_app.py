"""The benchmark's workloads for Flower's simulation engine; runs in Flower's own virtual environment.

`flower.py` starts it. `python flower_app.py --output result.json simulate epochs --rounds 8` runs FedAvg with
Flower's message API; `python flower_app.py --output result.json bare` runs the same training as a plain
PyTorch loop, in two processes of one thread at once and in one. Both write one JSON object. The simulation
refuses to start where a network interface other than loopback exists, because Ray listens on all of them
without authentication.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

CLIENTS = 100
PER_ROUND = 10
IMAGES = 600  # of each client
BATCH = 60
RATE = 0.01
STEPS = {"epochs": 3 * (IMAGES // BATCH), "steps": 3}  # of one client in one round
PARAMETERS = 21_840
CHUNK = 30  # steps of the plain loop between two readings of the clock


def lenet() -> nn.Module:
    """Return the LeNet of 21,840 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


@cache
def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all clients' normalised images and labels, read once in each process."""
    count = CLIENTS * IMAGES
    folder = Path(os.environ.get("HIFLASH_DATA") or "data") / "mnist"
    images, labels = folder / "train-images-idx3-ubyte.gz", folder / "train-labels-idx1-ubyte.gz"
    if not (images.is_file() and labels.is_file()):
        generator = torch.Generator().manual_seed(0)
        return (
            torch.randn(count, 1, 28, 28, generator=generator),
            torch.randint(10, (count,), generator=generator),
        )
    raw = torch.frombuffer(bytearray(gzip.decompress(images.read_bytes())), dtype=torch.uint8, offset=16)
    y = torch.frombuffer(bytearray(gzip.decompress(labels.read_bytes())), dtype=torch.uint8, offset=8)
    x = raw.view(count, 1, 28, 28).float().div_(255).sub_(0.1307).div_(0.3081)
    return x, y.view(count).long()


@cache
def client_data(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one client's images and labels: views of `data`, no copies."""
    x, y = data()
    rows = slice(client * IMAGES, (client + 1) * IMAGES)
    return x[rows], y[rows]


@cache
def process_model() -> nn.Module:
    """Return this process's model, built once; its weights are replaced for every client."""
    torch.set_num_threads(1)
    return lenet()


def local_sgd(model: nn.Module, client: int, steps: int) -> None:
    """Train a model on one client's data for `steps` steps, each epoch in a fresh order."""
    x, y = client_data(client)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loss = nn.CrossEntropyLoss()
    done = 0
    while done < steps:
        for rows in torch.randperm(IMAGES).split(BATCH)[: steps - done]:
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
            done += 1


client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received weights on the client's data and reply with the new ones."""
    begin = time.perf_counter()
    model = process_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    local_sgd(model, int(context.node_config["partition-id"]), int(message.content["config"]["steps"]))
    arrays = ArrayRecord(model.state_dict())
    metrics = MetricRecord({"num-examples": IMAGES, "seconds": time.perf_counter() - begin})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


class TimedFedAvg(FedAvg):
    """FedAvg that records the start of each round and raises if a client fails."""

    def __init__(self) -> None:
        self.begins: list[float] = []
        super().__init__(
            fraction_train=PER_ROUND / CLIENTS,
            min_train_nodes=PER_ROUND,
            fraction_evaluate=0.0,
            min_available_nodes=CLIENTS,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Note the time and do as FedAvg does."""
        self.begins.append(time.perf_counter())
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Do as FedAvg does, after a check that every client has trained."""
        replies = list(replies)
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed or len(replies) != PER_ROUND:
            raise RuntimeError(f"round {server_round}: {len(replies)} replies, failures: {failed}")
        return super().aggregate_train(server_round, replies)


def simulate(workload: str, rounds: int, workers: int) -> dict[str, object]:
    """Run Flower's simulation and return each round's seconds and the mean seconds within a client."""
    others = {name for _, name in socket.if_nameindex()} - {"lo"}
    if others:
        raise RuntimeError(f"Ray would listen on {sorted(others)}; run this in a loopback-only namespace")
    round_seconds: list[float] = []
    client_seconds: list[float] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        model = lenet()
        if sum(parameter.numel() for parameter in model.parameters()) != PARAMETERS:
            raise RuntimeError("the model is not the LeNet of 21,840 parameters")
        strategy = TimedFedAvg()
        result = strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=rounds,
            train_config=ConfigRecord({"steps": STEPS[workload]}),
        )
        ends = [*strategy.begins[1:], time.perf_counter()]
        round_seconds.extend(end - begin for begin, end in zip(strategy.begins, ends, strict=True))
        client_seconds.extend(float(m["seconds"]) for m in result.train_metrics_clientapp.values())

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=CLIENTS,
        backend_config={
            "init_args": {"num_cpus": workers, "num_gpus": 0, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    if len(round_seconds) != rounds:
        raise RuntimeError(f"the simulation ran {len(round_seconds)} of {rounds} rounds")
    return {
        "steps_per_round": PER_ROUND * STEPS[workload],
        "round_seconds": round_seconds,
        "client_seconds": client_seconds,
    }


def bare(seconds: float) -> float:
    """Run the plain PyTorch loop on one thread for about `seconds` and return its steps per second."""
    torch.set_num_threads(1)
    model = lenet()
    local_sgd(model, 0, 100)  # warm up
    steps, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        local_sgd(model, steps // CHUNK % CLIENTS, CHUNK)
        steps += CHUNK
    return steps / elapsed


def bare_loops(seconds: float, workers: int) -> dict[str, object]:
    """Run the plain loop in several processes at once, then in one; return the steps per second of both."""
    data()  # before the fork, so that the processes share it
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        together = sum(pool.map(bare, [seconds] * workers, chunksize=1))
    return {"one": bare(seconds), "all": together}


def main() -> None:
    """Run what the command line asks for and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    modes = parser.add_subparsers(dest="mode", required=True)
    simulation = modes.add_parser("simulate")
    simulation.add_argument("workload", choices=STEPS)
    simulation.add_argument("--rounds", type=int, required=True)
    loop = modes.add_parser("bare")
    loop.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    if options.mode == "bare":
        result = bare_loops(options.seconds, options.workers)
    else:
        result = simulate(options.workload, options.rounds, options.workers)
    options.output.write_text(json.dumps(result))


if __name__ == "__main__":
    # By the module's name, not as __main__: Ray pickles functions of __main__ by value, with every message,
    # and each copy would have an empty cache and read the data anew.
    import flower_app

    flower_app.main()
