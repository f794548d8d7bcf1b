"""Privacy in words: the model's epsilon and that of histograms beside each other, never added."""

from __future__ import annotations

from typing import Any

from hiflash.report.deployment import status_lines
from hiflash.report.privacy import spent_words

SENT = {"noise": "gaussian", "epsilon": 0.5, "delta": 1e-6, "unit": "sample", "clients": 9}
WORDS = "label histograms epsilon 0.5 at delta 1e-06 for a sample (gaussian noise)"


def status(privacy: dict[str, Any]) -> list[str]:
    return status_lines(
        {
            "started": True,
            "complete": False,
            "running": True,
            "finished": "",
            "version": 1,
            "communications": 2,
            "client_steps": 3,
            "virtual_s": 4.0,
            "metric": "accuracy",
            "metric_better": "higher",
            "metric_unit": "%",
            "accuracy": 0.5,
            "target": None,
            "staleness": 0.0,
            "refused_calls": {},
            "warnings": [],
            "privacy": privacy,
        }
    )


def test_histograms_alone() -> None:
    assert spent_words({}) == ""
    assert spent_words({"histograms": SENT}) == WORDS
    assert status({"histograms": SENT})[-1] == f"privacy: {WORDS}"


def test_histograms_beside_the_models_epsilon() -> None:
    edges = {"0": {"able": True, "charges": {}}}
    numbers = {"epsilon": 3.25, "epsilon_participation": 4.0, "delta": 1e-5, "budget": 8.0, "edges": edges}
    line = status({**numbers, "histograms": SENT})[-1]
    assert line == (
        "privacy: epsilon 3.25 of 8 at delta 1e-05 (4 for those who see who takes part), "
        f"1 of 1 edges can pay for more; {WORDS}"
    )
    assert status(numbers)[-1].endswith("edges can pay for more")
