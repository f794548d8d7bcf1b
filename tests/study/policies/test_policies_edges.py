from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hiflash.study.policies.edges import edge_accuracy, turned_away


def test_the_accuracy_of_an_edge_weights_classes_by_its_labels() -> None:
    labels = np.array([[3, 1], [0, 4], [8, 0]])
    # edge 0: 3 of 8 in class 0, 5 in class 1: (3 * 0.5 + 5 * 0.9) / 8; edge 1: all in class 0
    assert edge_accuracy([0.5, 0.9], labels, [[0, 1], [2]]) == pytest.approx([0.75, 0.5])
    assert edge_accuracy([0.5, 0.9], labels, [[0, 1, 2], []]) == pytest.approx([(11 * 0.5 + 5 * 0.9) / 16])


def test_check_ins_are_counted_by_edge_and_answer(tmp_path: Path) -> None:
    events = [
        {"event": "start"}, {"event": "grant", "edge": 1}, {"event": "refuse", "edge": 0, "reason": "waited"},
        {"event": "refuse", "edge": 1, "reason": "refused"}, {"event": "grant", "edge": 1},
        {"event": "upload", "edge": 1, "reason": "stale"},
    ]  # fmt: skip
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    assert turned_away(file, 2) == {"granted": [0, 2], "refused": [0, 1], "waited": [1, 0]}
