"""A real Chromium takes part through a page of another origin, with real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser.claims import claimed
from tests.browser.node import CLIENT
from tests.browser.pages import CHROMIUM, chromium, host
from tests.forked_processes import wait_until
from tests.service.processes import ServerProcess
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment, StandInAnalyzer

import shufflesum as ss
from shufflesum.domains.counts import CountEstimate
from shufflesum.service.client import estimates_in, fetch_estimate
from shufflesum.service.shuffler.tokens import write_tokens
from shufflesum.testing import unprotected_plan

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make setup-browser")

USERS = 40
LABELS = ["red", "green", "<b>blue</b>"]

SURVEY = """<!doctype html>
<meta charset="utf-8">
<title>Survey</title>
<form>
  <select name="colour" aria-label="colour"></select>
  <button>Send</button>
  <output></output>
</form>
<script type="module" src="survey.js"></script>
"""

SCRIPT = """
import { Task, inMemory } from "./MODULE";
const form = document.querySelector("form");
const say = (text) => (form.querySelector("output").textContent = text);
try {
  const task = await Task.load("TASK");
  for (const label of task.plan.domain.labels) form.colour.add(new Option(label));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      say((await task.contribute(form.colour.value)).contribution);
    } catch (error) {
      say(error.problem ?? String(error));
    }
  });
  globalThis.task = task;
  globalThis.crowd = async (size) => {
    const others = await Task.load("TASK", { contributions: inMemory() });
    for (let i = 0; i < size; i++) await others.contribute(others.plan.domain.labels[i % 2], { user: `visitor ${i}` });
  };
  say((await task.resume())?.contribution ?? (await task.state()));
} catch (error) {
  say(error.problem ?? String(error));
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


class Visit:
    """A page, what it asked for and what it complained of."""

    def __init__(self, page: Any, origin: str) -> None:
        self.page, self.origin = page, origin
        self.asked: set[str] = set()
        self.files: set[str] = set()
        self.complaints: list[str] = []
        page.on("request", lambda request: self._asks(request.url))
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _asks(self, url: str) -> None:
        self.asked.add("/".join(url.split("/")[:3]))
        if url.startswith(f"{self.origin}/"):
            self.files.add(url.removeprefix(f"{self.origin}/"))

    def open(self) -> Visit:
        self.page.goto(f"{self.origin}/survey.html")
        return self

    def says(self, text: str) -> None:
        self.page.wait_for_function("t => document.querySelector('output').textContent === t", arg=text, timeout=20_000)

    def answer(self, label: str) -> None:
        self.page.select_option("select", label)
        self.page.click("button")


class Survey:
    """Servers and hosts of one survey."""

    def __init__(self, deployment: Deployment, shuffler: ServerProcess, allowed: str, refused: str) -> None:
        self.deployment, self.shuffler = deployment, shuffler
        self.allowed, self.refused = allowed, refused

    @property
    def uploads(self) -> float:
        return self.shuffler.metric("shufflesum_uploads_total")


def pages(deployment: Deployment, module: str = "shufflesum.min.js") -> dict[str, str]:
    address = f"{deployment.shuffler_url}/tasks/{deployment.task.id}"
    return {"survey_html": SURVEY, "survey_js": SCRIPT.replace("TASK", address).replace("MODULE", module)}


@pytest.fixture
def tokens() -> list[str]:
    """Options of the shuffler; a test may ask for tokens."""
    return []


@pytest.fixture
def survey(tmp_path: Path, tokens: list[str]) -> Iterator[Survey]:
    """A shuffler whose analyzer is a stand-in, so that nothing is released."""
    plan = claimed(unprotected_plan(users=1000, shape=4, coordinates=4, levels=3))
    plan = ss.Plan(ss.Categories(LABELS), ss.NoisySlots(2, 0.5), plan.guarantee)
    with LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front, StandInAnalyzer() as analyzer:
        deployment = Deployment(tmp_path, plan, shuffler_url=front.url)
        files = pages(deployment)
        with host(front.url, **files) as allowed, host(front.url, **files) as refused:
            options = ["--allow-origin", allowed, *tokens]
            with deployment.shuffler(analyzer.url, *options) as shuffler:
                yield Survey(deployment, shuffler, allowed, refused)


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[[str], Visit]]:
    """Opens pages in one browser profile, which is forgotten afterwards."""
    context = browser.new_context()
    yield lambda origin: Visit(context.new_page(), origin)
    context.close()


@pytest.mark.parametrize("module", ["shufflesum.min.js", pytest.param("shufflesum.js", marks=pytest.mark.slow)])
def test_visitors_take_part_and_the_estimate_is_released(
    module: str, tmp_path: Path, visit: Callable[[str], Visit]
) -> None:
    plan = ss.plan(users=USERS, domain=ss.Categories(LABELS), epsilon=3.0, delta=1e-2)
    with LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front:
        deployment = Deployment(tmp_path, plan, shuffler_url=front.url)
        with (
            host(front.url, **pages(deployment, module)) as origin,
            deployment.analyzer("--processes", "1") as analyzer,
            deployment.shuffler(analyzer.url, "--allow-origin", origin) as shuffler,
        ):
            visitor = visit(origin).open()
            visitor.says("none")
            visitor.page.evaluate(f"crowd({USERS - 1})")
            assert shuffler.metric("shufflesum_uploads_total") == USERS - 1
            visitor.answer("<b>blue</b>")
            visitor.says("accepted")
            visitor.answer("red")
            visitor.says("duplicate-contribution")
            wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1)
            (estimate,) = estimates_in(deployment.task, fetch_estimate(deployment.task, analyzer.url)).values()
            assert visitor.asked == {origin, front.url}
    assert isinstance(estimate, CountEstimate)
    assert estimate.users == USERS
    assert estimate.guarantee_holds
    assert estimate.rejected == 0
    low, high = estimate.count_interval(1 - 1e-7, simultaneous=True)
    assert np.all((low <= [20, 19, 1]) & (high >= [20, 19, 1]))
    assert visitor.complaints == []


def test_a_page_of_another_origin_stays_refused(survey: Survey, visit: Callable[[str], Visit]) -> None:
    visitor = visit(survey.refused)
    visitor.page.goto(f"{survey.refused}/survey.html")
    upload = f"{survey.deployment.shuffler_url}/tasks/{survey.deployment.task.id}/uploads"
    sent = """async ([url, mode, type, size]) => {
        const body = new Blob([new Uint8Array(size)], { type });
        try { return (await fetch(url, { method: "POST", body, mode })).type; } catch (error) { return error.name; }
    }"""
    size = survey.deployment.task.upload_bytes
    assert visitor.page.evaluate(sent, [upload, "cors", "application/octet-stream", size]) == "TypeError"
    # browsers send this unasked, and only the server can refuse it
    assert visitor.page.evaluate(sent, [upload, "no-cors", "text/plain", size]) == "opaque"
    assert survey.shuffler.metric("shufflesum_refused_total") >= 2
    assert survey.uploads == 0
    told = visitor.page.evaluate(
        """async (url) => {
            const { Task } = await import("./shufflesum.min.js");
            return Task.load(url, { timeout: 1 }).catch((error) => error.problem);
        }""",
        upload.removesuffix("/uploads"),
    )
    assert told == "unreachable"
    assert any("CORS" in complaint for complaint in visitor.complaints)


@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "lost"])
def test_a_reload_in_the_middle_of_an_upload_counts_once(
    arrived: bool, survey: Survey, visit: Callable[[str], Visit]
) -> None:
    visitor = visit(survey.allowed)
    bodies: list[bytes] = []

    def hold(route: Any) -> None:
        """The first upload arrives, or not, and its answer never does."""
        if route.request.method != "POST":
            route.continue_()
            return
        bodies.append(route.request.post_data_buffer)
        if len(bodies) > 1:
            route.continue_()
        elif arrived:
            route.fetch()

    visitor.page.route("**/uploads", hold)
    visitor.open().says("none")
    visitor.answer("red")
    wait_until(lambda: visitor.page.wait_for_timeout(20) or len(bodies) == 1)
    wait_until(lambda: survey.uploads == int(arrived))
    visitor.page.reload()
    visitor.says("repeated" if arrived else "accepted")
    assert survey.uploads == 1
    assert len(bodies) == 2
    assert len(set(bodies)) == 1
    assert len(bodies[0]) == survey.deployment.task.upload_bytes
    visitor.page.reload()
    visitor.says("duplicate-contribution")
    assert len(bodies) == 2


def test_two_windows_count_once(survey: Survey, visit: Callable[[str], Visit]) -> None:
    windows = [visit(survey.allowed).open() for _ in range(2)]
    for window in windows:
        window.says("none")
    for window in windows:
        window.page.evaluate(
            "() => { task.contribute('red').catch(e => e).then(a => globalThis.told = a.contribution ?? a.problem); }"
        )
    told = [window.page.wait_for_function("() => globalThis.told").json_value() for window in windows]
    assert survey.uploads == 1
    assert "accepted" in told
    assert set(told) <= {"accepted", "repeated", "duplicate-contribution"}


def test_what_is_kept_goes_when_it_is_acknowledged(survey: Survey, visit: Callable[[str], Visit]) -> None:
    visitor = visit(survey.allowed).open()
    visitor.says("none")
    visitor.answer("green")
    visitor.says("accepted")
    kept = visitor.page.evaluate(
        """() => new Promise((resolve) => {
            indexedDB.open("shufflesum").onsuccess = ({ target: { result } }) => {
                const asked = result.transaction("contributions").objectStore("contributions").getAll();
                asked.onsuccess = () => resolve(asked.result.map(({ upload }) => upload));
            };
        })"""
    )
    assert kept == [None]
    assert visitor.page.evaluate("() => [localStorage.length, document.cookie]") == [0, ""]


def test_the_page_of_the_documentation_works(visit: Callable[[str], Visit], tmp_path: Path) -> None:
    """As it is printed in docs/browser.md, but for the address of the task."""
    text = (CLIENT.parents[1] / "docs" / "browser.md").read_text()
    page, script = (text.split(f"```{kind}\n")[1].split("```")[0] for kind in ("html", "js"))
    deployment = Deployment(tmp_path, claimed(unprotected_plan(users=1000, shape=1, coordinates=1, levels=24)))
    with StandInAnalyzer() as analyzer, LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front:
        deployment.shuffler_url = front.url
        address = f"{front.url}/tasks/{deployment.task.id}"
        script = script.replace("https://shuffler.example.org/tasks/0123...cdef", address)
        assert address in script
        with (
            host(front.url, survey_html=page, survey_js=script) as origin,
            deployment.shuffler(analyzer.url, "--allow-origin", origin) as shuffler,
        ):
            visitor = visit(origin).open()
            visitor.page.wait_for_load_state("networkidle")
            visitor.page.fill("input", "7")
            for said in ("Sent. Thank you.", "You have taken part already."):
                visitor.page.click("button")
                visitor.says(said)
            assert shuffler.metric("shufflesum_uploads_total") == 1
    assert visitor.complaints == []
    assert visitor.files - {"favicon.ico"} == {"survey.html", "survey.js", "shufflesum.min.js"}  # one file of ours


class TestTokens:
    """A shuffler that takes uploads only with a token, asked by a page of another origin."""

    @pytest.fixture
    def tokens(self, tmp_path: Path) -> list[str]:
        write_tokens(1, tmp_path / "tokens", tmp_path / "digests")
        return ["--tokens", str(tmp_path / "digests")]

    def test_a_page_sends_a_token_and_reads_why_it_was_refused(
        self, survey: Survey, visit: Callable[[str], Visit], tmp_path: Path
    ) -> None:
        visitor = visit(survey.allowed).open()
        visitor.says("none")
        visitor.answer("green")
        visitor.says("token-missing")
        sent = "token => task.contribute('green', { token }).catch((e) => e).then((a) => a.problem ?? a.contribution)"
        assert visitor.page.evaluate(sent, "00" * 16) == "token-unknown"
        assert visitor.page.evaluate(sent, (tmp_path / "tokens").read_text().strip()) == "accepted"
        assert survey.uploads == 1
