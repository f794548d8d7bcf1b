"""Compiles C for this machine's processor and keeps the libraries in the user's cache folder."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hiflash.train.native.codegen import Machine
from hiflash.train.native.network import NativeUnavailable

__all__ = ["INSTRUCTION_SETS", "Compiler", "cache_folder", "find_compiler", "load_library"]

INSTRUCTION_SETS: dict[str, tuple[str, ...]] = {
    "native": ("-march=native",),
    "avx2": ("-mavx2", "-mfma"),
    "plain": (),
}
# No -ffast-math: it would hide NaNs.
FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-fPIC", "-shared", "-Wno-psabi")
SECONDS = 300  # for one compilation, on a very busy machine

_compiling = threading.Lock()


@dataclass(frozen=True)
class Compiler:
    """A C compiler with the flags of an instruction set, and the machine these flags are for."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    machine: Machine
    identity: str  # compiler version and processor: a library is valid only for these


def find_compiler(isa: str = "native") -> Compiler:
    """Return the C compiler, $CC or the system's; `isa` is one of `INSTRUCTION_SETS`."""
    return _probe(tuple(shlex.split(os.environ.get("CC", "")) or ["cc"]), isa)


def cache_folder() -> Path:
    """Return the folder of the libraries: `native` in $HIFLASH_CACHE or in the user's cache folder."""
    own = os.environ.get("HIFLASH_CACHE")
    if own:
        return Path(own) / "native"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hiflash" / "native"


def load_library(source: str, compiler: Compiler) -> ctypes.CDLL:
    """Return the library of a C source, compiled unless the cache has it."""
    if not hasattr(os, "getuid"):
        raise NativeUnavailable("compiled trainers need a POSIX system")
    words = "\0".join([source, *FLAGS, *compiler.flags, *compiler.command, compiler.identity])
    folder = cache_folder()
    path = folder / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.so"
    try:
        with _compiling:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _demand_own(folder)
            if not path.exists():
                _compile(source, compiler, path)
            _demand_own(path)
            try:
                return ctypes.CDLL(str(path))
            except OSError:  # a crash of the machine may have left a partial file
                _compile(source, compiler, path)
                return ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeUnavailable(f"cannot use the compiled library {path}: {error}") from error


@lru_cache
def _probe(command: tuple[str, ...], isa: str) -> Compiler:
    program = shutil.which(command[0])
    if program is None:
        raise NativeUnavailable(f"no C compiler: {command[0]} was not found")
    command = (program, *command[1:])
    version = _run([*command, "--version"])
    flags = INSTRUCTION_SETS[isa]
    try:
        macros = _macros(command, flags)
    except NativeUnavailable:
        if isa != "native":
            raise
        flags = ()  # not every compiler knows -march=native: take its default
        macros = _macros(command, flags)
    return Compiler(command, flags, _machine(macros), f"{version} {_processor()}")


def _macros(command: tuple[str, ...], flags: tuple[str, ...]) -> set[str]:
    lines = _run([*command, *flags, "-dM", "-E", "-x", "c", os.devnull]).splitlines()
    return {line.split()[1] for line in lines if line.startswith("#define ")}


def _compile(source: str, compiler: Compiler, path: Path) -> None:
    """Compile beside `path` and rename, so that two processes at once both find a complete library."""
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        code, library = Path(work) / "network.c", Path(work) / "network.so"
        code.write_text(source)
        _run([*compiler.command, *FLAGS, *compiler.flags, str(code), "-o", str(library), "-lm"])
        library.chmod(0o700)
        library.replace(path)


def _demand_own(path: Path) -> None:
    """Refuse a path that another user could have written: its code would run with this user's rights."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise NativeUnavailable(f"{path} has to belong to you alone: not a link, not writable by others")


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"the C compiler failed: {error}") from error
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise NativeUnavailable(f"the C compiler failed: {complaint}")
    return done.stdout


def _machine(defined: set[str]) -> Machine:
    """Return the vector size and registers of a target, from the macros of its compiler."""
    if "__AVX512F__" in defined:
        return Machine(lanes=16, registers=32)
    if {"__AVX2__", "__FMA__"} <= defined:
        return Machine(lanes=8, registers=16)
    return Machine(lanes=4, registers=32 if "__aarch64__" in defined else 16)


def _processor() -> str:
    """Return the properties of the processor that `-march=native` depends on."""
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU part", "Features")
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in lines if line.split("\t")[0].split(":")[0].strip() in wanted)
