"""Finds a file in a Python package index, as pip is configured here. No code of a package is run.

`pip download` would run the `setup.py` of an old source archive to learn its dependencies. So pip is only
asked for its settings, and the page of links (PEP 503) is read here.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from .download import read_page

__all__ = ["find_file", "index_addresses"]

PUBLIC_INDEX = "https://pypi.org/simple"
_PAGE_LIMIT = 1 << 22
_PIP_S = 20.0
_ORDER = (":env:.", "download.", "install.", "global.")  # pip's own: the environment wins over its files


def index_addresses() -> list[str]:
    """Return the http(s) indexes that pip uses on this machine, the main one first."""
    settings = _pip_settings()
    main = [settings[f"{where}index-url"] for where in _ORDER if f"{where}index-url" in settings]
    more = [word for where in _ORDER for word in settings.get(f"{where}extra-index-url", "").split() if word]
    addresses = [*(main[:1] or [PUBLIC_INDEX]), *more]
    return list(dict.fromkeys(url for url in addresses if urlsplit(url).scheme in ("http", "https")))


def find_file(index: str, package: str, file: str) -> str:
    """Return the address of a package's file in an index, or raise an error of `download.FAILURES`."""
    page, address = read_page(f"{index.rstrip('/')}/{package}/", _PAGE_LIMIT)
    links = _Links()
    links.feed(page)
    for link in links.found:
        url = urljoin(address, link)
        if unquote(urlsplit(url).path.rpartition("/")[2]) == file:
            return _with_credentials_of(index, url)
    raise ValueError(f"the index has no file {file} of {package}")


class _Links(HTMLParser):
    """Collects the targets of all links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _with_credentials_of(index: str, url: str) -> str:
    """Return a link without its fragment; on the host of the index it gets the user name and password."""
    ours, parts = urlsplit(index), urlsplit(url)._replace(fragment="")
    if "@" in ours.netloc and (ours.scheme, ours.netloc.rpartition("@")[2]) == (parts.scheme, parts.netloc):
        parts = parts._replace(netloc=ours.netloc)
    return urlunsplit(parts)


def _pip_settings() -> dict[str, str]:
    """Return pip's settings from its files and the environment; without pip, the environment's only."""
    known = {
        f":env:.{name}": os.environ[variable]
        for name, variable in (("index-url", "PIP_INDEX_URL"), ("extra-index-url", "PIP_EXTRA_INDEX_URL"))
        if variable in os.environ
    }
    try:
        # -I: a file pip.py in the working folder is not run.
        listed = subprocess.run(
            [sys.executable, "-I", "-m", "pip", "config", "list"],
            capture_output=True,
            text=True,
            timeout=_PIP_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return known
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        try:
            known[name] = str(ast.literal_eval(value))  # pip prints the text as a Python literal
        except (ValueError, SyntaxError):
            continue
    return known
