"""The journal of a cloud: every input in its order, durable before anything is acknowledged.

A row holds one input with the time that the cloud gave it. Replaying the rows gives the cloud's state, so
the journal is the truth and everything else in a state folder can be made again. A chain of SHA-256 hashes
runs through the rows: a changed byte is named. sqlite writes rows in groups (write-ahead log, every commit
synced) and drops a torn tail by itself.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from hiflash.errors import DamageError, StorageError
from hiflash.store.crash import crash_point

__all__ = ["START", "Input", "Journal", "Row", "SqliteJournal", "chained"]

START = bytes(32)  # the hash before the first row
BUSY_S = 5.0


class Input(NamedTuple):
    """One input of a cloud: its kind, the node it comes from (-1 for the cloud itself), and its bytes."""

    kind: str
    node: int
    body: bytes


class Row(NamedTuple):
    """An input with its number, its time, and the hash of the journal up to it."""

    number: int
    now: float
    input: Input
    chain: bytes


class Journal(Protocol):
    """Keeps rows. `commit` returns when they would survive a crash."""

    def commit(self, rows: Sequence[Row]) -> None:
        """Append rows, all or none, and wait until they are durable."""
        ...

    def rows(self, after: int = 0) -> Iterator[Row]:
        """Yield the rows after a number, in order; raise `DamageError` at the first that has changed."""
        ...

    def forget(self, until: int) -> None:
        """Remove the rows up to a number: a snapshot holds what they led to."""
        ...

    def close(self) -> None:
        """Release the journal."""
        ...


def chained(before: bytes, number: int, now: float, given: Input) -> Row:
    """Return the row that follows one with the hash `before`."""
    head = struct.pack("<qdqq", number, now, given.node, len(given.kind))
    hasher = hashlib.sha256(before)
    hasher.update(head + given.kind.encode())
    hasher.update(given.body)
    return Row(number, now, given, hasher.digest())


class SqliteJournal:
    """A journal in one sqlite file. Threads may use it one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._storing():
            self._base = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS input (number INTEGER PRIMARY KEY, now REAL NOT NULL, "
                "kind TEXT NOT NULL, node INTEGER NOT NULL, body BLOB NOT NULL, chain BLOB NOT NULL)"
            )

    def commit(self, rows: Sequence[Row]) -> None:
        """Append rows in one transaction: sqlite syncs its log before this returns."""
        with self._storing():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                self._base.executemany(
                    "INSERT INTO input VALUES (?, ?, ?, ?, ?, ?)",
                    [(row.number, row.now, *row.input, row.chain) for row in rows],
                )
                crash_point("journal.inserted")
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    def rows(self, after: int = 0) -> Iterator[Row]:
        """Yield the rows after a number; every row is checked against the one before it."""
        try:
            before = self._chain_at(after)
            found = self._base.execute("SELECT * FROM input WHERE number > ? ORDER BY number", (after,))
            for expected, (number, now, kind, node, body, chain) in enumerate(found, after + 1):
                if before is None:  # what stood before was forgotten: take this row's hash on trust
                    row = Row(number, now, Input(kind, node, body), chain)
                else:
                    row = chained(before, number, now, Input(kind, node, body))
                if number != expected or row.chain != chain:
                    raise DamageError(f"{self.path} is damaged at row {expected}: {_way_out(expected)}")
                before = row.chain
                yield row
        except (sqlite3.DatabaseError, TypeError, AttributeError, struct.error) as error:
            raise DamageError(f"{self.path} is damaged ({error}); {_way_out(after)}") from error

    @property
    def first(self) -> int:
        """Return the number of the first row that is still here, 1 if none was forgotten."""
        with self._storing():
            found = self._base.execute("SELECT MIN(number) FROM input").fetchone()[0]
        return 1 if found is None else int(found)

    def forget(self, until: int) -> None:
        """Remove the rows up to a number, but keep the last of them: the chain goes on from it."""
        with self._storing():
            self._base.execute("DELETE FROM input WHERE number < ?", (until,))

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def _chain_at(self, number: int) -> bytes | None:
        if number == 0:
            return START
        found = self._base.execute("SELECT chain FROM input WHERE number = ?", (number,)).fetchone()
        return None if found is None else found[0]

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if type(error) is sqlite3.DatabaseError:  # not a database, or a page that cannot be
                told = f"{self.path} is damaged ({error}); restore the folder from a copy"
                raise DamageError(told) from error
            raise StorageError(
                f"{self.path} cannot be written: {error}; make room or make it writable"
            ) from error


def _way_out(row: int) -> str:
    return f"restore the folder from a copy; what came before row {row} is whole"
