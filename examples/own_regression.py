"""Predict a number from your own table: FedAvg and HiFL beside plain PyTorch on pooled data.

The table is scikit-learn's diabetes data with its raw columns: ages, blood pressures and cholesterol in their
own units. Nothing is normalised by hand.
"""

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import hiflash


def table() -> hiflash.Dataset:
    """Return 442 patients with 10 raw columns, and the progression of their disease (25 to 346)."""
    patients = load_diabetes(scaled=False)
    return hiflash.Dataset.from_arrays(patients.data, patients.target, task="regression", name="diabetes")


def network() -> nn.Module:
    """Return a small network with one output."""
    return nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))


def federated(data: hiflash.Dataset, method: str) -> hiflash.Result:
    """Train on twelve clients whose patients differ, and return the result."""
    flat = method == "fedavg"
    return hiflash.run(
        method=method,
        data=data,
        model=network,
        federation={"clients": 12} if flat else {"clients": 12, "edges": 4},
        client={"lr": 0.02, "batch": 10, "local_steps": 5},
        cloud={"participants": 6} if flat else {},
        stop={"metric": "rmse", "target": "none", "communications": 300},
        **{"data.partition": "dirichlet0.5"},
    )


def pooled(data: hiflash.Dataset, steps: int = 600) -> float:
    """Return the test error of the same network, trained in plain PyTorch on all patients together."""
    torch.manual_seed(0)
    x, x_test = (torch.from_numpy((part - data.x.mean(0)) / data.x.std(0)) for part in (data.x, data.x_test))
    mean, deviation = data.y.mean(), data.y.std()
    y = torch.from_numpy((data.y - mean) / deviation)
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(steps):
        batch = torch.randint(len(x), (10,))
        loss = (model(x[batch])[:, 0] - y[batch]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    predicted = model(x_test)[:, 0].detach().numpy() * deviation + mean
    return float(np.sqrt(np.mean((predicted - data.y_test) ** 2)))


def main() -> None:
    """Print the root mean squared errors."""
    data = table()
    print(f"pooled, plain PyTorch: {pooled(data):.1f}")
    for method in ("fedavg", "hifl"):
        result = federated(data, method)
        print(f"{method}: {result.scores['rmse']:.1f} after {result.communications} communications")
    print(f"always the mean: {result.chance:.1f}")


if __name__ == "__main__":
    main()
