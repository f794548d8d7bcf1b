"""Examples that need more than a run: a plain loop with the bits of the engine, a short training."""

from __future__ import annotations

import hashlib
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture
def plain() -> Iterator[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as `main` of the example does, which the test leaves out
    yield runpy.run_path(str(ROOT / "examples/plain_hifl.py"))
    torch.set_num_threads(threads)


def test_plain_hifl_ends_with_the_bits_of_the_engine(plain: dict[str, Any]) -> None:
    digest, events = plain["engine"]()
    uploads = [row for row in events if row["event"] == "upload"]
    # Nothing is shown by a run without stale, refused and long-lasting edges.
    assert {row["status"] for row in uploads} == {"applied", "rejected"}
    assert max(row["staleness"] for row in uploads if row["status"] == "applied") >= 3
    rounds = [row["rounds"] for row in events if row["event"] == "grant"]
    assert set(rounds) == {1, 2, 3}
    assert len(uploads) * min(rounds) * plain["C"] / plain["M"] > plain["DECAY_STEPS"]  # the rate has decayed
    assert hashlib.sha256(plain["hifl"](events).tobytes()).hexdigest() == digest


@pytest.mark.parametrize("learner", ["DQN", "PPO"])
def test_a_learner_of_stable_baselines3_trains_and_is_compared(
    learner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plumbing only: 300 steps teach nothing."""
    pytest.importorskip("stable_baselines3")
    threads = torch.get_num_threads()
    main = runpy.run_path(str(ROOT / "examples/stable_baselines.py"))["main"]
    main(["--learner", learner, "--steps", "300", "--federations", "2"])
    torch.set_num_threads(threads)
    heading, *rows, mean = capsys.readouterr().out.splitlines()
    assert heading.split() == ["federation", "threshold", "0", learner]
    costs = [[float(cost.replace(",", "")) for cost in row.split()[1:3]] for row in [*rows, mean]]
    assert len(rows) == 2
    assert all(500 < cost < 10_000 for row in costs for cost in row)  # every run reached the target
