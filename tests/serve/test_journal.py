"""The journal is the truth: durable, in order, and a changed byte is named."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiflash.errors import DamageError, StorageError
from hiflash.serve.journal import START, Input, SqliteJournal, chained


def rows_of(inputs, start=START, number=0):
    rows = []
    for given_input in inputs:
        row = chained(
            rows[-1].chain if rows else start, number + len(rows) + 1, float(len(rows)), given_input
        )
        rows.append(row)
    return rows


SOME = [Input("upload", n % 3, bytes([n]) * 10) for n in range(6)]


def test_rows_come_back_as_they_were_committed(tmp_path):
    rows = rows_of(SOME)
    journal = SqliteJournal(tmp_path / "j")
    journal.commit(rows[:2])
    journal.commit(rows[2:])
    journal.close()
    assert list(SqliteJournal(tmp_path / "j").rows()) == rows
    assert list(SqliteJournal(tmp_path / "j").rows(4)) == rows[4:]


def test_a_commit_is_whole_or_not_there(tmp_path):
    rows = rows_of(SOME)
    journal = SqliteJournal(tmp_path / "j")
    journal.commit(rows[:3])
    with pytest.raises(StorageError, match="cannot be written"):
        journal.commit([rows[3], rows[1]])  # the second one is there already
    assert list(journal.rows()) == rows[:3]


def test_every_commit_is_synced(tmp_path):
    base = sqlite3.connect(tmp_path / "j")
    SqliteJournal(tmp_path / "j").commit(rows_of(SOME[:1]))
    assert base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    journal = SqliteJournal(tmp_path / "j")
    assert journal._base.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


@pytest.mark.parametrize("column", ["now", "kind", "node", "body", "chain"])
def test_a_changed_row_is_named(tmp_path, column):
    journal = SqliteJournal(tmp_path / "j")
    journal.commit(rows_of(SOME))
    value = {"now": 9.5, "kind": "abandon", "node": 7, "body": b"other", "chain": bytes(32)}[column]
    with sqlite3.connect(tmp_path / "j") as base:
        base.execute(f"UPDATE input SET {column} = ? WHERE number = 4", (value,))  # noqa: S608  # our own name
    with pytest.raises(DamageError, match="damaged at row 4"):
        list(journal.rows())


def test_a_missing_row_is_named(tmp_path):
    journal = SqliteJournal(tmp_path / "j")
    journal.commit(rows_of(SOME))
    with sqlite3.connect(tmp_path / "j") as base:
        base.execute("DELETE FROM input WHERE number = 3")
    with pytest.raises(DamageError, match="damaged at row 3"):
        list(journal.rows())


def test_a_cut_log_loses_only_the_last_commit(tmp_path):
    rows = rows_of(SOME)
    journal = SqliteJournal(tmp_path / "j")
    journal._base.execute("PRAGMA wal_autocheckpoint = 0")
    journal.commit(rows[:5])
    whole = (tmp_path / "j-wal").read_bytes()
    journal.commit(rows[5:])
    torn = (tmp_path / "j-wal").read_bytes()[
        : len(whole) + 100
    ]  # power fails while the last commit is written
    (tmp_path / "copy").write_bytes((tmp_path / "j").read_bytes())
    (tmp_path / "copy-wal").write_bytes(torn)
    assert list(SqliteJournal(tmp_path / "copy").rows()) == rows[:5]


def test_forgotten_rows_do_not_break_the_chain(tmp_path):
    rows = rows_of(SOME)
    journal = SqliteJournal(tmp_path / "j")
    journal.commit(rows[:4])
    journal.forget(3)
    journal.commit(rows[4:])
    assert list(journal.rows(3)) == rows[3:]
    assert journal._base.execute("SELECT min(number) FROM input").fetchone() == (3,)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    with pytest.raises(StorageError, match="cannot be written"):
        SqliteJournal(tmp_path / "nowhere" / "j")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.builds(Input, st.text(max_size=5), st.integers(-1, 9), st.binary(max_size=20)), min_size=1)
)
def test_different_inputs_have_different_chains(inputs):
    rows = rows_of(inputs)
    assert len({row.chain for row in rows}) == len(rows)
