"""The explorer over HTTP: the planner answers in the request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import httpx
import pytest
from tests.pages.elements import Elements

import shufflesum as ss
from shufflesum import explorer
from shufflesum._format import Z_95
from shufflesum.explorer import CURATOR, DEFAULTS, PAPER, Question, explorer_app, percent_off, point
from shufflesum.plans import Plan

TOKEN, PORT = "a-token-of-this-test", 8321
OWN = f"http://127.0.0.1:{PORT}"
Form = Mapping[str, Sequence[str]]
LABELS: Form = {**DEFAULTS, "holds": ["labels"], "labels": ["yes, no, <script>alert(1)</script>"], "users": ["10000"]}


class Page:
    """The explorer as a browser asks it, without a server."""

    def __init__(self) -> None:
        self.app = explorer_app(token=TOKEN, port=PORT)

    def get(
        self, path: str = "", form: Form | None = None, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=f"{OWN}/{TOKEN}/") as client:
                query = f"?{urlencode(form, doseq=True)}" if form else ""
                return await client.request(method, path + query, headers=headers)

        return asyncio.run(ask())


@pytest.fixture
def page() -> Page:
    return Page()


def test_it_opens_with_an_answer_and_lists_columns_with_bounds_each(page: Page) -> None:
    text = page.get().text
    bounds = {"age": (0, 120), "hours": (0, 24)}
    plan = ss.plan(users=50_000, domain=ss.Arrays(2, bounds, list(bounds)), epsilon=1.0, delta=1e-6)
    shown = Elements(text)
    assert f"Plan {plan.id[:16]}" in shown.text
    assert "in the mean of hours" in shown.text
    for name, value in (("column", "age"), ("low", "0"), ("high", "120"), ("column", "hours"), ("high", "24")):
        assert re.search(f'name="{name}" value="{value}"', text)
    assert len(re.findall('name="column" value=""', text)) >= 1  # room for another one


def test_the_answer_is_the_planners(page: Page) -> None:
    shown = Elements(page.get("", LABELS).text)
    plan = ss.plan(users=10_000, epsilon=1.0, **Question.of(LABELS).arguments())
    assert f"Plan {plan.id[:16]}" in shown.text  # the card
    assert "what they like moves" in shown.text  # its details
    assert "What taking part can reveal at most" in shown.text  # the statement
    assert shown.handlers == []
    assert "script" not in shown.tags  # the page has none, and a label makes none
    saved = page.get("plan.json", LABELS)
    assert Plan.from_json(saved.text) == plan


@pytest.mark.long
def test_pictures_are_answers_of_their_own(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "SWEEPS", {"epsilon": (0.5, 1.0), "users": (1_000, 10_000)})
    addresses = [one for one in Elements(page.get("", LABELS).text).addresses if one.startswith("against-")]
    assert len(addresses) == 4
    asked = Question.of(LABELS)
    for address in addresses:
        answer = page.get(address)
        drawn = ".svg?" in address
        assert answer.headers["content-type"].startswith("image/svg+xml" if drawn else "text/plain")
        assert "this plan" in answer.text
        assert "trusted curator" in answer.text
        if not drawn:  # the picture's numbers, for whoever does not see it
            (row,) = re.findall(r"^  (?:0\.5|1,000)  .*$", answer.text, re.MULTILINE)
            at = (1_000, 1.0) if address.startswith("against-users") else (10_000, 0.5)
            wanted = [point(asked, line, *at) for line in explorer.LINES if line != PAPER]
            assert [float(each) for each in row.split()[1:]] == pytest.approx(wanted, rel=1e-2)
    assert page.get("against-luck.svg").status_code == 404
    assert page.get("against-users.pdf").status_code == 404


@pytest.mark.parametrize(
    "held", [{"holds": ["labels"], "labels": ["3"]}, {"holds": ["columns"]}], ids=["labels", "columns"]
)
def test_an_acceptable_margin_gives_the_least_epsilon(page: Page, held: Form) -> None:
    form: Form = {**DEFAULTS, **held, "users": ["10000"], "by": ["margin"], "margin": ["0.2"]}
    plan = Plan.from_json(page.get("plan.json", form).text)
    own = percent_off(plan.error_in_widths.total, plan.dimension)
    assert 0.197 <= own <= 0.2
    assert own == pytest.approx(100 * Z_95 * (plan.error_in_widths.total / plan.dimension) ** 0.5)


def test_what_cannot_be_planned_is_said_with_the_knob_to_turn(page: Page) -> None:
    cases: list[tuple[dict[str, Sequence[str]], str]] = [
        ({"epsilon": ["-1"]}, "epsilon is -1.0"),
        ({"delta": ["2"]}, "delta is 2.0"),
        ({"users": ["lots"]}, "users is &#39;lots&#39;"),
        ({"high": ["120", "a day"]}, "the upper bound of hours"),
        ({"column": ["age", "age"]}, "given twice"),
        ({"column": ["", ""]}, "name at least one"),
    ]
    for changes, words in cases:
        text = page.get("", {**DEFAULTS, **changes}).text
        assert words in text
        assert 'role="alert"' in text
        for path in ("plan.json", "against-users.svg"):
            assert page.get(path, {**DEFAULTS, **changes}).status_code == 400


def test_other_sites_and_other_machines_names_are_refused(page: Page) -> None:
    assert page.get(headers={"origin": OWN}).status_code == 200
    assert page.get(headers={"sec-fetch-site": "same-origin"}).status_code == 200
    refused: list[dict[str, str]] = [
        {"host": "evil.example:80"},
        {"host": f"evil.example:{PORT}"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ]
    for headers in refused:
        answer = page.get(headers=headers)
        assert (answer.status_code, answer.text) == (403, "not allowed\n"), headers
    for path in ("/", "/wrong/", f"/{TOKEN}x/", f"/{TOKEN}", "/style.css"):
        assert page.get(f"{OWN}{path}").status_code == 403, path
    assert page.get(method="POST").status_code == 403
    answer = page.get(headers={"origin": OWN})
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "script" not in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in answer.headers
    assert page.get("style.css").status_code == 200
    assert page.get("secret.txt").status_code == 404


def test_points_are_what_the_planner_and_the_curator_say() -> None:
    asked = Question.of({**DEFAULTS, "holds": ["labels"], "labels": ["10"]})
    for mechanism in ("noisy-counts", "randomized-response"):
        plan = ss.plan(users=3000, epsilon=0.5, mechanism=mechanism, **asked.arguments())
        assert point(asked, mechanism, 3000, 0.5) == percent_off(plan.error_in_widths.total, 10)
    assert point(asked, CURATOR, 3000, 0.5) == percent_off(plan.curator_error, 10)
    vector = Question.of({**DEFAULTS, "holds": ["array"], "shape": ["10"]})
    published = ss.plan(users=1_000_000, epsilon=0.5, accountant="paper", **vector.arguments())
    assert point(vector, PAPER, 1_000_000, 0.5) == percent_off(published.error_in_widths.total, 10)
    assert point(vector, PAPER, 100, 0.5) is None
