"""The files of a federation: what they give, and the place of whatever is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hiflash.data.federation import FederationData, read_federation
from hiflash.data.federation import tables as tables_module
from hiflash.data.federation.example import make_example
from hiflash.errors import ConfigError, DataError, HiFlashError, RunError
from hiflash.study.federation import write_federation

# ruff: noqa: E501  # a table of contents and messages is read line by line

INF = np.inf
GOOD = {
    "latency_ms.csv": "client,0,1\n0,5,20\n1,30,\n2,8,9\n",
    "clients.csv": "client,step_ms,samples\n0,1.5,30\n1,2,40\n2,2.5,50\n",
    "edges.csv": "edge,wan_rtt_ms,wan_bandwidth_mbps\n0,20,100\n1,80,50\n",
    "labels.csv": "client,0,1,2\n0,10,20,0\n1,40,0,0\n2,0,25,25\n",
    "association.csv": "client,edge\n0,0\n1,0\n2,1\n",
    "availability.csv": "time_s,client,event,edge,send_ms\n10,2,leave,,\n30,2,join,1,\n4.5,0,move,1,12\n",
}


def write(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def problem(folder: Path) -> str | None:
    """Return what is wrong with the files of a folder; any error but ours would be raised."""
    try:
        found = read_federation(folder)
        found.check(found.clients or 9, found.edges or 9)
    except HiFlashError as error:
        return str(error)
    return None


def test_every_file_is_read_into_the_array_of_its_name(tmp_path: Path) -> None:
    found = read_federation(write(tmp_path, **GOOD))
    assert (found.clients, found.edges) == (3, 2)
    assert found.latency_ms.tolist() == [[5, 20], [30, INF], [8, 9]]
    assert found.step_ms.tolist() == [1.5, 2, 2.5]
    assert found.samples.tolist() == [30, 40, 50]
    assert found.labels.tolist() == [[10, 20, 0], [40, 0, 0], [0, 25, 25]]
    assert found.association.tolist() == [0, 0, 1]
    assert (found.wan_rtt_ms.tolist(), found.wan_bandwidth_mbps.tolist()) == ([20, 80], [100, 50])
    assert found.reachable.tolist() == [[True, True], [True, False], [True, True]]
    # Events in the order of time, whatever the order of lines: the move of 4.5 s is first.
    assert found.availability.time_s.tolist() == [4.5, 10, 30]
    assert found.availability.client.tolist() == [0, 2, 2]
    assert found.availability.absent.tolist() == []
    found.check(3, 2)


def test_long_tables_and_rows_in_any_order_give_the_same_matrix(tmp_path: Path) -> None:
    wide = (
        "client,1,0\r\n2,9,8\r\n\r\n0,20,5\r\n1,, 30\r\n"  # columns and rows swapped, an empty line, spaces
    )
    long = "\ufeffclient,edge,latency_ms\n2,1,9\n0,0,5\n0,1,20\n1,0,30\n2,0,8\n1,1,\n"
    for text in (wide, long):
        found = read_federation(write(tmp_path, latency_ms__csv=text))
        assert found.latency_ms.tolist() == [[5, 20], [30, INF], [8, 9]]


def test_a_bandwidth_that_is_missing_is_no_link(tmp_path: Path) -> None:
    found = read_federation(write(tmp_path, bandwidth_mbps__csv="client,0,1\n0,5,\n1,6,7\n"))
    assert found.bandwidth_mbps.tolist() == [[5, 0], [6, 7]]
    assert found.reachable.tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize("form", ["csv", "npz"])
def test_what_is_written_is_read_back(tmp_path: Path, form: str) -> None:
    made = make_example(40, 6, seed=3)
    paths = write_federation(made, tmp_path / "new", form)
    assert all(path.is_file() for path in paths)
    assert read_federation(tmp_path / "new").digest == made.digest
    assert [path.name for path in tmp_path.iterdir()] == ["new"]  # no leftovers
    with pytest.raises(RunError, match="not an empty folder"):
        write_federation(made, tmp_path / "new", form)


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    folder = write(tmp_path, **GOOD)
    first = read_federation(folder)
    assert read_federation(folder) is first
    write(folder, **{"clients.csv": "client,step_ms\n0,9\n1,9\n2,9\n"})
    assert read_federation(folder).step_ms.tolist() == [9, 9, 9]


WRONG = [
    ("latency_ms.csv", "client,0,1\n0,5,x\n", "latency_ms.csv, line 2, column 3 (1): it must be a number, got x"),
    ("latency_ms.csv", "client,0,1\n0,5,6\n1,-3,6\n", "line 3, column 2 (0): it must be milliseconds >= 0, got -3"),
    ("latency_ms.csv", "client,0,1\n0,5,nan\n1,,2\n", "line 2, column 3 (1): it must be a number, got nan"),
    ("latency_ms.csv", "client,0,1\n0,5\n", "line 2: it has 2 columns, and the first line names 3"),
    ("latency_ms.csv", "client,0,1\n\n0,5,6\n1,5,6,7\n", "line 4: it has 4 columns"),
    ("latency_ms.csv", "client,0,1\n0,5,6\n0,7,8\n", "line 3: client 0 is in line 2 already"),
    ("latency_ms.csv", "client,0,1\n0,5,6\n2,7,8\n", "client 1 is missing, though client 2 is there"),
    ("latency_ms.csv", "client,0,1\n0,5,6\n1.5,7,8\n", "line 3, column 1 (client): client must be a whole number"),
    ("latency_ms.csv", "client,0,7\n0,5,6\n", "line 1, column 3: there is no edge 7; the 2 columns"),
    ("latency_ms.csv", "client,0,0\n0,5,6\n", "line 1, column 3: the name 0 is there twice"),
    ("latency_ms.csv", "klient,0,1\n0,5,6\n", "line 1: it must be client,0,1,..."),
    ("latency_ms.csv", "client;0;1\n0;5;6\n", "separated by semicolons"),
    ("latency_ms.csv", "client,0,1\n0,5,6\n1,,\n", "client 1 is reached by no edge"),
    ("latency_ms.csv", "client,0,1\n0,5,\n1,6,inf\n", "edge 1 is reached by no client"),
    ("latency_ms.csv", "", "it is empty"),
    ("latency_ms.csv", "client,0,1\n", "it has no rows"),
    ("latency_ms.csv", b"client,0,1\n0,5,6\n1,\xff,6\n", "line 3: byte 0xff is not UTF-8"),
    ("latency_ms.csv", "client,edge,latency_ms\n0,0,5\n0,0,6\n", "line 3: client 0 and edge 0 are in line 2"),
    ("latency_ms.csv", "client,edge,latency_ms\n0,0,5\n2,0,6\n", "client 1 is missing"),
    ("latency_ms.csv", "client,edge,latency_ms\n0,0,5\n0,1,-2\n", "line 3, column 3 (latency_ms): it must be mill"),
    ("latency_ms.csv", "client,edge,latency_ms\n0,0,5\n400000000,9000,6\n", "pairs, and at most 500,000,000"),
    ("send_ms.csv", "client,0\n0,0\n", "line 2, column 2 (0): it must be milliseconds > 0, got 0"),
    ("clients.csv", "client,step_ms\n0,\n", "line 2, column 2 (step_ms): it must be a number, got nothing"),
    ("clients.csv", "client,step_ms\n0,inf\n", "line 2, column 2 (step_ms): it must be milliseconds > 0, got inf"),
    ("clients.csv", "client,speed\n0,1\n", "line 1, column 2: unknown name speed; it may have client, f_ghz"),
    ("clients.csv", "client,step\n0,1\n", "did you mean step_ms?"),
    ("clients.csv", "step_ms\n1\n", "line 1: the column client is missing"),
    ("clients.csv", "client,samples\n0,1.5\n", "line 2, column 2 (samples): it must be a whole number >= 1, got 1.5"),
    ("clients.csv", "client,samples\n0,0\n", "got 0"),
    ("clients.csv", "client,f_ghz,step_ms\n0,1,2\n", "f_ghz and step_ms both say how long"),
    ("edges.csv", "edge,wan_rtt_ms\n0,1\n1,-1\n", "line 3, column 2 (wan_rtt_ms): it must be milliseconds >= 0"),
    ("labels.csv", "client,0,1\n0,3,4\n1,0,0\n", "line 3, column 2 (0): the client has no samples"),
    ("association.csv", "client,edge\n0,0\n1,-1\n", "line 3, column 2 (edge): edge must be a whole number"),
    ("association.csv", "client,edge\n0,0\n1,2\n", "edge 1 has no client"),
    ("availability.csv", "time_s,client,event\n1,0,vanish\n", "line 2, column 3 (event): event must be join"),
    ("availability.csv", "time_s,client,event\n-1,0,join\n", "line 2, column 1 (time_s): time_s must be a number"),
    ("availability.csv", "time_s,client,event\nsoon,0,join\n", "column 1 (time_s): it must be a number, got soon"),
    ("availability.csv", "time_s,client,event\n1,0,move\n", "edge must be the edge that the client moves to"),
    ("availability.csv", "time_s,client,event,edge\n1,0,leave,1\n", "edge must be nothing if a client leaves"),
    ("availability.csv", "time_s,client,event\n1,0\n", "line 2: it has 2 columns"),
    ("latencies.csv", "client,0\n0,1\n", "no file of a federation has this name; did you mean latency_ms.csv?"),
    ("federation.npz", b"not a zip file", "it cannot be read as npz"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "said"), WRONG)
def test_what_is_wrong_is_named_by_file_line_and_column(
    tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    write(tmp_path, **{name: content})
    with pytest.raises(DataError) as raised:
        read_federation(tmp_path)
    assert said in str(raised.value)
    assert name in str(raised.value)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"clients.csv": "client,step_ms\n0,1\n1,1\n"}, "has 3 clients (latency_ms), and"),
        ({"edges.csv": "edge,wan_rtt_ms\n0,1\n"}, "has 2 edges (latency_ms), and"),
        (
            {"association.csv": "client,edge\n0,0\n1,1\n2,0\n"},
            "line 3, column 2 (edge): edge 1 does not reach",
        ),
        ({"association.csv": "client,edge\n0,0\n1,0\n2,2\n"}, "line 4, column 2 (edge): there is no edge 2"),
        (
            {"clients.csv": "client,samples\n0,30\n1,41\n2,50\n"},
            "line 3, column 2 (samples): client 1 has 41",
        ),
        ({"send_ms.csv": "client,0,1\n0,1,1\n1,1,1\n2,1,1\n"}, "send_ms and latency_ms both say"),
    ],
)
def test_files_that_contradict_each_other_are_refused(tmp_path: Path, files: dict, said: str) -> None:
    with pytest.raises(DataError) as raised:
        read_federation(write(tmp_path, **{**GOOD, **files}))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ("1,7,leave,\n", "column 2 (client): there is no client 7; the federation has 3 clients"),
        ("1,0,move,5\n", "column 4 (edge): there is no edge 5"),
        ("1,0,leave,\n2,0,leave,\n", "line 3, column 3 (event): client 0 cannot leave at 2 s: it is not there"),
        ("1,0,leave,\n2,0,join,\n3,0,join,\n", "line 4, column 3 (event): client 0 cannot join at 3 s: it is there"),
        ("1,0,leave,\n2,0,move,0\n", "client 0 cannot move at 2 s: it is not there"),
        ("1,1,move,1\n", "line 2, column 4 (edge): edge 1 does not reach client 1. Give send_ms"),
        ("1,0,join,\n1,1,join,\n1,2,join,\n", "no client is there at the start"),
        ("1,0,leave,\n1,1,leave,\n2,2,leave,\n", "line 4, column 3 (event): client 2 is the last one"),
    ],
)  # fmt: skip
def test_events_that_cannot_happen_are_refused(tmp_path: Path, events: str, said: str) -> None:
    write(tmp_path, **{**GOOD, "availability.csv": f"time_s,client,event,edge\n{events}"})
    with pytest.raises(DataError) as raised:
        read_federation(tmp_path).check(3, 2)
    assert said in str(raised.value)


def test_a_link_that_an_event_gives_is_in_reach_from_then_on(tmp_path: Path) -> None:
    rows = "1,1,move,1,40\n2,1,move,0,\n3,1,move,1,\n"
    write(tmp_path, **{**GOOD, "availability.csv": f"time_s,client,event,edge,send_ms\n{rows}"})
    read_federation(tmp_path).check(3, 2)


def test_folders_that_are_none_and_files_that_are_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_federation(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="is not a folder"):
        read_federation(tmp_path / "file")
    with pytest.raises(DataError, match="has no file of a federation"):
        read_federation(tmp_path)
    (tmp_path / "latency_ms.csv").mkdir()
    with pytest.raises(DataError, match=r"latency_ms\.csv: it is not a file"):
        read_federation(tmp_path)
    (tmp_path / "latency_ms.csv").rmdir()
    os.mkfifo(tmp_path / "latency_ms.csv")
    with pytest.raises(DataError, match=r"latency_ms\.csv: it is not a file"):
        read_federation(tmp_path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "MOST_BYTES", 10)
    with pytest.raises(DataError, match=r"at most 10 are read\. Large matrices take less as arrays"):
        read_federation(write(tmp_path, **{"latency_ms.csv": GOOD["latency_ms.csv"]}))


class Evil:
    """Would run code if it were unpickled."""

    def __reduce__(self) -> tuple:
        return os.system, ("true",)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"latency_ms": np.array([Evil()])}, "latency_ms: it holds objects (object), which are not read"),
        ({"latency_ms": np.array(["a"])}, "latency_ms: it must hold numbers, got <U1"),
        ({"latency_ms": np.ones(3)}, "latency_ms: it must have the shape (clients, edges), got (3,)"),
        ({"latency_ms": np.ones((0, 2))}, "latency_ms: it must have the shape (clients, edges), got (0, 2)"),
        ({"latency_ms": np.array([[1.0, np.nan]])}, "latency_ms[0, 1]: it must be milliseconds >= 0, got NaN"),
        ({"step_ms": np.array([1.0, -2.0])}, "step_ms[1]: it must be milliseconds > 0, got -2"),
        ({"labels": np.array([[1.5]])}, "labels[0, 0]: it must be a whole number >= 0, got 1.5"),
        ({"latency": np.ones((2, 2))}, "unknown array latency; did you mean latency_ms?"),
        ({"availability_time_s": np.ones(2)}, "the array availability_client is missing"),
        (
            {
                "availability_time_s": np.ones(2),
                "availability_client": np.ones(3),
                "availability_event": np.array(["join", "join"]),
            },
            "availability_client: it must hold 2 numbers, got shape (3,)",
        ),
    ],
)  # fmt: skip
def test_a_wrong_array_of_an_npz_file_is_named(tmp_path: Path, arrays: dict, said: str) -> None:
    np.savez(tmp_path / "federation.npz", **arrays)
    with pytest.raises(DataError) as raised:
        read_federation(tmp_path)
    assert said in str(raised.value)
    assert "federation.npz" in str(raised.value)


def test_one_thing_from_two_files_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "federation.npz", latency_ms=np.ones((3, 2)))
    with pytest.raises(DataError, match=r"both give latency_ms; remove one"):
        read_federation(write(tmp_path, **{"latency_ms.csv": GOOD["latency_ms.csv"]}))


def test_arrays_in_python_are_checked_alike_and_cannot_be_changed() -> None:
    found = FederationData(
        latency_ms=[[5, 20], [30, INF]], availability=[(3, 1, "join", 0), (9.0, 0, "leave")]
    )
    assert found.clients == 2
    assert found.availability.absent.tolist() == [1]
    with pytest.raises(ValueError, match="read-only"):
        found.latency_ms[0, 0] = 1
    for arrays, said in (
        ({"latency_ms": [[1], [2, 3]]}, "rows differ in length"),
        ({"latency_ms": [["x"]]}, "must hold numbers"),
        ({"association": [0, 2]}, "edge 1 has no client"),
        ({"availability": [(1, 0)]}, r"availability\[0\] must be \(time_s, client, event\)"),
        ({"availability": [(1, "x", "join")]}, "must have numbers"),
        ({"availability": "join"}, "must be a list of events"),
    ):
        with pytest.raises(DataError, match=said):
            FederationData(**arrays)


@pytest.mark.parametrize(("clients", "edges"), [(5, 6), (5, 0), (2_000_000, 2), (1_000_000, 1_000)])
def test_an_example_has_a_sensible_size(clients: int, edges: int) -> None:
    with pytest.raises(ConfigError, match="an example has"):
        make_example(clients, edges)


@settings(max_examples=30, deadline=None)
@given(clients=st.integers(1, 40), edges=st.integers(1, 8), seed=st.integers(0, 5))
def test_every_example_is_a_whole_federation(clients: int, edges: int, seed: int) -> None:
    if edges <= clients:
        made = make_example(clients, edges, seed)
        made.check(clients, edges)


cells = st.one_of(
    st.integers(-3, 400).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.sampled_from(["", " ", "nan", "inf", "-", "1e3", '"7"', "1_0", "x", "०", "\x00", ","]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(GOOD)),
    edits=st.lists(st.tuples(st.integers(0, 30), cells), min_size=1, max_size=3),
    line_end=st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_a_table_with_any_cells_is_read_or_refused_with_its_name(
    tmp_path: Path, name: str, edits: list, line_end: str
) -> None:
    table = [line.split(",") for line in GOOD[name].strip().split("\n")]
    for place, cell in edits:
        row, column = divmod(place % sum(map(len, table)), len(table[0]))
        table[row][column] = cell
    write(tmp_path, **{name: line_end.join(",".join(row) for row in table)})
    said = problem(tmp_path)
    (tmp_path / name).unlink()
    assert said is None or name in said


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([*sorted(GOOD), "federation.npz"]), content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_the_name_of_the_file(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    try:
        with pytest.raises(DataError, match=name.replace(".", r"\.")):
            read_federation(tmp_path)
    finally:
        (tmp_path / name).unlink()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 5000), byte=st.integers(0, 255))
def test_a_damaged_npz_file_is_read_or_refused(tmp_path: Path, place: int, byte: int) -> None:
    path = tmp_path / "federation.npz"
    np.savez(path, latency_ms=np.arange(1.0, 7.0).reshape(3, 2), step_ms=np.ones(3))
    content = bytearray(path.read_bytes())
    content[place % len(content)] = byte
    path.write_bytes(content)
    said = problem(tmp_path)
    assert said is None or "federation.npz" in said


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(
        st.lists(st.one_of(st.floats(0, 1e9), st.just(INF)), min_size=2, max_size=2), min_size=1, max_size=6
    )
)
def test_wide_long_and_npz_give_the_same_numbers_to_the_last_bit(tmp_path: Path, values: list) -> None:
    matrix = np.array(values)
    matrix[:, 0] = np.where(np.isinf(matrix[:, 0]), 1.0, matrix[:, 0])  # everybody reaches edge 0
    matrix[0, 1] = 2.0  # and somebody edge 1
    shown = [["" if value == INF else repr(value) for value in row] for row in matrix.tolist()]
    path = tmp_path / "latency_ms.csv"
    path.write_text("client,0,1\n" + "".join(f"{k},{a},{b}\n" for k, (a, b) in enumerate(shown)))
    wide = read_federation(tmp_path)
    rows = "".join(f"{k},{m},{row[m]}\n" for k, row in enumerate(shown) for m in (0, 1) if row[m])
    path.write_text("client,edge,latency_ms\n" + rows)
    long = read_federation(tmp_path)
    path.unlink()
    np.savez(tmp_path / "federation.npz", latency_ms=matrix)
    archive = read_federation(tmp_path)
    (tmp_path / "federation.npz").unlink()
    assert wide.digest == long.digest == archive.digest
