from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from hiflash.errors import RunError
from hiflash.execute.executor import PendingModel
from hiflash.messages import Assignment, Slot
from hiflash.store.checkpoint import load_checkpoint, save_checkpoint
from hiflash.store.checksums import arrays_sha256


def test_every_kind_of_value_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "numbers": [1, -2.5, 1e-300, 0.1 + 0.2, math.inf, True, None, "text"],
        "keys": {1: "int", "a": ("tuple", {3, 1, 2})},
        "slot": Slot(4, 0.2),
        "array": np.float32([1, np.nan, np.inf]),
        "wide": np.array([[0.1, 0.2]]),
    }
    save_checkpoint(tmp_path / "c", state)
    loaded = load_checkpoint(tmp_path / "c")
    for name in ("numbers", "keys", "slot"):
        assert loaded[name] == state[name]
    assert loaded["array"].tobytes() == np.float32([1, np.nan, np.inf]).tobytes()
    assert loaded["wide"].dtype == np.float64


def test_shared_models_are_stored_once_and_shared_again(tmp_path: Path) -> None:
    base = np.zeros(1000, np.float32)

    def after(model: object) -> PendingModel:
        work = tuple(Assignment(k, 0, 3, 0.1, 0) for k in range(30))
        return PendingModel(1, 0, work, (5,) * 30, 30, model, {7: base})

    third = after(after(after(base)))  # three deep
    save_checkpoint(tmp_path / "c", {"a": third, "b": base, "again": third, "second": third.base})
    assert (tmp_path / "c").stat().st_size < 20_000  # 4,000 bytes of a model, three times 30 assignments
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded["a"] is loaded["again"]
    assert loaded["a"].base is loaded["second"]
    assert loaded["a"].base.base.base is loaded["b"]
    assert loaded["a"].kept[7] is loaded["b"]


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 100, (10**9).to_bytes(8, "little") + b"{}"])
def test_bytes_that_are_no_checkpoint_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        load_checkpoint(tmp_path / "c")


def test_a_checkpoint_can_only_build_listed_types(tmp_path: Path) -> None:
    from safetensors.numpy import save

    for state, said in (
        ('{"shared":[],"state":{"type":"Path","fields":{}}}', "'Path'"),
        ('{"shared":[],"state":{"type":"Slot","fields":{"evil":1}}}', "'evil'"),
        ('{"shared":[],"state":{"array":"nowhere"}}', "'nowhere'"),
        ("[1]", "list indices"),
        ("{", "Expecting property name"),
    ):
        metadata = {"format": "2", "state": state, "sha256": arrays_sha256(state, {})}
        (tmp_path / "c").write_bytes(save({}, metadata=metadata))
        with pytest.raises(RunError, match=rf"damaged \(.*{said}"):
            load_checkpoint(tmp_path / "c")


def test_a_checkpoint_of_another_format_says_so(tmp_path: Path) -> None:
    from safetensors.numpy import save

    (tmp_path / "c").write_bytes(save({}, metadata={"format": "99", "state": "{}"}))
    with pytest.raises(RunError, match="format 99, this version reads 2"):
        load_checkpoint(tmp_path / "c")


def test_what_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot hold object"):
        save_checkpoint(tmp_path / "c", {"x": object()})
    assert list(tmp_path.iterdir()) == []
