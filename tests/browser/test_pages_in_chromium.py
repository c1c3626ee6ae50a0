"""The three pages in a real browser: the survey, the analyst's page and the explorer."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from tests.browser.node import needs_node
from tests.browser.pages import CHROMIUM
from tests.browser.visitor import AXE, Visitor, visiting
from tests.pages.elements import HOSTILE
from tests.service.analyzer.analyzer_in_thread import running
from tests.service.analyzer.stores_with_rounds import collected

import shufflesum as ss
from shufflesum.plans import Plan
from shufflesum.testing import unprotected_plan

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make setup-browser")
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make setup-browser")
SURVEY = Path(__file__).parents[2] / "examples" / "survey" / "run.py"
USERS = 30
SCHEMES = ["light", pytest.param("dark", marks=pytest.mark.slow)]
WIDTH = "image => image.decode().then(() => image.naturalWidth)"


@contextmanager
def program(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A program under way, and what it says."""
    out = folder / "out"
    (folder / "left").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "left")}
    with out.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-u", *arguments], stdout=file, stderr=file, env=environment)
    try:
        yield process, out
    finally:
        process.kill()
        process.wait()


def said(process: subprocess.Popen[bytes], out: Path, pattern: str, times: int = 1) -> list[Any]:
    """What it has said that looks like this, once it has, so many times."""
    end = time.monotonic() + 120
    while len(found := re.findall(pattern, out.read_text())) < times:
        assert process.poll() is None, out.read_text()
        assert time.monotonic() < end, out.read_text()
        time.sleep(0.1)
    return found


@contextmanager
def analyst(folder: Path, plan: Plan, rows: Any, **context: Any) -> Iterator[tuple[Visitor, str]]:
    task, address = collected(folder, plan, rows)
    with running(task, address) as remote, visiting(**context) as visitor:
        url = str(remote.http.base_url)
        visitor.page.goto(url)
        yield visitor, url


@needs_node
def test_a_visitor_contributes_and_the_analysts_page_shows_the_estimate(tmp_path: Path) -> None:
    """Across origins: the survey's page is on another port than the shufflers, who allow its origin."""
    arguments = (str(SURVEY), "--users", str(USERS), "--port", "0", "--seconds", "0")
    with program(tmp_path, *arguments) as (process, out), visiting() as visitor:
        (survey,) = said(process, out, r"survey: (\S+)")
        analysts = dict(said(process, out, r"analyst's page, (.+): (\S+)", 3))
        page = visitor.page
        page.goto(survey)
        page.get_by_label("bicycle").check()
        page.get_by_label("hours of sleep").fill("8")
        page.get_by_label("Energy").press("ArrowUp")
        watching = page.context.new_page()
        reading = Visitor(watching)
        watching.goto(analysts["How people travelled today"])
        assert watching.get_by_text("No round has been released yet").is_visible()
        page.get_by_role("button", name="Contribute privately").click()
        page.get_by_text("Thank you: your part is in").wait_for(timeout=60_000)
        said(process, out, "simulated visitors took part")
        # it comes by itself, without a reload
        watching.get_by_role("heading", name=f"Round 1: {USERS} users").wait_for(timeout=60_000)
        assert watching.get_by_role("cell", name="bicycle").is_visible()
        assert watching.get_by_text("The guarantee holds").is_visible()
        watching.goto(analysts["People's energy over the day"])
        watching.get_by_role("heading", name=f"Round 1: {USERS} users").wait_for(timeout=60_000)
        picture = watching.locator("figure img")
        picture.scroll_into_view_if_needed()
        assert picture.evaluate(WIDTH) > 300
        # a visitor who comes back is known, and counts once
        page.reload()
        page.get_by_text("You have taken part already").wait_for()
        assert visitor.complaints == reading.complaints == []
        assert reading.hosts <= {urlsplit(address).netloc for address in analysts.values()}
        ours = {netloc for netloc in visitor.hosts if urlsplit(f"//{netloc}").hostname == "127.0.0.1"}
        assert visitor.hosts == ours
        assert len(visitor.hosts) == 4  # the survey and three shufflers, and nobody else
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert "their files are gone" in out.read_text()
        assert list((tmp_path / "left").glob("shufflesum*")) == []


@pytest.mark.slow
@needs_node
def test_the_crowd_alone_fills_every_batch_and_the_survey_ends(tmp_path: Path) -> None:
    with program(tmp_path, str(SURVEY), "--users", str(USERS), "--port", "0", "--seconds", "0", "--once") as (
        process,
        out,
    ):
        assert process.wait(120) == 0, out.read_text()
    assert len(re.findall(rf": {USERS} users: ", out.read_text())) == 3
    assert list((tmp_path / "left").glob("shufflesum*")) == []


@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_is_barred_from_the_analysts_page(tmp_path: Path, scheme: str) -> None:
    plan = ss.plan(users=300, domain=ss.Categories(HOSTILE), epsilon=1.0, delta=1e-6)
    narrow = {"width": 390, "height": 800}
    with analyst(tmp_path, plan, HOSTILE * 50, color_scheme=scheme, viewport=narrow) as (visitor, url):
        visitor.page.get_by_text("The whole statement").click()
        visitor.page.wait_for_load_state("networkidle")
        assert visitor.serious() == []
        reached, controls = visitor.reached_by_keyboard()
        assert reached == controls >= 8
        # the page does not scroll sideways, and names are text: nothing ran, nothing was asked for elsewhere
        assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert visitor.page.get_by_text("<script>alert(1)</script>").first.is_visible()
        assert visitor.complaints == []
        assert visitor.hosts == {urlsplit(url).netloc}


@pytest.mark.slow
@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_is_barred_from_the_explorer(tmp_path: Path, scheme: str) -> None:
    command = "from shufflesum.cli import main; main()"
    with program(tmp_path, "-c", command, "explore", "--no-browser") as (process, out):
        (address,) = said(process, out, r"http://127\.0\.0\.1:\d+/\S+/")
        with visiting(color_scheme=scheme, viewport={"width": 390, "height": 800}) as visitor:
            page = visitor.page
            page.goto(address)
            assert page.get_by_label("Upper bound of column 2").input_value() == "24"
            assert page.get_by_text("in the mean of hours").first.is_visible()  # an answer, before any question
            page.get_by_label("one label").check()
            assert not page.get_by_label("Upper bound of column 2").is_visible()  # only what belongs to the choice
            page.get_by_label("How many users").fill("20000")
            page.get_by_role("button", name="Plan it").press("Enter")
            page.get_by_role("link", name="Save plan.json").wait_for(timeout=120_000)
            with page.expect_download() as saving:
                page.get_by_role("link", name="Save plan.json").click()
            assert Plan.load(saving.value.path()).users == 20_000
            picture = page.get_by_role("img", name="against epsilon")
            page.wait_for_function("image => image.naturalWidth > 100", arg=picture.element_handle(), timeout=120_000)
            page.get_by_text("The whole statement").click()
            assert visitor.serious() == []
            reached, controls = visitor.reached_by_keyboard()
            assert reached == controls >= 14
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert visitor.complaints == []
            assert visitor.hosts == {urlsplit(address).netloc}


@pytest.mark.slow
@needs_axe
@needs_node
@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_is_barred_from_the_survey(tmp_path: Path, scheme: str) -> None:
    arguments = (str(SURVEY), "--users", str(USERS), "--port", "0", "--seconds", "600")
    with program(tmp_path, *arguments) as (process, out), visiting(color_scheme=scheme) as visitor:
        (survey,) = said(process, out, r"survey: (\S+)")
        visitor.page.goto(survey)
        visitor.page.get_by_label("bicycle").wait_for()
        assert visitor.serious() == []
        reached, controls = visitor.reached_by_keyboard()
        assert reached == controls >= 10
        curve = visitor.page.get_by_label("Energy")
        curve.press("ArrowRight")
        curve.press("ArrowUp")
        assert curve.get_attribute("aria-valuenow") == "55"
        assert visitor.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("entries", [1, 784, 100_000])
def test_the_analysts_page_holds_however_many_coordinates_there_are(tmp_path: Path, entries: int) -> None:
    plan = unprotected_plan(users=20, shape=entries, coordinates=min(entries, 100), levels=1)
    with analyst(tmp_path, plan, np.full((20, entries), 0.5)) as (visitor, _):
        picture = visitor.page.locator("figure img")
        picture.scroll_into_view_if_needed()
        picture.evaluate("image => image.decode()")
        elements = visitor.page.evaluate("document.querySelectorAll('*').length")
        assert elements < 2_000
        # a browser that is not frozen paints again at once
        frame = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        visitor.page.set_default_timeout(5_000)
        visitor.page.evaluate(frame)
        assert visitor.complaints == []


@pytest.mark.slow
def test_the_page_can_be_read_without_scripts_and_saved(tmp_path: Path) -> None:
    plan = ss.plan(users=300, domain=ss.Categories(["yes", "no"]), epsilon=1.0, delta=1e-6)
    with analyst(tmp_path, plan, ["yes", "no"] * 150, java_script_enabled=False) as (visitor, _):
        page = visitor.page
        assert page.get_by_role("heading", name="Round 1: 300 users").is_visible()
        assert page.get_by_role("cell", name="yes").is_visible()
        # on paper, where nothing can be clicked, the statement is unfolded
        assert not page.get_by_role("heading", name="Who sees what").is_visible()
        page.emulate_media(media="print")
        assert page.get_by_role("heading", name="Who sees what").is_visible()
        page.emulate_media(media="screen")
        with page.expect_download() as saving:
            page.get_by_role("link", name="as one file").click()
        saved = tmp_path / "saved.html"
        saving.value.save_as(saved)
    with visiting() as visitor:
        visitor.page.goto(saved.as_uri())
        visitor.page.get_by_role("heading", name="Round 1: 300 users").wait_for()
        assert visitor.page.locator("figure img").evaluate(WIDTH) > 300
        assert visitor.hosts == {""}  # files and data, no host
        assert visitor.complaints == []


@pytest.mark.slow
@needs_axe
def test_a_page_that_bars_people_or_asks_others_would_be_noticed() -> None:
    with visiting() as visitor:
        visitor.page.set_content(
            """<main><h1>bad</h1><p style="color: #ccc; background: #fff">pale</p><input><div onclick="x()">press</div>
            <img src="http://127.0.0.1:9/elsewhere.png"><a href="#" tabindex="-1">unreachable</a>
            <script>alert(1)</script></main>"""
        )
        found = " ".join(visitor.serious())
        assert all(kind in found for kind in ("color-contrast", "label", "image-alt"))
        reached, controls = visitor.reached_by_keyboard()
        assert reached < controls
        assert "127.0.0.1:9" in visitor.hosts
        assert any("dialog" in complaint for complaint in visitor.complaints)


@pytest.mark.parametrize("kind", ["means", "counts"])
def test_a_notebook_shows_estimates_and_pictures_with_the_network_off(kind: str) -> None:
    """What a notebook keeps in its output, formatted by IPython, in a browser that reaches nobody."""
    interactive = pytest.importorskip("IPython.core.interactiveshell", reason="there is no IPython")
    labels = ["x", "</script><script>alert(1)</script>", "y"]
    held: dict[str, Any] = {
        "means": {"values": np.full((2_000, 3), 0.5), "columns": ["a", "b", "c"]},
        "counts": {"values": ["x", "y"] * 1_000, "domain": ss.Categories(labels)},
    }
    chosen = held[kind]
    estimate = ss.aggregate(chosen.pop("values"), epsilon=1.0, delta=1e-6, **chosen)
    formatter = interactive.InteractiveShell().display_formatter
    table, _ = formatter.format(estimate)
    drawn, sizes = formatter.format(estimate.plot())
    assert set(drawn) == {"text/plain", "image/png"}  # nothing that would fetch a script
    png = drawn["image/png"]
    data = png if isinstance(png, str) else base64.b64encode(png).decode()
    width = sizes["image/png"]["width"]
    image = f'<img alt="chart" width="{width}" src="data:image/png;base64,{data}">'
    with visiting(offline=True) as visitor:
        visitor.page.set_content(f"<!doctype html><title>n</title>{table['text/html']}{image}")
        box = visitor.page.get_by_alt_text("chart")
        assert box.evaluate("image => image.complete && image.naturalWidth") == 2 * width
        assert visitor.page.locator("table").inner_text().count("±") == 3
        assert (visitor.complaints, visitor.hosts - {""}) == ([], set())
