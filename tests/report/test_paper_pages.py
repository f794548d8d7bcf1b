"""Pages about the paper's items: a row per claim, its readings, numbers by target, and how they were made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmarks.paper_pages import END, START, main, read_item, write_claims, write_item

from hiflash.report.paper_pages import item_page, overview

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def claim(name: str, holds: bool | None, ours: float | None, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "says": f"{name} is so", "holds": holds, "paper": -10.0, "ours": ours,
        "unit": "percent", "found": "a 9, b 10", "why": "because", "of": "", "reading": "",
        "whose": "paper", **more,
    }  # fmt: skip


def told(item: str, *claims: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "item": item, "title": "A title", "source": "Fig. 1", "command": f"hiflash paper run {item}",
        "scale": "full", "changed": {}, "differences": ["Another."], "claims": list(claims), "rows": [],
        "runs": [], "wall_s": 61.0, "digest": "0f", **more,
        "made_by": {"hiflash": "1", "system": "Linux", "machine": "x", "cores": 2},
    }  # fmt: skip


def row(label: str, *communications: float | None) -> dict[str, Any]:
    to = [
        {"target": target, "communications": at, "communications_range": None if at is None else [at - 1, at]}
        for target, at in zip((0.8, 0.9), communications, strict=True)
    ]
    return {
        "partition": "noniid2", "label": label, "seeds": 2, "to": to, "target": 0.9, "client_steps": 1200.4,
        "virtual_s": 30.2, "total_cost": None, "stable_communications": communications[-1],
        "accuracy": 0.912, "best_accuracy": 0.93,
    }  # fmt: skip


def test_a_reading_stands_in_the_row_of_the_claim_that_it_repeats() -> None:
    first = told("one", claim("a", False, 5.0), claim("b", None, None),
                 claim("a_more", True, -3.0, of="a", reading="five edges"))  # fmt: skip
    other = told("two", claim("a_again", False, 8.0, of="one/a", reading="epochs"),
                 claim("a_third", None, None, of="one/a", reading="tiers"))  # fmt: skip
    lines = overview([first, other], "pages/{item}.md")
    assert lines[2:] == [
        "| [one](pages/one.md) | a is so | -10.0 % | does not | +5.0 % (a 9, b 10) | "
        "holds: five edges (-3.0 %); does not: epochs (+8.0 %); cannot tell: tiers | because |",
        "| [one](pages/one.md) | b is so | -10.0 % | cannot tell | a 9, b 10 |  | because |",
    ]


def test_what_the_paper_does_not_claim_has_a_table_of_its_own(tmp_path: Path) -> None:
    one = told("one", claim("a", True, -5.0), claim("b", True, -6.0, whose="ours", paper=None))
    lines = overview([one])
    assert lines[2] == "| [one](one.md) | a is so | -10.0 % | holds | -5.0 % (a 9, b 10) |  |  |"
    assert lines[3:5] == ["", "Not claims of the paper, but worth a look:"]
    assert lines[-1] == "| [one](one.md) | b is so | holds | -6.0 % (a 9, b 10) |  |  |"
    assert "b is so (not in the paper)" in item_page(one)
    page = tmp_path / "paper.md"
    page.write_text(f"{START}\n{END}\n")
    write_claims([one], page)
    assert "1 claims, as written: 1 hold, 0 do not" in page.read_text()


def test_a_page_has_claims_figures_numbers_and_how_it_was_made() -> None:
    runs = [{"name": "hifl-s0", "digest": "12"}]
    page = item_page(told("one", claim("a", True, -9.0), rows=[row("hifl", 10, 20), row("fedavg", 30, None)],
                          runs=runs), ["needs.png"])  # fmt: skip
    assert "| a is so | -10.0 % | -9.0 % | holds | a 9, b 10 |  |" in page
    assert "![Communications until targets were reached; a target without a dot was not.](needs.png)" in page
    heads = (
        "| Method | comms to 80% | comms to 90% | stable at 90% | client steps to 90% | virtual time to 90% |"
    )
    assert heads in page
    assert "| HiFL | 10 (9-10) | 20 (19-20) | 20 | 1,200 | 30 s | 91.2 % | 93.0 % | 2 |" in page
    assert "| FedAvg | 30 (29-30) | not reached | - |" in page
    assert "Made by one run, 1m 01s in all, with HiFlash 1 on Linux x with 2 cores." in page
    assert "The digest of these numbers is `0f`" in page
    assert "last five evaluations" not in page
    assert "last five evaluations" in item_page(told("one", claim("a", True, 1.0, unit="points")))
    assert "Changed settings" not in page
    assert "not the item as it ships" in item_page(told("one", changed={"seed": 3}))


def test_readings_have_a_table_of_their_own_with_the_words_of_their_claims() -> None:
    here = claim("a_more", True, -3.0, of="a", reading="five edges")
    elsewhere = claim("other", None, None, of="two/x", reading="epochs")
    page = item_page(told("one", claim("a", False, 5.0), here, elsewhere))
    written, readings = page.split("## Other readings of what the paper leaves open")
    assert "a_more" not in written
    assert "| a_more is so | five edges | -10.0 % | -3.0 % | holds | a 9, b 10 |  |" in readings
    same = claim("a_more", True, -3.0, says="the same with five edges", of="a", reading="five edges")
    assert "| a is so | five edges |" in item_page(told("one", claim("a", False, 5.0), same))
    assert "| other is so | epochs | -10.0 % | - | cannot tell | a 9, b 10 | because |" in readings
    assert "Other readings" not in item_page(told("one", claim("a", True, 1.0)))


def test_a_number_that_the_words_repeat_stands_once() -> None:
    size = claim("a", True, 21_840, unit="parameters", found="lenet has 21,840 parameters")
    waits = claim("b", True, 0.0, unit="ms", found="hifl 30 ms")
    lines = overview([told("one", size, waits)])
    assert "| holds | LeNet has 21,840 parameters |" in lines[2]
    assert "| holds | 0 ms (HiFL 30 ms) |" in lines[3]  # 30 ms is another number


def test_pages_name_partitions_and_labels_in_words() -> None:
    page = item_page(told("one", claim("a on noniid2", True, 1.0), rows=[row("hifl-paper", 10, 20)]))
    assert "| a on Non-IID(2) is so |" in page
    assert "\n## Non-IID(2)\n" in page
    assert "| HiFL, paper's accounting | 10 (9-10) |" in page


def test_figures_that_an_item_no_longer_has_are_removed(tmp_path: Path) -> None:
    folder, pages = tmp_path / "full", tmp_path / "pages"
    for path in (folder, pages):
        path.mkdir()
    (folder / "paper.json").write_text(json.dumps(told("communications-mnist")))
    (folder / "needs.png").write_bytes(b"new")
    for name in ("communications-mnist-old.png", "communications-mnist-epochs-needs.png"):
        (pages / name).write_bytes(b"old")
    write_item(read_item(folder / "paper.json"), folder, pages)
    kept = sorted(path.name for path in pages.glob("*.png"))
    assert kept == ["communications-mnist-epochs-needs.png", "communications-mnist-needs.png"]


def test_the_table_goes_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "paper.md"
    page.write_text(f"before\n{START}outdated{END}\nafter\n")
    for _ in range(2):
        write_claims([told("one", claim("a", True, 1.0), claim("b", None, None))], page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "2 claims, as written: 1 hold, 0 do not, 1 cannot be told." in text
    assert (text.count("[one]"), text.count("outdated")) == (2, 0)


def finished(runs: Path, item: str, **more: Any) -> Path:
    """Save an item as if it had been run at full scale, and return its folder."""
    folder = runs / item / "full"
    folder.mkdir(parents=True)
    (folder / "paper.json").write_text(json.dumps(told(item, claim("a", True, 1.0), **more)))
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/paper.md").write_text(f"before\n{START}old{END}\nafter\n")
    return tmp_path / "results"


def test_pages_have_the_figures_of_the_item_and_no_others(tmp_path: Path, results: Path) -> None:
    one, other = finished(tmp_path / "runs", "js-lambda"), finished(tmp_path / "runs", "agent-thresholds")
    for path in (one / "lambda.png", one / "before/lambda.png", other / "agent/thresholds.png",
                 other / "left-over/thresholds.png"):  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"png")
    assert main([str(tmp_path / "runs"), str(results)]) == 0
    assert sorted(path.name for path in (results / "paper").glob("*.png")) == [
        "agent-thresholds-agent-thresholds.png", "js-lambda-lambda.png",
    ]  # fmt: skip
    assert "(js-lambda-lambda.png)" in (results / "paper/js-lambda.md").read_text()
    assert "2 claims, as written: 2 hold" in (results / "paper.md").read_text()


@pytest.mark.parametrize(
    "text", ["", f"before {START}", f"before {END}", f"{END} {START}", f"{START}{START}{END}"]
)
def test_a_page_without_both_marks_is_left_as_it_is(
    text: str, tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(tmp_path / "runs", "js-lambda")
    (results / "paper.md").write_text(text)
    assert main([str(tmp_path / "runs"), str(results)]) == 2
    assert f"paper.md must have {START} and, after it, {END}" in capsys.readouterr().err
    assert (results / "paper.md").read_text() == text
    (results / "paper.md").unlink()
    assert main([str(tmp_path / "runs"), str(results)]) == 2
    assert list(results.iterdir()) == []  # no page of an item either


def test_an_item_with_changed_settings_is_not_published(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(tmp_path / "runs", "js-lambda")
    finished(tmp_path / "runs", "latency", changed={"seeds": 1})
    before = (results / "paper.md").read_text()
    assert main([str(tmp_path / "runs"), str(results)]) == 2
    said = capsys.readouterr().err
    assert "latency/full/paper.json is not of the item as it ships, it has {'seeds': 1}" in said
    assert [path.name for path in results.iterdir()] == ["paper.md"]
    assert (results / "paper.md").read_text() == before


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert "a\\|b is so" in item_page(told("one", claim("a|b", True, 1.0)))


def test_an_item_that_was_not_run_here_keeps_its_numbers_and_gets_the_words_of_today(
    tmp_path: Path, results: Path
) -> None:
    pages = results / "paper"
    pages.mkdir()
    old = claim("hiflash_is_best", False, 29.0, says="in old words", unit="% of them")
    gone = claim("nobody_asks_any_more", True, 1.0)
    (pages / "communications-femnist.json").write_text(json.dumps(told("communications-femnist", old, gone)))
    (pages / "communications-femnist-needs.png").write_bytes(b"png")
    small = told("communications-mnist", claim("a", True, 1.0), scale="small")
    (pages / "communications-mnist.json").write_text(json.dumps(small))
    assert main([str(tmp_path / "runs"), str(results)]) == 0
    kept = json.loads((pages / "communications-femnist.json").read_text())
    assert kept["holds"] == {"hiflash_is_best": False}
    (same,) = kept["claims"]
    assert (same["ours"], same["found"], same["unit"]) == (29.0, "a 9, b 10", "% of them")
    assert same["says"] == "HiFlash needs the fewest communications of all, for every target"
    page = (pages / "communications-femnist.md").read_text()
    assert "old words" not in page
    assert page.count("![") == page.count("communications-femnist-needs.png") == 1
    assert "not judged yet: HiFlash needs the fewest communications of all, with HierFAVG (5 edges)" in page
    table = (results / "paper.md").read_text()
    assert "1 claims, as written: 0 hold, 1 do not" in table
    assert "Not run yet at this scale, and not counted: models, association-example" in table
    assert ", communications-mnist," in table  # run at small scale alone
    assert "Newer than their runs, and not counted: 4 of communications-femnist." in table


@pytest.mark.parametrize("path", sorted((RESULTS / "paper").glob("*.json")), ids=lambda path: path.stem)
def test_a_committed_verdict_that_is_not_holds_has_a_reason(path: Path) -> None:
    claims = json.loads(path.read_text())["claims"]
    assert [each["name"] for each in claims if not each["holds"] and not each["why"]] == []


def test_the_committed_pages_have_the_words_of_today(tmp_path: Path) -> None:
    pages = shutil.copytree(RESULTS / "paper", tmp_path / "results" / "paper")
    shutil.copy(RESULTS / "paper.md", tmp_path / "results")
    assert main([str(tmp_path / "runs"), str(tmp_path / "results")]) == 0
    assert (tmp_path / "results" / "paper.md").read_text() == (RESULTS / "paper.md").read_text()
    assert {path.name: path.read_bytes() for path in pages.iterdir()} == {
        path.name: path.read_bytes() for path in (RESULTS / "paper").iterdir()
    }
