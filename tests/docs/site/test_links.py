"""Every link of the built pages leads somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

BASE = "http://site/"
# What a browser fetches by itself when it shows a page.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "embed": "src"}
STYLES = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class Page:
    """A page: its anchors, where it leads, and what it loads."""

    url: str
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


class Reader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.page = Page(url)
        self.in_config = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.page.anchors |= {found[key] for key in ("id", "name") if key in found}
        self.in_config = tag == "script" and found.get("id") == "__config"
        if tag == "a" and "href" in found:
            self.page.links.append(found["href"])
        if tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.page.loaded.append(found["href"])
        if tag in LOADED and LOADED[tag] in found:
            self.page.loaded.append(found[LOADED[tag]])

    def handle_data(self, data: str) -> None:
        if self.in_config:  # the script that searches is named there
            self.page.loaded.append(json.loads(data)["search"])
            self.in_config = False


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = {}
    for file in sorted(site.rglob("*.html")):
        where = file.relative_to(site).as_posix()
        url = BASE + re.sub(r"index\.html$", "", where)
        reader = Reader(url)
        reader.feed(file.read_text(encoding="utf-8"))
        found[url] = reader.page
    return found


def target(page: Page, link: str) -> tuple[str, str]:
    """The address that a link means on a page, and its anchor."""
    # 404.html may be shown at any address: its links begin at the root.
    whole = urlsplit(urljoin(page.url, link))
    return whole._replace(fragment="", query="").geturl(), unquote(whole.fragment)


def file_of(site: Path, address: str) -> Path:
    path = site / unquote(address.removeprefix(BASE))
    return path / "index.html" if address.endswith("/") else path


def problems(site: Path, pages: dict[str, Page]) -> list[str]:
    """Links within the site that lead to no file, or to no anchor of it."""
    found = []
    for page in pages.values():
        for link in page.links:
            address, anchor = target(page, link)
            if not address.startswith(BASE):
                continue
            if not file_of(site, address).is_file():
                found.append(f"{page.url} -> {link}: no such file")
            elif anchor and anchor not in pages[address].anchors:
                found.append(f"{page.url} -> {link}: no such anchor")
    return found


def test_there_are_pages(pages: dict[str, Page]) -> None:
    assert len(pages) > 90
    assert sum(len(page.links) for page in pages.values()) > 5000


def test_internal_links(site: Path, pages: dict[str, Page]) -> None:
    assert problems(site, pages) == []


def test_a_broken_link_is_found(site: Path, pages: dict[str, Page]) -> None:
    page = Page(BASE, links=["no-such-page/", "backends/#no-such-anchor", "backends/#scopes"])
    assert [text.rpartition(": ")[2] for text in problems(site, pages | {BASE: page})][:2] == [
        "no such file",
        "no such anchor",
    ]


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    for page in pages.values():
        # The page of benchmarks stands by itself: all that it shows is in it.
        assert page.loaded or page.url.endswith("/assets/bench.html"), page.url
        for link in page.loaded:
            if not link.startswith("data:"):
                address, _ = target(page, link)
                assert address.startswith(BASE), f"{page.url} loads {link}"
                assert file_of(site, address).is_file(), f"{page.url} loads {link}"


def test_styles_load_nothing_from_elsewhere(site: Path) -> None:
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        for match in STYLES.finditer(style.read_text(encoding="utf-8")):
            link = match[1] or match[2]
            assert link.startswith(("data:", "#", ".")) or "/" not in link, f"{style.name}: {link}"


def test_form_of_external_links(pages: dict[str, Page]) -> None:
    """They are not followed, since tests need no network; a failure lists all of them."""
    external = set()
    for page in pages.values():
        for link in page.links:
            if not target(page, link)[0].startswith(BASE):
                external.add(link)
    form = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[^\s<>\"]*)?")
    wrong = [link for link in sorted(external) if not form.fullmatch(link)]
    assert wrong == [], sorted(external)
    assert external
