"""A page of blocks as HTML and as Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from hiflash.report.canvas import new_figure
from hiflash.report.page.blocks import Cell, Heading, Items, Listing, Page, Row, Sheet, Words, sheet_of
from hiflash.report.page.claims import Claim, claim_blocks
from hiflash.report.page.html import to_html
from hiflash.report.page.markdown import to_markdown
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
        if tag != "meta":
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
