"""Words for readers of the paper's items: names, units and texts of verdicts."""

from __future__ import annotations

import pytest

from hiflash.report.paper import claim_number
from hiflash.report.paper_words import in_words, label_words, part_words
from hiflash.study.paper.items import NAMES, load_item
from hiflash.study.paper.reading_rules import SETTINGS


@pytest.mark.parametrize(
    ("unit", "value", "words"),
    [
        ("percent", -31.94, "-31.9 %"),
        ("percent", 5.0, "+5.0 %"),
        ("points", -0.04, "0.0 points"),  # what rounds to zero has no sign
        ("points", -0.06, "-0.1 points"),
        ("ratio", 9.8e4 / 5.3e5, "18.5 %"),  # 0.1849
        ("thresholds", 1.64, "1.64"),
        ("thresholds", -1.0, "-1"),
        ("edges", 0.494, "+0.49 edges"),
        ("correlation", -1.0, "rank correlation -1"),
        ("correlation", 0.786, "rank correlation 0.79"),
        ("% in order", 100.0, "all in order"),
        ("% in order", 200 / 3, "67 % in order"),
        ("parameters", 21840, "21,840 parameters"),
        ("times", 1.798, "1.8 times"),
    ],
)
def test_numbers_read_well_in_their_unit(unit: str, value: float, words: str) -> None:
    assert claim_number({"ours": value, "unit": unit}, "ours") == words


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("falls with lambda on noniid1-balanced", "falls with lambda on balanced Non-IID(1)"),
        ("on iid, noniid2, noniid1: of fedavg 12 %", "on IID, Non-IID(2), Non-IID(1): of FedAvg 12 %"),
        (
            "hifl+wan-off 522, fedat-h+wan-off 9",
            "HiFL (no WAN delays) 522, FedAT (HiFL's H, no WAN delays) 9",
        ),
        ("tau-2-discard not reached", "tau = 2 (late models dropped) not reached"),
        (
            "0.7/0.99 90.6 %, best 0.7/1 90.6 %",
            "90.6 % with alpha 0.7 and upsilon 0.99, best 90.6 % with alpha 0.7 and upsilon 1",
        ),
        ("edge-iid 93.8 %, edge-noniid 92.5 %", "93.8 % with Edge-IID, 92.5 % with Edge-NonIID"),
        ("total_js 2.15 at lambda 0", "total JS divergence 2.15 at lambda 0"),
        ("agent-16 has 4,638 parameters", "the DDQN for tau_max 16 has 4,638 parameters"),
        ("higher than 1/5 of the history; Edge-IID is so", "higher than 1/5 of the history; Edge-IID is so"),
    ],
)
def test_texts_have_words_for_names(raw: str, words: str) -> None:
    assert in_words(raw) == words


def test_every_label_of_an_item_has_words() -> None:
    labels = set()
    for name in NAMES:
        plan = load_item(name).plan("full")
        labels |= {*plan.variants, *plan.get("methods", ())}
    told = {label: label_words(label) for label in labels}
    assert {label for label, words in told.items() if label == words} == set()
    assert len(set(told.values())) == len(told)  # no two read the same


def test_settings_have_the_same_words_in_labels_and_in_claims() -> None:
    for suffix, words in SETTINGS.items():
        assert label_words(f"hifl{suffix}") == (f"HiFL, {words}" if suffix else "HiFL")


def test_every_partition_of_an_item_has_words() -> None:
    parts = {part for name in NAMES for part in load_item(name).plan("full").get("partitions", ())}
    assert {part for part in parts if part_words(part) == part} == set()
