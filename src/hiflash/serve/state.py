"""The state folder of a cloud: a run directory with a journal beside it.

`config.toml`, `events.jsonl`, `result.json` and the checkpoint are those of a run, so whatever reads a run
reads a state folder. The checkpoint is the snapshot; the journal has the inputs since then, or all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from hiflash.serve.journal import Row, SqliteJournal
from hiflash.store.crash import crash_point
from hiflash.store.files import storing
from hiflash.store.run_directory import RunDirectory

__all__ = ["JOURNAL", "STATUS", "StateFolder"]

JOURNAL = "journal.sqlite"
STATUS = "status.json"

Keep = Literal["all", "snapshot"]


class StateFolder:
    """Keeps journal and snapshots on disk. One thread writes; the event loop goes on meanwhile.

    `keep = "snapshot"` forgets the inputs before each snapshot: a journal of all models grows large, but only
    with all of them can a run be replayed from its start.
    """

    def __init__(self, folder: RunDirectory, keep: Keep) -> None:
        self.folder = folder
        self.folder.then = ""  # whoever serves the folder knows how to go on
        self.keep = keep
        self.journal = SqliteJournal(folder.path / JOURNAL)
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="hiflash-disk")

    @classmethod
    def open(cls, path: Path, config_toml: str, keep: Keep) -> StateFolder:
        """Return a state folder, a new one if there is none."""
        exists = (path / "config.toml").is_file()
        return cls(RunDirectory.open(path) if exists else RunDirectory.create(path, config_toml), keep)

    def load(self) -> tuple[dict[str, Any] | None, Iterator[Row]]:
        """Return the snapshot, None if there is none yet, and the rows after it."""
        state = self.folder.load()
        return state, self.journal.rows(0 if state is None else state["number"])

    async def commit(self, rows: Sequence[Row]) -> None:
        """Append rows; return when they would survive a crash."""
        await asyncio.get_running_loop().run_in_executor(self._disk, self.journal.commit, rows)

    async def save(self, state: Mapping[str, Any]) -> None:
        """Replace the snapshot. The cloud stands still meanwhile, so its events fit the state."""
        await asyncio.get_running_loop().run_in_executor(self._disk, self._save, state)

    def _save(self, state: Mapping[str, Any]) -> None:
        crash_point("snapshot.before")
        self.folder.save(state)
        crash_point("snapshot.written")
        if self.keep == "snapshot":
            self.journal.forget(state["number"])
            crash_point("snapshot.forgotten")

    async def finish(self, result: Mapping[str, Any], model: bytes) -> None:
        """Write model and result, after everything that is being written."""
        run = asyncio.get_running_loop().run_in_executor
        await run(self._disk, self.folder.finish, result, model)

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace the status: for people, so it need not survive a crash."""
        path = self.folder.path / STATUS
        with storing(path):
            temporary = path.with_name(f".{STATUS}.tmp")
            temporary.write_text(json.dumps(status))
            temporary.replace(path)

    def close(self) -> None:
        """Finish what is being written and release the folder."""
        self._disk.shutdown()
        self.journal.close()
        self.folder.close()
