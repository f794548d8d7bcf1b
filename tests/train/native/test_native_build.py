"""How compiled trainers get compiled: once, by whoever comes first, and never from a foreign folder."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hiflash.train.models import lenet
from hiflash.train.native import build as native_build
from hiflash.train.native.build import cache_folder, find_compiler, load_library
from hiflash.train.native.codegen import Machine, generate
from hiflash.train.native.network import NativeUnavailable, read_network

SOURCE = "int answer(void) { return 42; }"
PROGRAM = f"""
from hiflash.train.native.build import find_compiler, load_library
print(load_library({SOURCE!r}, find_compiler("plain")).answer())
"""


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIFLASH_CACHE", str(tmp_path / "cache"))


def test_a_library_is_compiled_once_and_then_taken_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler("plain")
    assert load_library(SOURCE, compiler).answer() == 42
    (path,) = cache_folder().iterdir()  # and nothing left of compiling it
    before = path.stat()
    monkeypatch.setattr(native_build, "_run", lambda command: pytest.fail("compiled again"))
    assert load_library(SOURCE, compiler).answer() == 42
    assert path.stat() == before


def test_other_source_flags_or_processor_make_another_library() -> None:
    compiler = find_compiler("plain")
    others = [find_compiler("native"), replace(compiler, identity="another processor")]
    for one in (compiler, *others):
        assert load_library(SOURCE, one).answer() == 42
    assert load_library(SOURCE.replace("42", "43"), compiler).answer() == 43
    assert len(list(cache_folder().iterdir())) == 4


def test_a_damaged_library_is_compiled_again() -> None:
    compiler = find_compiler("plain")
    path = _path_of_compiled()
    path.write_bytes(path.read_bytes()[:100])
    assert load_library(SOURCE, compiler).answer() == 42


def _path_of_compiled() -> Path:
    """Compile in another process: a library that is loaded here would not be read again."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True)
    (path,) = cache_folder().iterdir()
    return path


def test_processes_that_compile_at_once_all_get_a_library() -> None:
    runs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [run.communicate(timeout=120)[0].strip() for run in runs] == ["42"] * 2
    assert len(list(cache_folder().iterdir())) == 1


@pytest.mark.parametrize("cc", ["no-such-compiler", "false"])
def test_without_a_working_compiler_it_is_unavailable(cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", cc)
    with pytest.raises(NativeUnavailable, match="compiler"):
        find_compiler()


def test_source_that_does_not_compile_is_unavailable_and_leaves_nothing() -> None:
    with pytest.raises(NativeUnavailable, match="error"):
        load_library("This is not C.", find_compiler("plain"))
    assert list(cache_folder().iterdir()) == []


def test_a_folder_that_others_can_write_to_is_not_used() -> None:
    cache_folder().mkdir(parents=True)
    cache_folder().chmod(0o777)
    with pytest.raises(NativeUnavailable, match="belong to you"):
        load_library(SOURCE, find_compiler("plain"))


def test_a_library_that_others_can_write_to_or_that_is_a_link_is_not_loaded(tmp_path: Path) -> None:
    compiler = find_compiler("plain")
    load_library(SOURCE, compiler)
    (path,) = cache_folder().iterdir()
    path.chmod(0o722)
    with pytest.raises(NativeUnavailable, match="belong to you"):
        load_library(SOURCE, compiler)
    path.chmod(0o700)
    path.rename(tmp_path / "elsewhere.so")
    path.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(NativeUnavailable, match="belong to you"):
        load_library(SOURCE, compiler)


def test_a_library_of_another_user_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler("plain")
    load_library(SOURCE, compiler)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(NativeUnavailable, match="belong to you"):
        load_library(SOURCE, compiler)


def test_a_cache_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(NativeUnavailable, match="cannot use"):
        load_library(SOURCE, find_compiler("plain"))


def test_code_for_avx512_compiles_without_a_warning(tmp_path: Path) -> None:
    compiler = find_compiler("plain")
    target = subprocess.run([*compiler.command, "-dumpmachine"], capture_output=True, text=True, check=True)
    if not target.stdout.startswith("x86_64"):
        pytest.skip("not a compiler for x86-64")
    source, listing = tmp_path / "network.c", tmp_path / "network.s"
    source.write_text(generate(read_network(lenet(), (1, 28, 28)), Machine(lanes=16, registers=32)))
    flags = ["-std=gnu11", "-O3", "-mavx512f", "-Werror", "-Wall"]
    subprocess.run([*compiler.command, *flags, "-S", str(source), "-o", str(listing)], check=True)
    assert "zmm" in listing.read_text()
