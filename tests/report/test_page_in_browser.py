"""The page in a real browser: no serious accessibility finding, no network, no overflow.

Needs node, Chromium, and a folder where `npm install axe-core puppeteer-core` was run: its path is in
HIFLASH_AXE. CONTRIBUTING.md has the commands.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hiflash
from tiny import TINY, make_tiny_model

pytestmark = pytest.mark.slow

CHECK = Path(__file__).with_name("check_page.cjs")
BAD = {"serious", "critical"}
BROKEN = """<!DOCTYPE html><html><head><title>x</title></head><body style="margin:0">
<div style="width:900px;color:#ddd;background:#fff">pale</div><img src="http://127.0.0.1:9/x.png"></body></html>"""


def opened(page: Path) -> list[dict[str, Any]]:
    """Return what a browser finds in a page, in light, in dark and at phone width."""
    node, home = shutil.which("node"), os.environ.get("HIFLASH_AXE", "")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if node is None or chromium is None:
        pytest.skip("node or Chromium is not installed")
    modules = Path(home) / "node_modules"
    if not home or not all((modules / name).is_dir() for name in ("axe-core", "puppeteer-core")):
        pytest.skip("HIFLASH_AXE names no folder where `npm install axe-core puppeteer-core` was run")
    done = subprocess.run(
        [node, str(CHECK), chromium, str(page)],
        env={**os.environ, "NODE_PATH": str(modules)}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    views: list[dict[str, Any]] = json.loads(done.stdout)["views"]
    return views


def test_the_page_is_accessible_needs_no_network_and_fits(tmp_path: Path, tiny_data: hiflash.Dataset) -> None:
    settings: Any = {**TINY, "stop.communications": 20, "data": tiny_data, "model": make_tiny_model}
    hiflash.compare(methods=["fedavg", "hifl"], seeds=2, directory=tmp_path / "runs/both", **settings)
    hiflash.sweep(grid={"cloud.alpha": [0.5, 0.7]}, directory=tmp_path / "runs/alphas", **settings)
    hiflash.run(method="hifl", directory=tmp_path / "runs/one", **settings)
    (tmp_path / "runs/open").mkdir()
    (tmp_path / "runs/open/config.toml").touch()  # a warning on the page
    claim = hiflash.Claim(claim="A < B", ours="1 and 2", holds=True, why="measured", item="Fig. 5")
    report = hiflash.make_report(tmp_path / "runs", out=tmp_path / "report", claims=[claim])
    papers = set()
    for view in opened(report.files[0]):
        assert [each for each in view["findings"] if each["impact"] in BAD] == [], view["name"]
        assert view["rules_passed"] > 20
        assert view["requests"] == []
        assert view["errors"] == []
        assert view["page_width"] <= view["width"], view["name"]
        assert view["figures"] == len(report.page.drawings)
        papers.add((view["scheme"], view["paper"]))
    assert len(papers) == 2  # a light paper and a dark one, at any width


def test_the_check_sees_a_bad_page(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(BROKEN)
    views = opened(tmp_path / "bad.html")
    for view in views:
        found = {each["id"] for each in view["findings"] if each["impact"] in BAD}
        assert {"html-has-lang", "image-alt", "color-contrast"} <= found
        assert view["requests"] == ["http://127.0.0.1:9/x.png"]
    assert [view["page_width"] > view["width"] for view in views] == [False, False, True, True]
