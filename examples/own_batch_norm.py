"""What FedBN buys: clients with cameras of their own, tested on their own held-out pictures.

Every client sees all ten digits, but its camera changes brightness and contrast. Each client keeps the
BatchNorm values of the model to itself. The federated evaluation tests the shared model on every client's
held-out pictures, and again with that client's own BatchNorm values in it.
"""

import numpy as np
from torch import nn

import hiflash

CLIENTS = 20


def pictures() -> hiflash.Dataset:
    """Return mnist5k, with a camera for each of the clients."""
    digits = hiflash.load_dataset("mnist5k")
    stream = np.random.default_rng(0)
    camera = stream.integers(CLIENTS, size=len(digits.y))
    contrast, brightness = stream.uniform(0.2, 2, CLIENTS), stream.uniform(-2, 2, CLIENTS)
    shades = digits.x.astype(np.float32) / 255
    seen = shades * contrast[camera][:, None, None, None] + brightness[camera][:, None, None, None]
    seen = seen.astype(np.float32)
    plain = digits.x_test.astype(np.float32) / 255
    return hiflash.Dataset.from_arrays(seen, digits.y, plain, digits.y_test, groups=camera)


def network() -> nn.Module:
    """Return a small network with BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(288, 10),
    )  # fmt: skip


def main(communications: int = 400) -> hiflash.Result:
    """Train HiFL with BatchNorm values that stay on the clients, and print both evaluations."""
    result = hiflash.run(
        method="hifl",
        data=pictures(),
        model=network,
        federation={"clients": CLIENTS, "edges": 4},
        client={"batch_norm": "local", "lr": 0.05, "batch": 32},
        evaluate={"clients": 0.2, "every": 50},
        stop={"target": "none", "communications": communications},
        **{"data.partition": "group"},
    )
    print(f"after {result.communications} communications, on the clients' own held-out pictures:")
    told = {"shared model": result.clients, "own BatchNorm": result.clients["own_batch_norm"]}
    for name, part in told.items():
        print(f"{name}: mean {part['mean']:.1%}, deviation {part['std']:.1%}, ", end="")
        print(f"worst tenth {part['worst_tenth']:.1%}")
    return result


if __name__ == "__main__":
    main()
