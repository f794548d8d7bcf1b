"""What keys allow is what they say: in errors, in help and in the documents."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hiflash.config import Config
from hiflash.config.applicability import NOISE_KEYS, needs, out_of_place
from hiflash.config.document import keys_table, kinds_table, parts_table
from hiflash.config.parts import keys_of
from hiflash.config.tree import describe_keys
from hiflash.core.registry import declared_keys
from hiflash.errors import ConfigError
from hiflash.methods.kinds import KINDS, THRESHOLDS

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"
WHOLE = re.compile(r"a whole number from ([\d,]+) to ([\d,]+)")
INTERVAL = re.compile(r"in ([\[(])(-?[\d.e-]+), ([\d.e-]+)([\])])")
TEXTS = {
    "device",
    "plugins",
    "client.function",
    "data.partition",
    "data.dir",
    "federation.files",
    "cloud.agent",
    "ray.address",
}
PAIRS = {"resources.f_ghz", "resources.bandwidth_mhz", "wan.rtt_ms", "wan.bandwidth_mbps"}
KEYS = {key: (allowed, default) for key, allowed, default, _ in describe_keys()}


class Bounds(NamedTuple):
    low: float
    high: float
    with_low: bool = True
    with_high: bool = True

    def __contains__(self, value: object) -> bool:
        assert isinstance(value, int | float)
        above = value >= self.low if self.with_low else value > self.low
        return above and (value <= self.high if self.with_high else value < self.high)

    def just_outside(self) -> list[float]:
        if isinstance(self.low, int):
            return [self.low - 1, self.high + 1]
        low = math.nextafter(self.low, -math.inf) if self.with_low else self.low
        return [low, math.nextafter(self.high, math.inf) if self.with_high else self.high]

    def just_inside(self) -> list[float]:
        if isinstance(self.low, int):
            return [self.low, self.high]
        low = self.low if self.with_low else math.nextafter(self.low, math.inf)
        return [low, self.high if self.with_high else math.nextafter(self.high, -math.inf)]


def bounds(text: str) -> Bounds | None:
    """Return the bounds that a text names in words."""
    if whole := WHOLE.search(text):
        low, high = (int(number.replace(",", "")) for number in whole.groups())
        return Bounds(low, high)
    if interval := INTERVAL.search(text):
        left, least, most, right = interval.groups()
        return Bounds(float(least), float(most), left == "[", right == "]")
    return None


NUMERIC = [key for key, (allowed, _) in KEYS.items() if bounds(allowed)]


def beside(key: str) -> dict[str, Any]:
    """Return the settings that a key needs beside it."""
    needed: dict[str, Any] = {need.keys[0]: need.values[0] for need in needs().get(key, ())}
    if key in NOISE_KEYS:
        needed["privacy.epsilon"] = 1.0
    return {**{k: v for other in needed for k, v in beside(other).items()}, **needed}


def as_value(key: str, number: float) -> Any:
    default = KEYS[key][1]
    return [number] * (2 if key == "cloud.hinge" else 1) if isinstance(default, list) else number


def test_every_key_that_is_a_number_names_its_bounds() -> None:
    words = {key for key, (allowed, _) in KEYS.items() if re.match(r'("|true)', allowed)}
    assert set(KEYS) == {*NUMERIC, *words, *TEXTS, *PAIRS}
    assert len(NUMERIC) > 60


@pytest.mark.parametrize("key", NUMERIC)
def test_a_value_just_outside_a_bound_is_refused_with_words_that_exclude_it(key: str) -> None:
    documented = next(line for line in DOCS.read_text().splitlines() if line.startswith(f"| `{key}` |"))
    for number in bounds(KEYS[key][0]).just_outside():  # type: ignore[union-attr]
        with pytest.raises(ConfigError) as caught:
            Config(**{**beside(key), key: as_value(key, number)})
        (problem,) = caught.value.problems
        assert problem.startswith(f"{key} must be ")
        said = bounds(problem.split(", got ")[0])
        assert said is not None
        assert number not in said
        assert said == bounds(documented)


@pytest.mark.parametrize("key", NUMERIC)
def test_a_value_just_inside_a_bound_is_accepted(key: str) -> None:
    section, _, name = key.rpartition(".")
    for number in bounds(KEYS[key][0]).just_inside():  # type: ignore[union-attr]
        if section:
            part: Any = Config.model_fields[section].annotation
            assert getattr(part(**{name: as_value(key, number)}), name) in (number, (number,), (number,) * 2)
        else:
            assert getattr(Config(**{key: number}), key) == number


@pytest.mark.parametrize("key", sorted(PAIRS))
@pytest.mark.parametrize("pair", [[0, 1], [2, 1], [1, 1.1e9], [1], 1])
def test_a_range_rises_from_above_zero_to_its_bound(key: str, pair: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be \[low, high\] with 0 < low <= high <= 1e9, got"):
        Config(**{key: pair})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("federation.clients", 10**12, "must be a whole number from 1 to 10,000,000, got 1000000000000."),
        ("workers", 10_000, "must be a whole number from 0 to 1,024, got 10000."),
        ("client.batch", 10**8, "must be a whole number from 1 to 10,000,000, got 100000000."),
        ("client.lr", 1e300, "must be in (0, 1e12], got 1e+300."),
        ("resources.slot_s", 1e-300, "must be in [0.0001, 1e12], got 1e-300."),
        ("edge.clients_per_round", 1.0, 'a whole number from 1 to 10,000,000, in (0, 1) or "all", got 1.0'),
        ("edge.clients_per_round", 0, 'a whole number from 1 to 10,000,000, in (0, 1) or "all", got 0'),
        ("edge.clients_per_round", "half", 'in (0, 1) or "all", got "half"'),
        ("edge.edge_rounds", [], "a list of 1 to 1,000 numbers, each a whole number from 1 to 200"),
        ("cloud.hinge", [1], "must be a list of 2 numbers, each in [0, 1e6]"),
        ("cloud.threshold", -1, 'must be a whole number from 0 to 1,000,000, "inf", '),
        ("data.name", "cifar", '"flights-delay-carriers", "shakespeare" or "none", got'),
    ],
)
def test_errors_name_both_bounds(key: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**{**beside(key), key: value})
    assert said in caught.value.problems[0]


def test_the_tables_of_the_documents_are_those_that_are_printed() -> None:
    text = DOCS.read_text()
    assert keys_table() in text
    for word in KINDS:
        assert parts_table(word) in text
    assert kinds_table() in DOCS.with_name("plugins.md").read_text()


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_key_of_a_threshold_is_an_error_beside_every_threshold_that_does_not_use_it(name: str) -> None:
    part = THRESHOLDS[name]
    for key in declared_keys(THRESHOLDS.values()).values():
        given = {"cloud.threshold": name, f"cloud.{key.name}": key.default}
        if key.anywhere or key.name in part.reads or key in part.keys:
            assert getattr(Config(**given).cloud, key.name) == key.default
        else:
            with pytest.raises(ConfigError, match=f'is for cloud.threshold = .*, and here that is "{name}"'):
                Config(**given)


def test_no_threshold_takes_the_name_of_a_key_that_the_cloud_has_anyway() -> None:
    declared = [f"cloud.{name}" for name in declared_keys(THRESHOLDS.values())]
    cloud = [key for key in KEYS if key.startswith("cloud.")]
    start = cloud.index("cloud.threshold") + 1
    # behind cloud.threshold, in the order of their declaration, and nowhere else
    assert cloud[start : start + len(declared)] == declared
    assert cloud[start + len(declared) :] == ["cloud.enforce", "cloud.norm_bound"]


@pytest.mark.parametrize("word", KINDS)
def test_a_key_of_any_part_is_out_of_place_beside_the_parts_that_do_not_use_it(word: str) -> None:
    kind, defaults = KINDS[word], {key: default for key, (_, default) in KEYS.items()}
    for choosing in kind.keys:
        section = choosing.partition(".")[0]
        for part in kind.parts.values():
            settings = {**defaults, **beside(choosing), choosing: part.name}
            for key in keys_of(kind).values():
                said = out_of_place(f"{section}.{key.name}", settings)
                used = key.anywhere or key in part.keys or key.name in part.reads
                assert (said == "") == used
                assert used or said.startswith("is for ")
