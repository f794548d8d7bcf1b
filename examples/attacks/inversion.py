"""Gradient inversion: get a client's images back from its update (Geiping et al., NeurIPS 2020).

Every client has one image and takes one step, the best case for the attacker. An edge that sees its update
knows the gradient, and searches for images whose gradient points the same way. We also tell it the labels.
Then we hide the update: in sums over clients, which is what secure sums show an edge, and under noise.

    python examples/attacks/inversion.py --out runs/inversion
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils import parameters_to_vector

import hiflash

SEED, LR, CLIP, VICTIMS = 0, 0.1, 0.05, 4
SMOOTH = 0.02  # weight of the total variation: neighbouring pixels resemble each other
DATA = hiflash.load_dataset("mnist5k")
PIXELS = torch.from_numpy(DATA.normalised()[0])  # what clients train on; the attacker knows the scaling
LABELS = torch.from_numpy(DATA.y).long()
BLACK, WHITE = float(PIXELS.min()), float(PIXELS.max())
CLIENTS = hiflash.rng(SEED, "clients").permutation(len(LABELS))  # client i has the one image CLIENTS[i]


class View(NamedTuple):
    """What the attacker sees: the sum of so many clients' updates, and the noise in it, in clips."""

    title: str
    clients: int
    noise: float = 0.0


VIEWS = (
    View("one client", 1),
    View("sum of 2", 2),
    View("sum of 4", 4),
    View("sum of 10", 10),
    View("sum of 30", 30),
    View("one client, noise 0.001", 1, 0.001),
    View("one client, noise 0.01", 1, 0.01),
    View("one client, noise 0.1", 1, 0.1),
    View("sum of 10, noise 1", 10, 1.0),
)


def lenet() -> nn.Module:
    """Return the paper's LeNet, the default model for these images."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    """Return a network whose first layer sees every pixel: its gradient is a sum of scaled images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 10))


MODELS = {"LeNet": lenet, "MLP": mlp}


def gradient_seen(make: Callable[[], nn.Module], images: np.ndarray, noise: float) -> tuple[Tensor, float]:
    """Return the gradient that an edge's model shows after one round, and what the round was charged.

    Client i has the image `images[i]`. With one client the edge's model is that client's; with more it is
    their mean, all that secure sums would open.
    """
    result = hiflash.run(
        method="hierfavg",
        seed=SEED,
        model=make,
        data=DATA,
        indices=images[:, None],
        federation={"clients": len(images), "edges": 1},
        client={"local_steps": 1, "batch": 1, "lr": LR},
        edge={"clients_per_round": "all", "edge_rounds": [1]},
        cloud={"participants": 1},
        dp={"unit": "client", "clip": CLIP, "noise": noise} if noise else {},
        stop={"target": "none", "communications": 1, "client_steps": "none"},
    )
    step = start_of(make)[1] - torch.from_numpy(result.weights)
    return step / LR, result.privacy.get("epsilon", math.inf)


def start_of(make: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    """Return the model that clients begin with, and its weights. Every client knows them."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = make()
    return model, parameters_to_vector(model.parameters()).detach()


def invert(model: nn.Module, gradient: Tensor, labels: Tensor, steps: int) -> Tensor:
    """Return images with these labels whose gradient points in the same direction as the one seen."""
    images = torch.randn((len(labels), 1, 28, 28), generator=torch.Generator().manual_seed(SEED))
    images = (0.3 * images).requires_grad_()
    optimizer = torch.optim.Adam([images], lr=0.1)
    slower = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, [steps * 2 // 5, steps * 13 // 20, steps * 17 // 20]
    )
    weights = list(model.parameters())
    for _ in range(steps):
        loss = cross_entropy(model(images), labels)
        ours = torch.cat([part.flatten() for part in torch.autograd.grad(loss, weights, create_graph=True)])
        distance = 1 - torch.cosine_similarity(ours, gradient, dim=0)
        rough = images.diff(dim=2).abs().mean() + images.diff(dim=3).abs().mean()
        (images.grad,) = torch.autograd.grad(distance + SMOOTH * rough, images)
        images.grad.sign_()
        optimizer.step()
        slower.step()
        images.data.clamp_(BLACK, WHITE)
    return images.detach()


def attack(make: Callable[[], nn.Module], view: View, steps: int) -> tuple[Tensor, float]:
    """Return the reconstructions of the victims' images, and the epsilon that the update was charged."""
    found, groups = [], CLIENTS[: max(view.clients, VICTIMS)].reshape(-1, view.clients)
    for images in groups:
        gradient, epsilon = gradient_seen(make, images, view.noise)
        made = invert(start_of(make)[0], gradient, LABELS[images], steps)
        found.append(made[best_order(made, PIXELS[images])])
    return torch.cat(found)[:VICTIMS], epsilon


def best_order(made: Tensor, true: Tensor) -> list[int]:
    """Return which reconstruction to compare with each true image, so that they agree best.

    A sum has no order. This favours the attacker, who does not know it.
    """
    errors = [[float(mse_loss(guess, image)) for guess in made] for image in true]
    order: list[int] = linear_sum_assignment(errors)[1].tolist()
    return order


def quality(made: Tensor) -> tuple[float, float]:
    """Return the mean PSNR of the victims' images in dB, and the mean squared error; white is 1."""
    errors = [float(mse_loss(*pair)) / (WHITE - BLACK) ** 2 for pair in zip(made, victims(), strict=True)]
    return float(np.mean([-10 * math.log10(error) for error in errors])), float(np.mean(errors))


def victims() -> Tensor:
    """Return the images that the attacker wants."""
    return PIXELS[CLIENTS[:VICTIMS]]


def guess() -> Tensor:
    """Return the mean image of every victim's label: what the labels alone give away."""
    others = CLIENTS[1000:]
    return torch.stack(
        [PIXELS[others[DATA.y[others] == label]].mean(0) for label in DATA.y[CLIENTS[:VICTIMS]]]
    )


def draw(columns: Sequence[tuple[str, Tensor]], title: str) -> Figure:
    """Return a figure with a column for every view, the true images first."""
    figure = Figure(figsize=(1.15 * len(columns), 1.08 * VICTIMS + 1.0), layout="constrained")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    grid = figure.subplots(VICTIMS, len(columns))
    for axes, (name, images) in zip(grid.T, columns, strict=True):
        axes[0].set_title(name, fontsize=8)
        for place, image in zip(axes, images, strict=True):
            place.imshow(image[0], cmap="gray", vmin=BLACK, vmax=WHITE)
            place.set_axis_off()
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Attack both models in every view; print PSNR and error, and save the images."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/inversion"))
    parser.add_argument("--steps", type=int, default=600, help="steps of the search for images")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # two would add up in another order
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, make in MODELS.items():
        columns = [("the images", victims())]
        for view in VIEWS:
            made, epsilon = attack(make, view, options.steps)
            psnr, error = quality(made)
            rows.append({"model": name, "view": view.title, "psnr": psnr, "mse": error, "epsilon": epsilon})
            print(f"{name:6} {view.title:24} PSNR {psnr:5.1f} dB  MSE {error:.4f}  epsilon {epsilon:.4g}")
            columns.append((f"{view.title.replace(', ', ',' + chr(10))}\n{psnr:.1f} dB", made))
        psnr, error = quality(guess())
        rows.append({"model": name, "view": "guess by label", "psnr": psnr, "mse": error, "epsilon": 0.0})
        print(f"{name:6} {'guess by label':24} PSNR {psnr:5.1f} dB  MSE {error:.4f}")
        columns.append((f"guess by\nlabel\n{psnr:.1f} dB", guess()))
        figure = draw(columns, f"What an update of {name} shows: one image per client, one step")
        figure.savefig(options.out / f"inversion-{name.lower()}.png", dpi=120)
    (options.out / "inversion.json").write_text(json.dumps(rows, indent=1).replace("Infinity", "null") + "\n")


if __name__ == "__main__":
    main()
