"""The built site: whole, searchable without a server, and asking no other host for anything (`make docs` first)."""

from __future__ import annotations

import importlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import shufflesum as ss
from shufflesum.cli import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
SITE = DOCS / "_build" / "html"
MODULES = re.findall(r"^\.\. automodule:: (\S+)$", (DOCS / "reference" / "modules.md").read_text(), flags=re.MULTILINE)

pytestmark = pytest.mark.slow

LOADING = {"action", "background", "data", "formaction", "href", "ping", "poster", "src", "srcset", "xlink:href"}
ELSEWHERE = re.compile(r"^\s*(?:https?:|wss?:|//)", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])\s*(?:https?:)?//", re.IGNORECASE)


class Asked(HTMLParser):
    """What a page loads from other hosts; plain links, which a person must follow, are not among it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in LOADING and (tag, name) != ("a", "href") and ELSEWHERE.match(value or ""):
                self.found.append(f"<{tag} {name}={value}>")
            if name == "style" and IN_STYLES.search(value or ""):
                self.found.append(f"<{tag} style={value}>")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "style" and IN_STYLES.search(data):
            self.found.append(data)
        if self.cdata_elem == "script" and re.search(r"(?:import|fetch|src\s*=|load)\W[^;]{0,40}https?://", data):
            self.found.append(data[:200])


def asked(page: str) -> list[str]:
    parser = Asked()
    parser.feed(page)
    return parser.found


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    if not SITE.is_dir():
        pytest.fail("the site is not built; run: make docs")
    return {str(path.relative_to(SITE)): path.read_text() for path in SITE.rglob("*.html")}


def test_no_page_and_no_style_asks_another_host_for_anything(pages: dict[str, str]) -> None:
    assert len(pages) > 25
    assert {name: found for name, page in pages.items() if (found := asked(page))} == {}
    assert [path.name for path in SITE.rglob("*.css") if IN_STYLES.search(path.read_text())] == []


@pytest.mark.parametrize(
    "planted",
    [
        '<script src="https://cdn.example.org/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/a.css">',
        '<p style="background: url(http://example.org/a.png)">',
        "<style>@import 'https://example.org/a.css';</style>",
        '<script type="module">import a from "https://example.org/a.js"</script>',
        '<img src="http://example.org/pixel.gif">',
    ],
)
def test_the_look_at_pages_would_find_it(planted: str) -> None:
    assert asked(f"<html><body>{planted}</body></html>")
    assert not asked('<a href="https://example.org">a link</a><img src="_images/a.png">')


def test_every_page_of_the_folder_is_built_and_every_link_between_pages_leads_somewhere(pages: dict[str, str]) -> None:
    sources = {
        str(path.relative_to(DOCS).with_suffix(".html")) for path in DOCS.rglob("*.md") if "_build" not in path.parts
    }
    assert sources <= pages.keys()
    for name, page in pages.items():
        for target in re.findall(r'<a [^>]*href="([^"#:]+)(?:#[^"]*)?"', page):
            assert (SITE / name).parent.joinpath(target).exists(), f"{name}: {target}"


def test_every_public_name_has_its_place_in_the_reference(pages: dict[str, str]) -> None:
    names, modules = pages["reference/python.html"], pages["reference/modules.html"]
    missing = [name for name in ss.__all__ if f'id="shufflesum.{name}"' not in names and name != "privacy"]
    for module in MODULES:
        assert f'id="module-{module}"' in modules
        for name in importlib.import_module(module).__all__:
            if f'id="{module}.{name}"' not in modules and name not in ss.__all__:
                missing.append(f"{module}.{name}")
    assert missing == []
    assert "shufflesum.privacy" in MODULES


def test_every_command_has_its_place_in_the_reference(pages: dict[str, str]) -> None:
    assert [name for name in COMMANDS if f'id="shufflesum-{name}"' not in pages["reference/commands.html"]] == []


def test_search_needs_no_server() -> None:
    index = (SITE / "searchindex.js").read_text()
    assert index.startswith("Search.setIndex(")  # loaded as a script, so that it works from files
    assert "tutorials/weekly" in index
