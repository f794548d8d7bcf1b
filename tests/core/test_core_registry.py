"""Parts that declare themselves, found in a package of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hiflash.core.registry import Key, Part, declared_keys, discover, readers

SPEED = Key("speed", int, default=3, low=0, high=9, about="how fast")
FAST = Part("fast", "fast", lambda config: "fast", keys=(SPEED,))
SLOW = Part("slow", "slow", lambda config: "slow", reads=("speed",))
DECLARES = """
from hiflash.core.registry import Part
PARTS = (Part({name!r}, "about", lambda config: {name!r}),)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "some_parts"
    folder.mkdir()
    for name, content in (("__init__", ""), ("plain", "x = 1"), ("b", DECLARES.format(name="second"))):
        (folder / f"{name}.py").write_text(content)
    (folder / "a.py").write_text(DECLARES.format(name="first"))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "some_parts"]:
        del sys.modules[name]


def test_a_file_in_the_folder_is_all_that_a_part_needs(package: Path) -> None:
    assert list(discover("some_parts")) == ["first", "second"]
    (package / "c.py").write_text(DECLARES.format(name="third"))
    found = discover("some_parts")
    assert list(found) == ["first", "second", "third"]
    assert found["third"].make(None) == "third"


def test_two_files_cannot_declare_the_same_name(package: Path) -> None:
    (package / "c.py").write_text(DECLARES.format(name="first"))
    with pytest.raises(ValueError, match=r"some_parts\.c declares first, which is declared already"):
        discover("some_parts")


def test_a_key_has_one_owner_and_any_number_of_readers() -> None:
    assert declared_keys((SLOW, FAST)) == {"speed": SPEED}
    assert readers((SLOW, FAST, Part("other", "", str)), "speed") == ("slow", "fast")
    with pytest.raises(ValueError, match="again declares the key speed again; name it in reads"):
        declared_keys((FAST, Part("again", "", str, keys=(SPEED,))))
    with pytest.raises(ValueError, match="slow reads the key speed, and no part declares it"):
        declared_keys((SLOW,))
