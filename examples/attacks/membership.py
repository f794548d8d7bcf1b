"""Membership inference: find out whether a sample was in the training data, or whether a client took part.

The federation is chosen to leak: two samples per client, many passes over them, and a fifth of all labels
wrong, which a model can only learn by heart. The attacker has candidates, half of them members, and looks
at how sure a model is of their labels: the global model, or what an edge sees in one round.

    python examples/attacks/membership.py --out runs/membership
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import hiflash

SEED, OWN, WRONG, DELTA = 0, 2, 0.2, 1e-5  # OWN samples of a client, the share of WRONG labels
MNIST = hiflash.load_dataset("mnist5k")
SPOILED = hiflash.rng(SEED, "spoiled").random(len(MNIST.y)) < WRONG
SHIFT = hiflash.rng(SEED, "shift").integers(1, 10, len(MNIST.y))
DATA = hiflash.Dataset.from_arrays(
    MNIST.x, np.where(SPOILED, (MNIST.y + SHIFT) % 10, MNIST.y), MNIST.x_test, MNIST.y_test
)
PIXELS, LABELS = torch.from_numpy(DATA.normalised()[0]), torch.from_numpy(DATA.y).long()


class Setting(NamedTuple):
    """How much the federation trains, and how hard the attacker tries."""

    clients: int = 500
    rounds: int = 100
    steps: int = 5
    references: int = 4
    victims: int = 40
    epsilons: tuple[float, ...] = (30.0, 8.0, 1.0)


class Roles(NamedTuple):
    """Samples by client: of members, of people who did not take part, and of the attacker."""

    members: np.ndarray
    others: np.ndarray
    attacker: np.ndarray


def roles(clients: int) -> Roles:
    """Return who has which samples."""
    order = hiflash.rng(SEED, "roles").permutation(len(LABELS))
    taken = clients * OWN
    return Roles(order[:taken], order[taken : 2 * taken], order[2 * taken :])


def lenet() -> nn.Module:
    """Return the paper's LeNet, the default model for these images."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def train(samples: np.ndarray, setting: Setting, dp: dict[str, Any], seed: int = SEED) -> hiflash.Result:
    """Return the result of a federation of these clients with one edge."""
    return hiflash.run(
        method="hierfavg",
        seed=seed,
        model=lenet,
        data=DATA,
        indices=samples.reshape(-1, OWN),
        federation={"clients": len(samples) // OWN, "edges": 1},
        client={"local_steps": setting.steps, "batch": OWN, "lr": 0.1, "lr_decay": 1.0},
        edge={"clients_per_round": "all", "edge_rounds": [1]},
        cloud={"participants": 1},
        dp=dp,
        stop={"target": "none", "communications": setting.rounds, "client_steps": "none"},
        evaluate={"every": setting.rounds},
    )


@torch.inference_mode()
def sureness(weights: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Return how sure a model is of the labels of samples: log(p / (1 - p))."""
    model, rows = lenet(), torch.arange(len(samples))
    vector_to_parameters(torch.from_numpy(weights.copy()), model.parameters())
    logits, labels = model(PIXELS[samples]).double(), LABELS[samples]
    right = logits[rows, labels].clone()
    logits[rows, labels] = -math.inf
    return (right - logits.logsumexp(1)).numpy()


def suspicion(members: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return for each member the share of the others with a higher score: 0 is caught, 0.5 is chance."""
    higher = (others[None] > members[:, None]).mean(1)
    return higher + (others[None] == members[:, None]).mean(1) / 2


def success(shares: np.ndarray) -> dict[str, float]:
    """Return AUC, and true positives at 1 % and 10 % false positives."""
    caught = {f"tpr{percent}": float((shares <= percent / 100).mean()) for percent in (1, 10)}
    return {"auc": float(1 - shares.mean()), **caught}


def attack_model(weights: np.ndarray, references: Sequence[np.ndarray], who: Roles) -> dict[str, Any]:
    """Return the success of attacks on a global model, on samples and on whole clients.

    A sample counts as a member if the model is surer of it than models that have never seen it: the mean of
    the attacker's references, which it trained on samples of its own. `plain` does without them.
    """
    raw = [sureness(weights, samples) for samples in (who.members, who.others)]
    usual = [
        np.mean([sureness(model, samples) for model in references], axis=0)
        for samples in (who.members, who.others)
    ]
    gains = [score - normal for score, normal in zip(raw, usual, strict=True)]
    wrong = [gain[SPOILED[samples]] for gain, samples in zip(gains, who, strict=False)]
    return {
        "plain": success(suspicion(*raw)),
        "sample": success(suspicion(*gains)),
        "wrong label": success(suspicion(*wrong)),
        "client": success(suspicion(*(gain.reshape(-1, OWN).mean(1) for gain in gains))),
    }


def attack_round(group: int, setting: Setting, dp: dict[str, Any], who: Roles) -> dict[str, Any]:
    """Return the success of an edge that sees the mean of `group` clients after the first round.

    The clients whose samples it asks about are the same for every size of groups that divides them.
    """
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        start = parameters_to_vector(lenet().parameters()).detach().numpy()
    shares, seen = [], who.members[: max(group, setting.victims) * OWN].reshape(-1, group * OWN)
    before = sureness(start, who.others)
    for samples in seen:
        after = train(samples, setting._replace(rounds=1), dp).weights
        gain = sureness(after, samples) - sureness(start, samples)
        shares.append(suspicion(gain, sureness(after, who.others) - before))
    return success(np.concatenate(shares)[: setting.victims * OWN])


def private(**settings: Any) -> dict[str, Any]:
    """Return settings for differential privacy, of clients unless they say otherwise."""
    return {"unit": "client", "clip": 1.0, "delta": DELTA, **settings}


def models(setting: Setting) -> list[dict[str, Any]]:
    """Return a row for the global model without protection, and for every budget."""
    who, rows = roles(setting.clients), []
    references = [
        train(
            hiflash.rng(k, "reference").permutation(who.attacker)[: len(who.members)], setting, {}, k
        ).weights
        for k in range(1, setting.references + 1)
    ]
    for epsilon in (math.inf, *setting.epsilons):
        start = time.process_time()
        result = train(who.members, setting, private(epsilon=epsilon) if epsilon < math.inf else {})
        rows.append(
            {
                "seen": f"global model, epsilon {epsilon:g}" if epsilon < math.inf else "global model",
                "epsilon": result.privacy.get("epsilon"),
                "noise": result.privacy.get("noise"),
                "accuracy": result.accuracy,
                "cpu_seconds": time.process_time() - start,
                "most_tpr1": min(1.0, 0.01 * math.exp(min(epsilon, 99)) + DELTA),
                **attack_model(result.weights, references, who),
            }
        )
        show(rows[-1], f"accuracy {result.accuracy:.3f} after {result.communications} communications")
    return rows


def rounds(setting: Setting) -> list[dict[str, Any]]:
    """Return a row for what an edge sees in one round: one client, sums of several, and both with noise."""
    who, rows = roles(setting.clients), []
    sizes = [size for size in (1, 10, 40) if size <= setting.victims]
    views = [("one client" if size == 1 else f"sum of {size}", size, {}) for size in sizes]
    for epsilon in setting.epsilons[1:]:
        views.append((f"sum of {sizes[-1]}, epsilon {epsilon:g}", sizes[-1], private(epsilon=epsilon)))
    for epsilon in setting.epsilons[1:]:
        noised = private(unit="sample", epsilon=epsilon)
        views.append((f"one client, epsilon {epsilon:g} per sample", 1, noised))
    for name, size, dp in views:
        rows.append({"seen": name, "sample": attack_round(size, setting, dp, who)})
        show(rows[-1], "")
    return rows


def show(row: dict[str, Any], note: str) -> None:
    """Print a row."""
    for unit in ("plain", "sample", "wrong label", "client"):
        if unit in row:
            text = "  ".join(f"{name} {value:.3f}" for name, value in row[unit].items())
            print(f"{row['seen']:34} {unit:12} {text}  {note}", flush=True)


LOOKS = {  # Paul Tol's "bright" scheme, safe for the common kinds of colour blindness
    "sample": ("#4477AA", "any sample"),
    "wrong label": ("#EE6677", "samples with a wrong label"),
    "client": ("#228833", "clients"),
}


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Return the AUC of every attack as bars: what an edge sees above, global models below."""
    figure = Figure(figsize=(8.5, 5.6), layout="constrained")
    seen = [row for row in rows if "client" not in row], [row for row in rows if "client" in row]
    panels = figure.subplots(2, 1, sharex=True, height_ratios=[len(seen[0]), 1.6 * len(seen[1])])
    titles = "What an edge sees in the first round", "The global model after the last round"
    for axes, title, shown in zip(panels, titles, seen, strict=True):
        draw_bars(axes, shown)
        axes.set_title(title, fontsize=10, loc="left")
    most = max(row[unit]["auc"] for row in rows for unit in LOOKS if unit in row)
    panels[1].set(xlim=(0.45, most + 0.1), xlabel="AUC of the attack; 0.5 is chance, 1 is certainty")
    panels[1].legend(fontsize=9, frameon=False, loc="lower right", title="Who is recognised as a member")
    return figure


def draw_bars(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Draw a group of bars for every row, from chance to the AUC."""
    units = [unit for unit in LOOKS if unit in rows[0]]
    width = 0.8 / len(units)
    for index, unit in enumerate(units):
        colour, name = LOOKS[unit]
        places = [place + width * (index - (len(units) - 1) / 2) for place in range(len(rows))]
        values = [row[unit]["auc"] for row in rows]
        axes.barh(places, [value - 0.5 for value in values], 0.9 * width, left=0.5, color=colour, label=name)
        for place, value in zip(places, values, strict=True):
            axes.text(max(value, 0.5) + 0.004, place, f"{value:.2f}", fontsize=8, va="center")
    notes = [f"\naccuracy {row['accuracy']:.0%}" if "accuracy" in row else "" for row in rows]
    axes.set_yticks(range(len(rows)), [row["seen"] + note for row, note in zip(rows, notes, strict=True)])
    axes.tick_params(labelsize=9)
    axes.axvline(0.5, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Attack global models and single rounds, print the success and save a figure."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/membership"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # two would add up in another order
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [*rounds(Setting()), *models(Setting())]
    (options.out / "membership.json").write_text(json.dumps(rows, indent=1) + "\n")
    draw(rows).savefig(options.out / "membership.png", dpi=120)


if __name__ == "__main__":
    main()
