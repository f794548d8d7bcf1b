"""HiFL as on a whiteboard: Algorithm 1 of the paper (Wu et al., IEEE TPDS 2023) in plain numpy and torch.

The engine runs first, and its log says when each edge got the global model and when it came back. In that
order everything is trained, averaged and mixed again here. Both must end with the same bits.
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import hiflash
from hiflash import load_dataset, partition_samples, rng

SEED, N, M, C, BATCH = 0, 20, 4, 3, 60  # N clients, M edges, C local updates in an edge round
ETA, DECAY, DECAY_STEPS = 0.05, 0.9, 10  # the learning rate, and how it falls with a client's own updates
ALPHA, UPSILON = 0.7, 0.9  # the weight of a fresh edge model, and the penalty for its staleness


def network() -> nn.Module:
    """Return a network for images of 28 x 28 pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 10))


def local_updates(w: np.ndarray, k: int, x: torch.Tensor, y: torch.Tensor, done: int) -> np.ndarray:
    """Return the model of client k, with `done` updates so far, after C more from model w (Eq. 6)."""
    model, w_k = network(), torch.from_numpy(w.copy())
    eta = ETA * DECAY ** (done // DECAY_STEPS)
    for step in range(done, done + C):
        epoch, batch = divmod(step, -(-len(y) // BATCH))  # every epoch has an order of its own
        order = rng(SEED, "client", k, epoch).permutation(len(y))
        chosen = order[batch * BATCH : (batch + 1) * BATCH]
        vector_to_parameters(w_k, model.parameters())
        loss = cross_entropy(model(x[chosen]), y[chosen])
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        w_k = w_k.sub(parameters_to_vector(gradient), alpha=eta)
    return w_k.numpy()


def average(models: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """Return the mean of the client models, weighted by their numbers of samples (Eq. 7)."""
    mean = np.zeros(len(models[0]), np.float64)
    for w_k, size in zip(models, sizes, strict=True):
        mean += size / sum(sizes) * w_k.astype(np.float64)
    return mean.astype(np.float32)


def mix(w: np.ndarray, w_m: np.ndarray, tau: int) -> np.ndarray:
    """Return the next global model from the global model and an edge model of staleness tau."""
    alpha_tau = ALPHA * UPSILON**tau  # Eq. 9
    return np.float32(1 - alpha_tau) * w + np.float32(alpha_tau) * w_m  # Eq. 8


def hifl(events: list[dict[str, Any]]) -> np.ndarray:
    """Return the global model after these grants and uploads (Algorithm 1)."""
    data = load_dataset("mnist5k")
    x, y = torch.from_numpy(data.normalised()[0]), torch.from_numpy(data.y)
    D = partition_samples("noniid2", data.y, N, rng(SEED, "partition"), classes=10).indices
    clusters = np.array_split(rng(SEED, "association").permutation(N), M)  # line 1
    torch.manual_seed(SEED)
    w, t_c = parameters_to_vector(network().parameters()).detach().numpy(), 0  # line 3
    done, granted = [0] * N, {}
    for event in events:
        m = event["edge"]
        if event["event"] == "grant":  # line 5: the scheduler hands out the global model and its counter
            granted[m] = w, t_c, event["rounds"], float(event["threshold"])
            continue
        w_m, t_base, H, threshold = granted[m]  # line 15
        for _ in range(H):  # lines 17 to 22: H edge rounds of C local updates
            cluster, models = sorted(clusters[m]), []
            for k in cluster:
                models.append(local_updates(w_m, k, x[D[k]], y[D[k]], done[k]))
                done[k] += C
            w_m = average(models, [len(D[k]) for k in cluster])
        tau = t_c - t_base  # line 9
        if tau <= threshold:  # else it is too stale, and dropped
            w, t_c = mix(w, w_m, tau), t_c + 1  # line 10
    return w


def engine() -> tuple[str, list[dict[str, Any]]]:
    """Return the digest of the engine's final model, and its grants and uploads."""
    with tempfile.TemporaryDirectory() as folder:
        result = hiflash.run(
            method="hifl",
            seed=SEED,
            trainer="torch",
            model=network,
            federation={"clients": N, "edges": M},
            client={
                "local_steps": C,
                "batch": BATCH,
                "lr": ETA,
                "lr_decay": DECAY,
                "lr_decay_steps": DECAY_STEPS,
            },
            cloud={"alpha": ALPHA, "penalty": UPSILON, "enforce": "discard"},
            stop={"communications": 40},
            directory=Path(folder, "run"),
        )
        rows = [json.loads(line) for line in Path(folder, "run", "events.jsonl").read_text().splitlines()]
    return result.digest, [row for row in rows if row["event"] in ("grant", "upload")]


def main() -> None:
    """Print the digests of both models."""
    torch.set_num_threads(1)  # two would add up in another order
    digest, events = engine()
    print(f"the engine, {sum(row['event'] == 'upload' for row in events)} communications: {digest}")
    print(f"this page: {hashlib.sha256(hifl(events).tobytes()).hexdigest()}")


if __name__ == "__main__":
    main()
