"""A dataset with its own key, usual model and usual settings: points on intertwined spirals.

hiflash run --plugin examples/plugins/dataset.py --data.name spirals --data.arms 3
"""

import numpy as np

import hiflash


def spirals(config: hiflash.Config) -> hiflash.Dataset:
    """Return 3,000 points on as many spirals as there are classes."""
    arms, stream = config.data.arms, np.random.default_rng(0)
    y = np.arange(3000) % arms
    radius = stream.uniform(0.2, 1, len(y))
    angle = 2 * np.pi * (y / arms + 0.6 * radius) + stream.normal(0, 0.05, len(y))
    points = radius * np.stack([np.cos(angle), np.sin(angle)])
    x = np.stack([*points, *points**2, points[0] * points[1], radius], axis=1)
    return hiflash.Dataset.from_arrays(x, y, classes=arms)


def small_network(config: hiflash.Config, shape: tuple[int, ...], classes: int):
    """Return a network with two hidden layers."""
    from torch import nn  # here, so that `hiflash run --help --plugin` does not wait for torch

    return nn.Sequential(
        nn.Linear(*shape, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, classes)
    )


hiflash.register("model", hiflash.Part("small_network", "two hidden layers of 32 units", small_network))
hiflash.register(
    "dataset",
    hiflash.Part(
        "spirals",
        "3,000 points on intertwined spirals",
        spirals,
        keys=(
            hiflash.Key(
                "arms", int, default=4, low=2, high=20, about="dataset spirals: spirals, and classes"
            ),
        ),
        model="small_network",
        settings={"federation.clients": 30, "client.batch": 16, "client.lr": 0.1, "stop.target": 0.8},
    ),
)
