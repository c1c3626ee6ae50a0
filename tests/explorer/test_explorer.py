"""The explorer over HTTP, with the planner at work beside it."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import uvicorn
from tests.pages.elements import Elements

import shufflesum as ss
from shufflesum.cli.plan import _plain_card
from shufflesum.explorer import Explorer, Pictures, explorer_app
from shufflesum.explorer import explorer as explorer_module
from shufflesum.explorer.explorer import EPSILONS, USERS
from shufflesum.explorer.questions import CURATOR, DEFAULTS, PAPER, Question, error_of, near_plan, point
from shufflesum.plans import Plan

TOKEN = "a-token-of-this-test"
PATIENCE = 60.0  # of a page, for what takes a moment where nothing else goes on
LABELS = {**DEFAULTS, "holds": "labels", "labels": "yes, no, <script>alert(1)</script>", "users": "10000"}


class Page:
    """The explorer as a browser asks it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}/{TOKEN}/", trust_env=False, timeout=60)

    def get(
        self, path: str = "", form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        return self.http.get(f"{path}?{urlencode(form)}" if form else path, headers=headers)

    def planned(self, form: Mapping[str, str]) -> str:
        """The page once it has a plan, or says why there is none."""
        return self._until(form, lambda text: "Save plan.json" in text or 'role="alert"' in text)

    def finished(self, form: Mapping[str, str]) -> str:
        """The page once nothing more is to be expected."""
        return self._until(form, lambda text: "data-again" not in text)

    def _until(self, form: Mapping[str, str], there: Callable[[str], bool], seconds: float = 300.0) -> str:
        """The page must answer all the while."""
        end = time.monotonic() + seconds
        while not there(text := self.get("", form).text):
            assert time.monotonic() < end, text
            time.sleep(0.2)
        return text


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    listener = socket.create_server(("127.0.0.1", 0))
    few = pytest.MonkeyPatch()
    few.setattr(explorer_module, "EPSILONS", (0.5, 1.0))
    few.setattr(explorer_module, "USERS", (1_000, 10_000))
    with listener, Explorer(_plain_card) as explorer, Pictures() as pictures:
        port = listener.getsockname()[1]
        app = explorer_app(explorer, pictures, token=TOKEN, port=port, patience=PATIENCE)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.005)
        served = Page(port)
        try:
            yield served
        finally:
            served.http.close()
            server.should_exit = True
            thread.join(10)
            few.undo()


def question(**changes: str) -> Question:
    return Question.of({**DEFAULTS, **changes})


def test_the_answer_is_the_planners(page: Page) -> None:
    text = page.finished(LABELS)
    shown = Elements(text)
    asked = Question.of(LABELS)
    plan = ss.plan(users=10_000, epsilon=1.0, **asked.arguments())
    assert f"Plan {plan.id[:16]}" in shown.text  # the card
    assert "What taking part can reveal at most" in shown.text  # the statement
    assert len([address for address in shown.addresses if address.startswith("data:image/svg+xml")]) == 2
    assert shown.handlers == []
    assert "<script>alert(1)</script>" in shown.text
    # what is saved is that plan, and computed again when it is read
    saved = page.get("plan.json", LABELS)
    assert saved.headers["content-disposition"] == 'attachment; filename="plan.json"'
    assert Plan.from_json(saved.text) == plan


def test_what_was_asked_before_is_answered_at_once(page: Page) -> None:
    page.finished(LABELS)
    page.planned({**LABELS, "epsilon": "2"})
    assert "data-again" not in page.get("", LABELS).text


NUMBERS = {**DEFAULTS, "shape": "2", "users": "2000"}


@pytest.mark.parametrize(
    ("asked", "changes"), [(LABELS, {"epsilon": "1.1"}), (NUMBERS, {"users": "2200"})], ids=["labels", "numbers"]
)
def test_what_was_asked_near_before_is_answered_in_the_first_response(
    page: Page, asked: dict[str, str], changes: dict[str, str]
) -> None:
    page.planned(asked)
    page.get("", {**asked, "rounds": "7"})  # is left for another question before it is answered
    shown = Elements(page.get("", {**asked, **changes}).text)
    assert "The planner is at work" not in shown.text
    assert re.search(r"Plan [0-9a-f]{16}", shown.text)  # the card
    assert "What taking part can reveal at most" in shown.text  # the statement


def test_what_is_near_nothing_says_at_once_that_it_is_at_work(page: Page) -> None:
    assert "The planner is at work" in page.get("", {**DEFAULTS, "shape": "3", "users": "1234"}).text


def test_an_acceptable_error_gives_the_least_epsilon(page: Page) -> None:
    form = {**LABELS, "by": "error", "error": "0.001"}
    page.planned(form)
    plan = Plan.from_json(page.get("plan.json", form).text)
    assert error_of(plan.expected_error.total, 3) <= 0.001
    worse = ss.plan(users=10_000, epsilon=0.99 * plan.epsilon, **Question.of(form).arguments())
    assert error_of(worse.expected_error.total, 3) > 0.001


def test_what_cannot_be_planned_is_said_with_the_knob_to_turn(page: Page) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({**LABELS, "epsilon": "-1"}, "epsilon is -1.0"),
        ({**LABELS, "delta": "2"}, "delta is 2.0"),
        ({**LABELS, "users": "lots"}, "users is &#39;lots&#39;"),
    ]
    for form, words in cases:
        text = page.planned(form)
        assert words in text
        assert 'role="alert"' in text
        assert page.get("plan.json", form).status_code in (400, 409)


def test_before_anything_is_asked_there_is_the_form_alone(page: Page) -> None:
    answer = page.get()
    assert re.search(r'name="users" value="50000"', answer.text)
    assert "data-again" not in answer.text
    for name in ("style.css", "live.js"):
        assert page.get(name).status_code == 200
    assert page.get("secret.txt").status_code == 404


def test_other_sites_and_other_machines_names_are_refused(page: Page) -> None:
    own = f"http://127.0.0.1:{page.port}"
    assert page.get(headers={"origin": own}).status_code == 200
    assert page.get(headers={"sec-fetch-site": "same-origin"}).status_code == 200
    refused: list[dict[str, str]] = [
        {"host": "evil.example:80"},
        {"host": f"evil.example:{page.port}"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ]
    for headers in refused:
        answer = page.get(headers=headers)
        assert (answer.status_code, answer.text) == (403, "not allowed\n"), headers
    for path in ("/", "/wrong/", f"/{TOKEN}x/", f"/{TOKEN}", "/style.css", f"//{TOKEN}/"):
        assert httpx.get(f"{own}{path}", trust_env=False).status_code == 403, path
    assert page.http.post("").status_code == 403
    policy = page.get().headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.get().headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in page.get(headers={"origin": own}).headers


def test_points_are_what_the_planner_and_the_curator_say() -> None:
    asked = question(holds="labels", labels="10")
    for mechanism in ("noisy-counts", "randomized-response"):
        plan = ss.plan(users=3000, epsilon=0.5, mechanism=mechanism, **asked.arguments())
        assert point(asked, mechanism, 3000, 0.5) == error_of(plan.expected_error.total, 10)
    assert point(asked, CURATOR, 3000, 0.5) == error_of(plan.curator_error, 10)
    vector = question(shape="10", users="1000000")
    published = ss.plan(users=1_000_000, epsilon=0.5, accountant="paper", **vector.arguments())
    assert point(vector, PAPER, 1_000_000, 0.5) == error_of(published.expected_error.total, 10)
    assert point(vector, PAPER, 100, 0.5) is None


def test_a_first_answer_near_a_known_one_is_certified_and_reaches_the_error() -> None:
    known = ss.plan(users=50_000, epsilon=1.0, **question(shape="8").arguments())
    by_epsilon = near_plan(question(shape="8", epsilon="1.1"), _plain_card, known)
    assert by_epsilon is not None
    by_epsilon.plan.verify()
    assert (by_epsilon.plan.epsilon, by_epsilon.plan.mechanism.options()) == (1.1, known.mechanism.options())
    error = 0.9 * error_of(known.expected_error.total, 8)
    by_error = near_plan(question(shape="8", by="error", error=str(error)), _plain_card, known)
    assert by_error is not None
    assert error_of(by_error.plan.expected_error.total, 8) <= error
    assert near_plan(question(shape="8", epsilon="-1"), _plain_card, known) is None


def test_lines_cover_what_people_choose_from() -> None:
    assert min(EPSILONS) <= 0.1
    assert max(EPSILONS) >= 8
    assert (min(USERS), max(USERS)) == (1_000, 1_000_000)


def test_a_plan_survives_the_way_from_its_process(page: Page) -> None:
    form: dict[str, Any] = {**LABELS, "rounds": "3", "max_reports": "5"}
    page.planned(form)
    saved = json.loads(page.get("plan.json", form).text)
    assert saved["guarantee"]["rounds"] == 3
    assert saved["reports"] <= 5
