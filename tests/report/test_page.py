"""A page of blocks as HTML and as Markdown."""

from __future__ import annotations

import re
from base64 import b64encode
from html.parser import HTMLParser
from io import BytesIO
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from hiflash.report.canvas import new_figure
from hiflash.report.page.blocks import Cell, Heading, Items, Listing, Page, Row, Sheet, Words, sheet_of
from hiflash.report.page.claims import Claim, claim_blocks
from hiflash.report.page.html import to_html
from hiflash.report.page.items import item_blocks, items_words, read_item
from hiflash.report.page.markdown import to_markdown
from hiflash.report.page.png import checked_png
from hiflash.report.page.svg import drawing

EVIL = '<script>alert(1)</script> | `x` "quoted" & [link](x)'


ROWS = [Row([Cell("part"), Cell("")], heads=True), Row([Cell(EVIL), Cell("1", strong=True)])]


class Tags(HTMLParser):
    """The tags of a page, checked to be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attributes)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def figure(title: str = "a title") -> Figure:
    made = new_figure(4.0, 2.0, title)
    made.subplots().plot([1, 2], [3, 4])
    return made


def page(*blocks: object) -> Page:
    return Page("T & co", "about", blocks, ["made by"])  # type: ignore[arg-type]


@pytest.fixture
def full() -> Page:
    return page(
        Items("Left out", [EVIL], warning=True),
        Heading("One", "one"),
        Words(EVIL),
        Sheet(EVIL, ["name", "x"], ROWS, EVIL),
        drawing("a", figure(EVIL), EVIL),
        Heading("Two", "two"),
        drawing("b", figure(), "caption"),
        Listing(EVIL, EVIL, "toml"),
        Listing("commands", "hiflash run", "sh", folded=False),
    )  # fmt: skip


def test_html_is_well_formed_and_has_no_script_and_no_address(full: Page) -> None:
    text = to_html(full)
    tags = Tags(text)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in tags.all}
    for tag, attributes in tags.all:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith("#"), (tag, value)
            assert not name.startswith("on")
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/1999/xlink"}  # the name of a namespace: nobody fetches it
    assert "@import" not in text


def test_ids_are_unique_and_references_lead_to_them(full: Page) -> None:
    text = to_html(full)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    wanted = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    assert wanted
    assert set(wanted) <= set(ids)


def test_a_page_follows_light_dark_paper_and_narrow_windows(full: Page) -> None:
    text = to_html(full)
    for needed in ("prefers-color-scheme: dark", "@media print", "width=device-width", 'lang="en"'):
        assert needed in text
    boxes = [a for _, a in Tags(text).all if a.get("class") in ("scroll", "card")]
    assert [box["tabindex"] for box in boxes] == ["0"] * 3  # what scrolls can be reached with the keyboard
    assert all(box["aria-label"] for box in boxes)


def test_figures_are_the_same_bytes_without_date_or_path() -> None:
    first, second = (drawing("a", figure(), "").svg for _ in range(2))
    assert first == second
    assert first.startswith("<svg ")
    for never in ("dc:date", "<metadata", "<!--", "matplotlib v", "/home", "/tmp"):  # noqa: S108
        assert never not in first


def test_paths_have_hundredths_of_a_point_and_letters_keep_their_size() -> None:
    svg = drawing("a", figure(), "").svg
    assert re.search(r'd="M \d+\.\d\d? \d', svg)  # a line of the figure
    assert not re.search(r'\sd="[^"]*\.\d{3}', svg)
    assert "scale(0.015625)" in svg  # of a letter


def test_the_salt_does_not_outlive_the_drawing() -> None:
    from matplotlib import rcParams

    drawing("a", figure(), "")
    assert rcParams["svg.hashsalt"] is None


def test_one_part_needs_no_contents() -> None:
    assert "<nav" not in to_html(page(Heading("One", "one"), Words("x")))
    assert to_html(page(Heading("One", "one"), Heading("Two", "two"))).count("<li><a") == 2


def test_markdown_shows_texts_as_they_are(full: Page) -> None:
    text = to_markdown(full)
    assert "<script>" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert r"\[link\](x)" in text
    assert "![a title](figures/b.svg)" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1  # a bar in a cell is no border
    assert "| *part* |" in text
    assert "**1**" in text


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    assert "````toml\n```x```\n````" in to_markdown(page(Listing("t", "```x```\n", "toml")))


def test_a_table_of_the_terminal_keeps_its_best_and_its_sections() -> None:
    table = Table(title=Text("title"), caption="note")
    table.add_column("method")
    table.add_column("client\nsteps")
    table.add_row(Text("bytes", style="italic"), Text(""))
    table.add_row("hifl", Text("5 k", style="bold"))
    sheet = sheet_of(table)
    assert (sheet.title, sheet.heads, sheet.note) == ("title", ["method", "client steps"], "note")
    assert [row.heads for row in sheet.rows] == [True, False]
    assert list(sheet.rows[1].cells) == [Cell("hifl"), Cell("5 k", strong=True)]


def test_claims_have_verdicts_in_words_and_only_columns_with_content() -> None:
    claims = [
        Claim(claim="A < B", ours="1 and 2", holds=True, why="measured", item="Fig. 5"),
        Claim(claim="C < D", ours="4 and 3", holds=False, why="measured"),
        Claim(claim="E", ours="-", holds=None, why="no run"),
    ]
    _, told, sheet = claim_blocks(claims)
    assert isinstance(told, Words)
    assert isinstance(sheet, Sheet)
    assert told.text == "3 claims: our runs agree with 1 and do not agree with 1. They cannot tell for 1."
    assert sheet.heads == ["item", "claim", "ours", "verdict", "why"]  # no claim has a reading
    assert [row.cells[3].text for row in sheet.rows] == ["agrees", "does not agree", "cannot be told"]
    assert claim_blocks([]) == []


def test_a_reading_is_shown_and_does_not_count_as_a_claim() -> None:
    one = Claim(claim="A < B", ours="1 and 2", holds=False, why="measured")
    other = Claim(claim="A < B", ours="1 and 2", holds=True, why="", of="a", reading="five edges")
    _, told, sheet = claim_blocks([one, other, other])
    assert isinstance(told, Words)
    assert isinstance(sheet, Sheet)
    assert told.text == (
        "1 claim: our runs agree with 0 and do not agree with 1. 2 other readings stand beside it."
    )
    assert len(sheet.rows) == 3


def told_item(**more: Any) -> dict[str, Any]:
    claim: dict[str, Any] = {
        "name": "a", "says": "a is so", "holds": False, "paper": -10.0, "ours": -3.0, "unit": "percent",
        "found": "a 9, b 10", "why": "because", "of": "", "reading": "", "whose": "paper",
    }  # fmt: skip
    claims = [
        claim,
        {**claim, "name": "b", "says": "b is so", "holds": True, "paper": None, "ours": None},
        {**claim, "name": "a_five", "of": "a", "reading": "five edges", "holds": True, "ours": None},
    ]
    return {
        "item": "latency", "title": "A title", "source": "Fig. 1", "scale": "small", "changed": {},
        "command": "hiflash paper run latency --scale small", "differences": ["Another."], "claims": claims,
        "rows": [{"model": "lenet", "parameters": 21840, "share": 0.123456, "sizes": [1], "none": None}],
        "runs": [], "wall_s": None, "made_by": [], "digest": "0f", **more,
    }  # fmt: skip


def test_an_item_of_the_paper_says_what_was_run_and_what_was_changed() -> None:
    item = read_item(told_item(), "runs/latency", {})
    told = to_markdown(page(*items_words([item]), *item_blocks(item, 1)))
    assert (
        "2 claims as written, at small scale: our runs agree with 1 and do not agree with 1. "
        "1 other reading stands beside them." in told
    )
    assert "### latency (Fig. 1), small scale" in told
    assert "hiflash paper run latency --scale small" in told
    assert "A title. Made with versions that were not recorded. The digest of its numbers is 0f." in told
    assert "- Another." in told
    rows = [line for line in told.splitlines() if "is so" in line]
    assert rows == [  # a reading stands after its claim; no number is no dash
        "| a is so | -3.0 % (paper: -10.0 %): a 9, b 10 | **does not agree** |  | because |",
        "| a is so | a 9, b 10 (paper: -10.0 %) | **agrees** | five edges |  |",
        "| b is so | a 9, b 10 | **agrees** |  |  |",
    ]
    assert "| lenet | 21840 | 0.1235 | - |" in told
    assert "Changed" not in told
    other = read_item(told_item(changed={"data.name": "mnist5k", "seeds": 1}), "runs/latency", {})
    told = to_markdown(page(*items_words([item, other]), *item_blocks(other, 1)))
    assert "2 claims of items with changed settings: our runs agree with 1" in told
    assert "**Changed: this is not the item as it ships**\n\n- data.name = mnist5k\n- seeds = 1" in told


def test_numbers_in_lists_are_no_table() -> None:
    item = read_item(told_item(rows=[{"lambda": 0, "clusters": [[1, 2]]}]), "runs/latency", {})
    assert "Numbers of latency" not in to_markdown(page(*item_blocks(item, 1)))


def test_what_the_paper_does_not_claim_is_shown_in_words_and_not_counted() -> None:
    told = told_item()
    mine = {**told["claims"][0], "name": "c", "says": "hifl is above hierfavg-5", "whose": "ours"}
    item = read_item(told_item(claims=[*told["claims"], mine]), "runs/latency", {})
    text = to_markdown(page(*items_words([item]), *item_blocks(item, 1)))
    assert "2 claims as written, at small scale: our runs agree with 1 and do not agree with 1." in text
    assert "1 claim is not in the paper, and not counted." in text
    assert "| HiFL is above HierFAVG (5 edges) (not in the paper) |" in text


def test_a_figure_of_an_item_is_in_the_page_itself() -> None:
    png = drawn_png()
    item = read_item(told_item(), "runs/latency", {"agent/lambda": png, "latency": png})
    blocks = item_blocks(item, 2, ["latency"])  # that one is drawn elsewhere on the page
    html = to_html(page(*blocks))
    Tags(html)
    assert f'<img src="data:image/png;base64,{b64encode(png).decode()}" alt="latency: Total JS' in html
    assert 'width="384" height="192"' in html  # 4 by 2 inches
    assert html.count("<img") == 1
    assert "(figures/item-2-agent-lambda.png)" in to_markdown(page(*blocks))


@pytest.mark.parametrize("part", [0, 8, 20, 40, -1])
def test_what_is_no_whole_png_is_refused(part: int) -> None:
    png = drawn_png()
    assert checked_png(png) == png
    with pytest.raises(ValueError, match="no whole PNG"):
        checked_png(png[:part])


def test_a_picture_that_would_fill_a_page_is_refused() -> None:
    with pytest.raises(ValueError, match="4,000,000 are the most"):
        checked_png(drawn_png() + bytes(4_000_000))


def drawn_png() -> bytes:
    file = BytesIO()
    figure().savefig(file, format="png", dpi=150)
    return file.getvalue()
