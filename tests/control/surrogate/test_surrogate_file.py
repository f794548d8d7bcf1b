"""Surrogates on disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from hiflash.config import Config
from hiflash.control.surrogate.file import load_surrogate, save_surrogate
from hiflash.control.surrogate.model import Surrogate
from hiflash.errors import ConfigError

SURROGATE = Surrogate(-3.1, 1.2, 0.6, 0.05, 0.4, 0.1, 0.15, 0.5)


def test_a_surrogate_comes_back_as_it_was(tmp_path: Path) -> None:
    save_surrogate(tmp_path / "s.json", SURROGATE, {"data": "mnist", "fitted_on": ["random-s200"]})
    assert load_surrogate(tmp_path / "s.json", Config()) == SURROGATE
    saved = json.loads((tmp_path / "s.json").read_text())
    assert saved["about"] == {"data": "mnist", "fitted_on": ["random-s200"]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is no surrogate .*No such file.*; make one with: hiflash calibrate"),
        ("{", "is no surrogate .*; make one with: hiflash calibrate"),
        ("[]", "is no surrogate of this version"),
        ({"format": "hiflash surrogate 0"}, "is no surrogate of this version"),
        ({"format": "hiflash surrogate 1"}, "a surrogate has the numbers"),
        ({"format": "hiflash surrogate 1", "parameters": [1]}, "a surrogate has the numbers"),
        ({"format": "hiflash surrogate 1", "parameters": None}, "a surrogate has the numbers"),
        ("[" * 100_000, "is no surrogate .*; make one with: hiflash calibrate"),
        (
            {"format": "hiflash surrogate 1", "parameters": {**SURROGATE.to_dict(), "intercept": 10**400}},
            "a surrogate cannot have intercept = inf",
        ),
        ({"format": "hiflash surrogate 1", "parameters": {"slope": 1}}, "a surrogate has the numbers"),
        (
            {"format": "hiflash surrogate 1", "parameters": {**SURROGATE.to_dict(), "slope": -1}},
            "a surrogate cannot have slope = -1",
        ),
    ],
)
def test_a_file_that_is_no_surrogate_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    file = tmp_path / "s.json"
    if content is not None:
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ConfigError, match=said):
        load_surrogate(file, Config())
