"""Keeps finished runs of the paper's items in small files: judging them again then needs no training.

`python -m benchmarks.paper_records keep runs/paper docs/results/records [--scale full]` writes a file per
item with configuration, result and checksums of every finished run; runs that are not here stay in it.
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

from hiflash.errors import DamageError, HiFlashError
from hiflash.store.checksums import SUMS
from hiflash.store.files import write_atomic
from hiflash.store.run_directory import check_config, check_name, is_finished, read_result_file
from hiflash.study.paper.items import NAMES

KEPT = (SUMS, "config.toml", "result.json")  # the result comes last: it marks a run as finished

Records = dict[str, dict[str, str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Keep or restore the runs of all items, and print how many there are of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for action, places in (("keep", ("runs", "records")), ("restore", ("records", "runs"))):
        command = actions.add_parser(action)
        for place in places:
            command.add_argument(place, type=Path)
        command.add_argument("--scale", default="full")
    given = parser.parse_args(arguments)
    work = keep if given.action == "keep" else restore
    try:
        for name in NAMES:
            count, changed = work(record_file(given.records, name), given.runs / name / given.scale)
            if count:
                print(f"{name}: {count} runs, {changed} of them {'kept' if work is keep else 'restored'} now")
    except HiFlashError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def record_file(records: Path, name: str) -> Path:
    """Return the file with the runs of an item."""
    return records / f"{name}.jsonl.xz"


def keep(file: Path, folder: Path) -> tuple[int, int]:
    """Add the finished runs of a folder to a file; return how many it has, and how many are new or other."""
    before = read_records(file)
    now = {**before, **read_runs(folder)}
    changed = sum(now[name] != before.get(name) for name in now)
    if changed:
        lines = [json.dumps({"name": name, "files": now[name]}) + "\n" for name in sorted(now)]
        write_atomic(file, lzma.compress("".join(lines).encode(), preset=9))
    return len(now), changed


def restore(file: Path, folder: Path) -> tuple[int, int]:
    """Write the runs of a file into a folder, but for those that are there, finished or not."""
    found = read_records(file)
    missing = {name: files for name, files in found.items() if not (folder / name).exists()}
    for name, files in missing.items():
        for kept in KEPT:
            write_atomic(folder / name / kept, files[kept])
    return len(found), len(missing)


def read_runs(folder: Path) -> Records:
    """Return the kept files of every finished run in a folder; raise if one of them is damaged."""
    runs = sorted(path for path in folder.iterdir() if is_finished(path)) if folder.is_dir() else []
    for run in runs:
        check_config(run)
        read_result_file(run)
    return {run.name: {name: (run / name).read_text() for name in KEPT} for run in runs}


def read_records(file: Path) -> Records:
    """Return the kept files of every run in a file, by its name; nothing if there is no file."""
    if not file.exists():
        return {}
    try:
        lines = lzma.decompress(file.read_bytes()).decode().splitlines()
        found = {entry["name"]: entry["files"] for entry in map(json.loads, lines)}
        return {check_name(name): {kept: str(files[kept]) for kept in KEPT} for name, files in found.items()}
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise DamageError(f"{file} is damaged ({error}); take it from the repository again") from error


if __name__ == "__main__":
    sys.exit(main())
