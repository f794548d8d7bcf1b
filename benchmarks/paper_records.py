"""Keeps finished runs of the paper's items at full scale in files: judging them again needs no training.

`python -m benchmarks.paper_records keep runs/paper docs/results/records` writes a file per finished run, in
its item's folder, with configuration, result and checksums. Files of runs that are not here stay.
`python -m benchmarks.paper_records restore docs/results/records runs/paper` puts them back, where
`hiflash paper run ITEM --scale full` finds them. It judges and draws them, and makes only what is missing.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path

from hiflash.errors import ConfigError, DamageError, HiFlashError
from hiflash.store.checksums import SUMS
from hiflash.store.files import replacing, write_atomic, write_new
from hiflash.store.run_directory import check_config, is_finished, read_result_file
from hiflash.study.paper.items import NAMES

END = ".json.xz"
KEPT = (SUMS, "config.toml", "result.json")

Records = dict[str, dict[str, str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Keep or restore the runs of all items, and print how many there are of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for action, places in (("keep", ("runs", "records")), ("restore", ("records", "runs"))):
        command = actions.add_parser(action)
        for place in places:
            command.add_argument(place, type=Path)
    given = parser.parse_args(arguments)
    work = keep if given.action == "keep" else restore
    try:
        for name, (count, changed) in work(given.records, given.runs).items():
            print(f"{name}: {count} runs, {changed} of them {'kept' if work is keep else 'restored'} now")
    except HiFlashError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def record_file(records: Path, item: str, run: str) -> Path:
    """Return the file that keeps a run of an item."""
    return records / item / f"{run}{END}"


def run_folder(runs: Path, name: str) -> Path:
    """Return the folder with the runs of an item."""
    return runs / name / "full"


def keep(records: Path, runs: Path) -> dict[str, tuple[int, int]]:
    """Add finished runs to the items' records; return how many each has, and how many are new or other.

    Everything is read before anything is written.
    """
    found = {name: runs_there for name in NAMES if (runs_there := read_runs(run_folder(runs, name)))}
    if not found:
        raise ConfigError(f"{runs} has no finished run of an item (as {run_folder(runs, 'ITEM')}/RUN)")
    before = {name: read_records(records / name) for name in found}
    told = {}
    for name, new in found.items():
        changed = [run for run in new if new[run] != before[name].get(run)]
        for run in changed:
            packed = lzma.compress(json.dumps(new[run]).encode(), preset=9)
            write_atomic(record_file(records, name, run), packed)
        told[name] = len(before[name] | new), len(changed)
    return told


def restore(records: Path, runs: Path) -> dict[str, tuple[int, int]]:
    """Write runs into their items' folders, but for those that are there, finished or not; tell as `keep`."""
    found = {name: kept for name in NAMES if (kept := read_records(records / name))}
    if not found:
        raise ConfigError(f"{records} has no record of an item (as {record_file(records, 'ITEM', 'RUN')})")
    told = {}
    for name, kept in found.items():
        folder = run_folder(runs, name)
        missing = {run: files for run, files in kept.items() if not (folder / run).exists()}
        for run, files in missing.items():
            _write_run(folder / run, files)
        told[name] = len(kept), len(missing)
    return told


def _write_run(path: Path, files: dict[str, str]) -> None:
    """Write a run directory, whole or not at all."""
    with replacing(path) as new:
        new.mkdir()
        for file, content in files.items():
            write_new(new / file, content)


def read_runs(folder: Path) -> Records:
    """Return the kept files of every finished run in a folder; raise if one of them is damaged."""
    runs = sorted(path for path in folder.iterdir() if is_finished(path)) if folder.is_dir() else []
    for run in runs:
        check_config(run)
        read_result_file(run)
        if not (run / SUMS).is_file():
            raise DamageError(f"{run} has no {SUMS}; remove the run and make it again")
    return {run.name: {file: (run / file).read_text() for file in KEPT} for run in runs}


def read_records(folder: Path) -> Records:
    """Return the kept files of every run of an item, by its name; nothing if there is no folder."""
    return {file.name.removesuffix(END): read_record(file) for file in sorted(folder.glob(f"*{END}"))}


def read_record(file: Path) -> dict[str, str]:
    """Return the kept files of a run."""
    try:
        return _texts(json.loads(lzma.decompress(file.read_bytes())))
    except (OSError, lzma.LZMAError, ValueError, AttributeError) as error:
        raise DamageError(f"{file} is damaged ({error}); take it from the repository again") from error


def _texts(files: dict[str, object]) -> dict[str, str]:
    """Return the files of a run, or say that they are others or no texts."""
    texts = {file: text for file, text in files.items() if isinstance(text, str)}
    if set(files) != set(KEPT) or len(texts) < len(files):
        raise ValueError(f"a run must have the texts of {', '.join(KEPT)}")
    return texts


if __name__ == "__main__":
    sys.exit(main())
