"""Train your own model on your own arrays, with your own say in who holds which samples."""

import numpy as np
from torch import nn

import hiflash


def main() -> None:
    """Compare FedAvg and HiFL on twelve clients that each see one half-plane of a spiral."""
    stream = np.random.default_rng(0)
    angle = stream.uniform(0.5, 3 * np.pi, 3000)
    y = stream.integers(2, size=3000)
    turn = angle + np.pi * y
    x = (angle * np.stack([np.cos(turn), np.sin(turn)]) + stream.normal(0, 0.3, (2, 3000))).T
    data = hiflash.Dataset.from_arrays(x.astype(np.float32), y)
    by_angle = np.argsort(np.arctan2(data.x[:, 1], data.x[:, 0]))
    comparison = hiflash.compare(
        methods=["fedavg", "hifl"],
        seeds=1,
        data=data,
        model=nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)),
        indices=np.array_split(by_angle, 12),
        federation={"clients": 12, "edges": 3},
        client={"lr": 0.1, "local_steps": 10},
        stop={"target": 0.95, "communications": 1000},
    )
    for result in comparison.results:
        print(f"{result.method}: {result.accuracy:.3f} after {result.communications} communications")


if __name__ == "__main__":
    main()
