"""The built site: whole, searchable without a server, and asking no other host for anything (`make docs` first)."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.browser.pages import CHROMIUM, chromium

import shufflesum as ss
from shufflesum.cli import COMMANDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
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


def test_every_page_of_the_folder_is_built(pages: dict[str, str]) -> None:
    sources = {
        str(path.relative_to(DOCS).with_suffix(".html")) for path in DOCS.rglob("*.md") if "_build" not in path.parts
    }
    assert sources <= pages.keys()


def dead_links(pages: dict[str, str]) -> list[str]:
    """Links from page to page that lead to no file, or to no place within it."""
    ids = {name: set(re.findall(r'\bid="([^"]+)"', page)) for name, page in pages.items()}
    dead = []
    for name, page in pages.items():
        for link in re.findall(r'<a [^>]*href="([^"]*)"', page):
            target = urlsplit(unescape(link))
            if target.scheme or target.netloc:
                continue
            reached = os.path.normpath(Path(name).parent / unquote(target.path)) if target.path else name
            if not (reached in pages or (SITE / reached).is_file()):
                dead.append(f"{name}: {link}")
            elif reached in pages and target.fragment and unquote(target.fragment) not in ids[reached]:
                dead.append(f"{name}: {link}: there is no such place")
    return dead


def test_every_link_between_pages_leads_to_its_place(pages: dict[str, str]) -> None:
    assert dead_links(pages) == []


@pytest.mark.parametrize("link", ["b.html", "a.html#nowhere", "#nowhere", "../a.html"])
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    page = f'<h1 id="here">A page</h1><a class="reference" href="#here">here</a><a href="{link}">there</a>'
    assert len(dead_links({"a.html": page})) == 1


def public_names(module: str) -> list[str]:
    """What a package lists, and of a module its functions and classes; also where a library it needs is missing."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    statements = ast.parse(Path(spec.origin).read_text()).body
    for statement in statements:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(statement.value)]
    defined = [node.name for node in statements if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    found = [name for name in defined if not name.startswith("_")]
    assert found, module
    return found


def test_every_public_name_has_its_place_in_the_reference(pages: dict[str, str]) -> None:
    names, modules = pages["reference/python.html"], pages["reference/modules.html"]
    missing = [name for name in ss.__all__ if f'id="shufflesum.{name}"' not in names and name != "privacy"]
    assert len(MODULES) >= 20
    for module in MODULES:
        assert f'id="module-{module}"' in modules
        for name in public_names(module):
            places = f'id="{module}.{name}"', f'id="module-{module}.{name}"'
            if name not in ss.__all__ and not any(place in modules for place in places):
                missing.append(f"{module}.{name}")
    assert missing == []
    assert {"shufflesum.privacy", "shufflesum.federated.flower"} <= set(MODULES)
    for name in ("domains.Domain", "moments.Squares"):  # their modules are for the rooms next door
        assert f'id="shufflesum.{name}"' in modules


def test_what_pages_and_examples_import_is_in_the_reference() -> None:
    sources = [ROOT / "README.md", *(ROOT / "examples").glob("*.py"), ROOT / "examples" / "README.md"]
    sources += [path for path in DOCS.rglob("*.md") if "_build" not in path.parts]
    imported = {
        (module, name.strip())
        for source in sources
        for module, imports in re.findall(r"from (shufflesum[\w.]*) import ([\w, ]+)", source.read_text())
        for name in imports.split(",")
    }
    assert len(imported) > 10
    for module, name in imported:
        assert f"{module}.{name}" in MODULES or (module in MODULES and name in public_names(module)), (module, name)


def test_every_command_has_its_place_in_the_reference(pages: dict[str, str]) -> None:
    shown = pages["reference/commands.html"]
    groups = {"budget": ("ask", "create", "show"), "serve": ("analyzer", "shuffler")}
    places = [*COMMANDS, *(f"{group}-{name}" for group, names in groups.items() for name in names)]
    assert [name for name in places if f'id="shufflesum-{name}"' not in shown] == []
    assert "--service" in shown.split('id="shufflesum-audit"')[1]


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make setup-chromium")
def test_in_a_browser_every_page_works_from_files_alone_and_asks_no_host(pages: dict[str, str]) -> None:
    """Looked at as they lie on a disk: whatever a page asks for, also by its scripts, is a file beside it."""
    with chromium() as browser:
        context = browser.new_context()
        asked_for: list[str] = []
        wrong: list[str] = []
        context.on("request", lambda request: asked_for.append(request.url))
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        page = context.new_page()
        for name in pages:
            page.goto((SITE / name).as_uri())
        assert len(asked_for) > 3 * len(pages)
        assert [url for url in asked_for if not url.startswith((SITE.as_uri(), "data:"))] == []
        assert wrong == []


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make setup-chromium")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("weekly budget", "tutorials/weekly.html"),
        ("suggest_bounds", "reference/python.html"),
        ("completion", "howto/completion.html"),
        ("collude", "limitations.html"),
    ],
)
def test_search_finds_pages_without_a_server(words: str, found: str) -> None:
    assert any(found in link for link in found_by(words))


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make setup-chromium")
@pytest.mark.parametrize("word", ["epsilon", "blank"])
def test_search_has_a_word_itself_before_options_and_properties_of_that_name(word: str) -> None:
    links = found_by(word)
    assert f"reference/glossary.html#term-{word}" in links[0], links[:3]


def found_by(words: str) -> list[str]:
    """Where the site's search leads, best first."""
    with chromium() as browser:
        page = browser.new_page()
        page.goto((SITE / "index.html").as_uri())
        page.get_by_role("textbox", name="Search").first.fill(words)
        page.keyboard.press("Enter")
        page.wait_for_selector("#search-results li a", timeout=60_000)
        page.wait_for_function("document.querySelector('#search-results p.search-summary').innerText.includes('found')")
        links: list[str] = page.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
        return links
