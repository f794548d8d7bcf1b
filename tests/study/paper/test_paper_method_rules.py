"""Claims about methods side by side: which are the paper's, which repeat others, and what ties tell."""

from __future__ import annotations

import pytest

from hiflash.study.paper.accuracy_rules import accuracy_claims
from hiflash.study.paper.method_rules import femnist_communications
from hiflash.study.paper.rule_makers import fewest_everywhere, slightly_below
from hiflash.study.paper.runs import Runs
from paper_cells import cell, verdicts


@pytest.mark.parametrize(
    ("gap", "slightly"), [(0.01, False), (0, False), (-0.01, True), (-0.029, True), (-0.04, False)]
)
def test_slightly_below_is_below_and_not_far(gap: float, slightly: bool) -> None:
    runs = Runs([cell("hifl", [(10, 0.8 + gap)]), cell("fedavg", [(10, 0.8)])])
    found = slightly_below("hifl", "fedavg", "noniid2", 3.0)(runs)
    assert (found.holds, found.ours) == (slightly, pytest.approx(100 * gap, abs=1e-9))


def test_a_tie_at_the_first_evaluation_tells_nothing() -> None:
    cells = [cell("hiflash", [(10, 0.3), (20, 0.8)]), cell("fedavg", [(10, 0.4), (30, 0.8)])]
    runs = Runs(cells, None, (0.2, 0.7))
    assert runs.less("hiflash", "fedavg", target=0.2) is None
    assert runs.less("hiflash", "fedavg", target=0.7) is True
    found = fewest_everywhere("hiflash", ("noniid2",), ("fedavg",))(runs)
    assert (found.holds, found.ours) == (None, 50)
    assert found.words.endswith("; not fewer, or not known to be, than fedavg (to 20 %)")


def test_a_gap_to_fedavg_counts_once() -> None:
    """On IID data it is asked whether HiFL is comparable, elsewhere whether it is at most slightly below."""
    names = [claim.name for claim in accuracy_claims(("iid", "noniid2")) if "hifl_" in claim.name]
    assert [name for name in names if "near" in name] == ["hifl_near_fedavg_iid"]
    assert [name for name in names if "slightly" in name] == ["hifl_slightly_below_fedavg_noniid2"]


def test_on_femnist_the_paper_claims_hiflash_above_other_hierarchies_alone() -> None:
    own = {claim.name: claim for claim in accuracy_claims(("writer",)) if claim.whose == "paper"}
    assert [name for name, claim in own.items() if not claim.of] == [
        "hiflash_above_hierfavg_writer", "hiflash_above_fedat_writer", "centralized_is_the_upper_bound",
    ]  # fmt: skip
    assert own["hiflash_above_fedat_h_writer"].of == "hiflash_above_fedat_writer"


def test_a_rival_in_another_reading_is_a_reading_of_the_claim_about_all() -> None:
    whole, *parts = femnist_communications()
    assert {claim.of for claim in parts} == {whole.name}
    assert [claim.name.removeprefix(f"{whole.name}_") for claim in parts] == [
        "hierfavg_5", "hierfavg_5_equal", "fedat_h", "fedasync_exp",
    ]  # fmt: skip
    quick = [cell("hiflash", [(20, 0.9)], "writer"), cell("hierfavg", [(10, 0.9)], "writer"),
             *(cell(name, [(30, 0.9)], "writer")
               for name in ("fedavg", "fedasync", "fedat", "hifl", "hierfavg-5"))]  # fmt: skip
    found = verdicts(femnist_communications(), Runs(quick, None, (0.9,)))
    assert (found["hiflash_is_best"], found["hiflash_is_best_hierfavg_5"]) == ((False, 0), (True, 100))
