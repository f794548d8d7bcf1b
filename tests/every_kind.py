"""A plugin with a part of every kind, on data and a model that train in milliseconds."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import hiflash
from hiflash import Key, Part
from hiflash.core.attack import Attack
from tiny import make_tiny_data


class Crowd(hiflash.Stateful):
    """Allows as much staleness as there are leases, and more."""

    def __init__(self, slack: int) -> None:
        self.slack = slack

    def decide(self, view: Any, edge: int) -> int:
        return len(view.leases) + self.slack


class Halfway(hiflash.Stateful):
    """Moves the global model by a share of the way, which halves with every update down to a least one."""

    STATE = ("share",)

    def __init__(self, least: float) -> None:
        self.share, self.least = 1.0, least

    def mix(self, weights: Any, update: Any, base: Any, edge: int, staleness: int) -> Any:
        self.share = max(self.least, self.share / 2)
        return weights + np.float32(self.share) * (update - weights)


class Step:
    """Counts fresh models fully and old ones a little."""

    def __init__(self, fresh: int) -> None:
        self.fresh = fresh

    def __call__(self, staleness: int) -> float:
        return 1.0 if staleness <= self.fresh else 0.1


class Unweighted:
    """The plain mean of at least two models, shrunk."""

    least = 2

    def __init__(self, shrink: float) -> None:
        self.shrink = np.float32(shrink)

    def combine(self, models: Any, counts: Any, base: Any, steps: Any) -> Any:
        assert len(models) == len(counts) == len(steps)
        return (self.shrink * np.mean(models, axis=0)).astype(np.float32)


@dataclass(frozen=True)
class Pulled(hiflash.ClientAlgorithm):
    """Pulls every gradient towards the last one of the client, and counts tasks in the cloud."""

    pull: float
    keeps = True

    def traffic(self, trained: int, *, flat: bool, exact: bool) -> hiflash.Traffic:
        return hiflash.Traffic(wan_up=trained)

    def before(self, state: Any, extra: Any) -> Any:
        return (np.float32(self.pull) * state["last"] if state else None), 0.1

    def after(self, done: Any, state: Any, extra: Any) -> Any:
        moved = done.start - done.end
        return {"last": moved}, {"change": moved - state["last"] if state else moved}

    def cloud(self, trained: int, clients: int) -> hiflash.CloudSide:
        return hiflash.MeanOfStates(trained, clients)


class Careful(hiflash.CloudOptimizer):
    """Goes a share of the way."""

    STATE = ("rounds",)

    def __init__(self, share: float) -> None:
        self.share, self.rounds = np.float32(share), 0

    def step(self, weights: Any, combined: Any) -> Any:
        self.rounds += 1
        return weights + self.share * (combined - weights)


class Lazy(Attack):
    """Sends back the model that came."""

    def forge(self, task: Any, trained: Any, base: Any) -> Any:
        return base


class Bytes:
    """Sends single precision as it is."""

    partial = False

    def __init__(self, size: int) -> None:
        self.payload_bytes = 4 * size

    def encode(self, vector: Any) -> bytes:
        return vector.astype("<f4").tobytes()

    def decode(self, payload: bytes) -> Any:
        return np.frombuffer(payload, "<f4").copy()


class Lowest(hiflash.Stateful):
    """Chooses the waiting peers with the lowest ids."""

    def __init__(self, participants: int) -> None:
        self.participants = participants

    def wants_recall(self, index: int) -> bool:
        return False

    def observe(self, recall: Any) -> None:
        pass

    def choose(self, idle: Any, index: int) -> list[int]:
        return sorted(idle)[: self.participants]


def in_turn(config: hiflash.Config, scene: Any) -> list[list[int]]:
    clients, edges = config.federation.clients, config.federation.edges
    return [list(range(edge, clients, edges)) for edge in range(edges)]


def perceptron(config: hiflash.Config, shape: tuple[int, ...], classes: int) -> Any:
    from torch import nn

    units = config.model.units
    inputs = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, units), nn.ReLU(), nn.Linear(units, classes))


def blocks(config: Any, samples: Any, clients: int, number: float, stream: np.random.Generator) -> Any:
    """Deal `number` blocks of samples, sorted by label, to every client."""
    dealt = np.array_split(np.argsort(samples.y, kind="stable"), clients * int(number))
    order = stream.permutation(len(dealt))
    return [np.concatenate([dealt[block] for block in order[client::clients]]) for client in range(clients)]


def whole(name: str, default: int) -> Key:
    return Key(name, int, default=default, low=0, high=99, about=f"a number of every_kind: {name}")


def share(name: str, default: float) -> Key:
    return Key(name, float, default=default, above=0, high=1, about=f"a share of every_kind: {name}")


class Smoothed(hiflash.Classification):
    """Cross-entropy with smoothed labels."""

    name = "smoothed"

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing

    def losses(self, outputs: Any, y: Any) -> Any:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, y, reduction="none", label_smoothing=self.smoothing)


for kind, part in (
    ("threshold", Part("crowd", "x", lambda c: Crowd(c.cloud.slack), keys=(whole("slack", 1),))),
    ("mixing", Part("halfway", "x", lambda c, trained: Halfway(c.cloud.least), keys=(share("least", 0.5),))),
    ("weighting", Part("step", "x", lambda c: Step(c.cloud.fresh), keys=(whole("fresh", 2),))),
    (
        "aggregate",
        Part("shrunk", "x", lambda c, s: Unweighted(getattr(c, s).shrink), keys=(share("shrink", 0.9),)),
    ),
    ("client algorithm", Part("pulled", "x", lambda c: Pulled(c.client.pull), keys=(share("pull", 0.5),))),
    ("optimizer", Part("careful", "x", lambda c, trained: Careful(c.cloud.care), keys=(share("care", 0.5),))),
    ("attack", Part("lazy", "x", lambda c, malicious: Lazy(malicious), reads=("share",))),
    ("compression", Part("bytes", "x", lambda c, spec: Bytes(spec.size))),
    ("selection", Part("lowest", "x", lambda c, peers: Lowest(c.cloud.participants))),
    ("association", Part("in_turn", "x", in_turn)),
    ("model", Part("perceptron", "x", perceptron, keys=(whole("units", 5),))),
    (
        "dataset",
        Part(
            "tiny",
            "pictures of four classes",
            lambda c: make_tiny_data(),
            model="perceptron",
            settings={"federation.clients": 12, "federation.edges": 4, "client.batch": 8, "client.lr": 0.05},
        ),
    ),
    ("task", Part("smoothed", "x", lambda c: Smoothed(c.data.smoothing), keys=(share("smoothing", 0.2),))),
    ("partition", Part("blocks", "x", blocks, number=whole("k", 2))),
):
    hiflash.register(kind, part)
hiflash.register_method("hifl_halfway", "HiFL that moves halfway", {"cloud.mixing": "halfway"})
