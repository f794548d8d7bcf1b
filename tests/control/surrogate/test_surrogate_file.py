"""Surrogates on disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from hiflash.config import Config
from hiflash.control.surrogate.file import load_surrogate, save_surrogate
from hiflash.control.surrogate.model import Surrogate
from hiflash.errors import ConfigError
from hiflash.store.checksums import json_sha256

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
        ({"format": "hiflash surrogate 1"}, "is no surrogate of this version"),
        ({"format": "hiflash surrogate 2"}, "a surrogate has the numbers"),
        ({"format": "hiflash surrogate 2", "parameters": [1]}, "a surrogate has the numbers"),
        ({"format": "hiflash surrogate 2", "parameters": None}, "a surrogate has the numbers"),
        ("[" * 100_000, "is no surrogate .*; make one with: hiflash calibrate"),
        (
            {"format": "hiflash surrogate 2", "parameters": {**SURROGATE.to_dict(), "intercept": 10**400}},
            "a surrogate cannot have intercept = inf",
        ),
        ({"format": "hiflash surrogate 2", "parameters": {"slope": 1}}, "a surrogate has the numbers"),
        (
            {"format": "hiflash surrogate 2", "parameters": {**SURROGATE.to_dict(), "slope": -1}},
            "a surrogate cannot have slope = -1",
        ),
    ],
)
def test_a_file_that_is_no_surrogate_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    file = tmp_path / "s.json"
    if content is not None:
        if isinstance(content, dict):
            content = json.dumps({**content, "sha256": json_sha256(content)})
        file.write_text(content)
    with pytest.raises(ConfigError, match=said):
        load_surrogate(file, Config())


def test_other_numbers_than_those_saved_are_refused(tmp_path: Path) -> None:
    save_surrogate(tmp_path / "s.json", SURROGATE, {"data": "mnist"})
    text = (tmp_path / "s.json").read_text()
    for old, new in (("-3.1", "-3.3"), ('"mnist"', '"mnisu"'), ('"sha256": "', '"sha256": "0')):
        (tmp_path / "s.json").write_text(text.replace(old, new))
        with pytest.raises(ConfigError, match=r"s\.json is damaged or was edited: its checksum does not"):
            load_surrogate(tmp_path / "s.json", Config())
