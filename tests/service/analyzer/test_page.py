"""The analyst's page, without a browser: what it says, what it hands out, and what a browser is told."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pages.elements import HOSTILE, Elements
from tests.service.analyzer.analyzer_in_thread import TASK, Remote, plan_of, running
from tests.service.analyzer.stores_with_rounds import collected

import shufflesum as ss
from shufflesum.domains import Arrays
from shufflesum.plans import Plan
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Task

LABELS = ["yes", "no", "unsure"]
USERS = 300


@cache
def label_plan(rounds: int = 1) -> Plan:
    return ss.plan(users=USERS, domain=ss.Categories(LABELS), epsilon=1.0, delta=1e-6, rounds=rounds)


def answers(users: int = USERS) -> list[str]:
    return [LABELS[user % 2] for user in range(users)]


@contextlib.contextmanager
def served(folder: Path, plan: Plan, rows: Any, **options: Any) -> Iterator[Remote]:
    how = {name: options.pop(name) for name in ("rounds", "unreadable", "name") if name in options}
    task, address = collected(folder, plan, rows, **how)
    with running(task, address, **options) as remote:
        yield remote


@contextlib.contextmanager
def shuffler(answer: dict[str, Any], status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A shuffler that says this about its round, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with served(tmp_path_factory.mktemp("labels"), label_plan(), answers()) as remote:
        yield remote


def words(html: str) -> str:
    return re.sub(r"\s+", " ", Elements(html).text)


def test_the_page_says_what_is_asked_what_was_found_and_what_is_promised(labels: Remote) -> None:
    task = labels.task
    page = labels.http.get("/")
    shown = words(page.text)
    (found,) = labels.estimate()["rounds"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "The guarantee holds: epsilon 1.0, delta 1e-6 for one user in one round" in shown
    assert "guesses right with probability at most 73.2 %" in shown
    assert "How many users hold each of 3 labels (yes, no, unsure)" in shown
    assert "No protection is left: whoever can link reports to their sender" in shown
    assert "No report was rejected" in shown
    assert f"Round 1: {USERS} users" in shown
    for label, count in zip(found["labels"], found["counts"], strict=True):
        assert re.search(rf"{label}\s*{count:,.0f} ± ", shown)
    assert "The one round of this task is closed" in shown  # it was counted, so that the shuffler need not say so
    # the same page at its task's address, with other ways to its files
    other = labels.http.get(f"/tasks/{task.id}")
    assert words(other.text) == shown
    for answer, root in ((page, ""), (other, "../")):
        addresses = set(Elements(answer.text).addresses)
        assert f"{root}tasks/{task.id}/rounds/1/estimate.svg" in addresses
        assert f"{root}live.js" in addresses
    assert labels.http.get(f"/tasks/{'0' * 64}").status_code == 404


def test_every_link_of_the_page_leads_somewhere(labels: Remote) -> None:
    for path in ("/", f"/tasks/{labels.task.id}"):
        page = labels.http.get(path)
        addresses = [address for address in Elements(page.text).addresses if not address.startswith("#")]
        assert len(addresses) >= 8
        for address in addresses:
            assert labels.http.get(page.url.join(address)).status_code == 200, address


def test_a_round_is_handed_out_as_files(tmp_path: Path) -> None:
    with served(tmp_path, label_plan(2), answers(), rounds=2) as remote:
        (_, found) = remote.estimate(table=1)["rounds"]
        folder = f"/tasks/{remote.task.id}/rounds/2/estimate"
        rows = remote.http.get(f"{folder}.csv").text.splitlines()
        assert rows[0].startswith("name,value,")
        assert [float(row.split(",")[1]) for row in rows[1:]] == pytest.approx(found["counts"])
        assert remote.http.get(f"{folder}.json").json()["rounds"] == [found]
        svg, png = remote.http.get(f"{folder}.svg"), remote.http.get(f"{folder}.png")
        assert svg.text.startswith("<svg")
        assert "unsure" in svg.text
        assert png.content.startswith(b"\x89PNG")
        for answer in (svg, png):
            assert answer.headers["content-disposition"].startswith("attachment; filename=")
            assert "sandbox" in answer.headers["content-security-policy"]
        for missing in ("3/estimate.csv", "2/estimate.exe", "x/estimate.csv"):
            assert remote.http.get(f"/tasks/{remote.task.id}/rounds/{missing}").status_code in (400, 404)


def test_the_page_as_one_file_asks_nobody_for_anything(labels: Remote) -> None:
    saved = labels.http.get(f"/tasks/{labels.task.id}/page.html")
    assert saved.headers["content-disposition"].startswith("attachment")
    found = Elements(saved.text)
    assert "script" not in found.tags
    assert "link" not in found.tags
    assert all(address.startswith("data:image/svg+xml;base64,") for address in found.addresses)
    assert len(found.addresses) == 1
    assert f"Round 1: {USERS} users" in found.text


def test_a_browser_is_told_to_load_nothing_from_elsewhere_and_to_ask_again(labels: Remote) -> None:
    page = labels.http.get("/")
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert {"base-uri", "form-action", "frame-ancestors"} <= {name for name in policy if policy[name] == "'none'"}
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    again = labels.http.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/style.css", "/live.js", "/favicon.ico"):
        assert labels.http.get(path).status_code == 200
    assert not re.search(r"https?://", labels.http.get("/live.js").text + labels.http.get("/style.css").text)


def test_nothing_is_shown_before_a_round_is_released(tmp_path: Path) -> None:
    with running(TASK, f"sqlite:{tmp_path}/tables.db") as remote:
        shown = words(remote.http.get("/").text)
        assert "No round has been released yet" in shown
        assert "There is no guarantee" in shown  # of this test's plan
        assert remote.http.get(f"/tasks/{TASK.id}/rounds/1/estimate.svg").status_code == 404


@pytest.mark.parametrize("insist", [False, True])
def test_a_broken_guarantee_is_the_first_thing_one_reads(tmp_path: Path, insist: bool) -> None:
    plan = label_plan()
    bad = 2 * plan.reports
    with served(tmp_path, plan, answers(), unreadable=bad, without_guarantee=insist) as remote:
        shown = words(remote.http.get("/").text)
        assert "The guarantee does not hold" in shown.partition("Progress")[0]
        assert "The guarantee holds" not in shown
        answer = remote.http.get(f"/tasks/{remote.task.id}/rounds/1/estimate.csv")
        assert answer.status_code == (200 if insist else 409)
        assert (f"Rejected reports: {bad}, of which {bad} could not be opened" in shown) is insist
        assert (f"Round 1: {USERS + 2} users" in shown) is insist


def test_a_page_and_its_pictures_do_not_outlive_the_guarantee(tmp_path: Path) -> None:
    """A picture that was drawn before is not shown once a later round has broken what covers all rounds."""
    plan = label_plan(2)
    task, address = collected(tmp_path, plan, answers())
    with running(task, address) as remote:
        picture = f"/tasks/{task.id}/rounds/1/estimate.svg"
        assert remote.http.get(picture).status_code == 200
        (tmp_path / "other").mkdir()
        _, other = collected(tmp_path / "other", plan, answers(), rounds=2, unreadable=2 * plan.reports)
        from shufflesum.service.stores.tables import open_tables

        open_tables(address, task).record(open_tables(other, task).counted()[1])
        assert remote.http.get(picture).status_code == 409


def test_how_full_the_round_is_comes_from_the_shuffler_and_only_now_and_then(tmp_path: Path) -> None:
    task, _ = collected(tmp_path, label_plan(2), answers())
    saying = {"open_round": 2, "rounds": 2, "users_at_least": 120}
    with shuffler(saying) as (url, asked):
        moved = replace(task, shuffler=url)
        saying["task"] = moved.id  # type: ignore[assignment]
        with running(moved, f"sqlite:{tmp_path}/other.db") as remote:
            shown = [words(remote.http.get("/").text) for _ in range(3)][-1]
            assert "Round 2 of 2 is open" in shown
            assert f"At least 120 users so far; a round is released from {USERS} users on" in shown
            assert asked == [f"/tasks/{moved.id}/round"]


@pytest.mark.parametrize(
    ("saying", "said"),
    [
        ({"open_round": 1}, "the shuffler does not say"),
        ({"open_round": None}, "of this task is closed"),
        ({"open_round": 1, "users_at_least": "<b>9</b>"}, "the shuffler does not answer"),
        ({"open_round": 7}, "the shuffler does not answer"),
        ({"open_round": 1, "task": "another"}, "the shuffler does not answer"),
        ({"open_round": 1, "padding": "x" * 5000}, "the shuffler does not answer"),
    ],
)
def test_what_the_shuffler_does_not_say_is_said_to_be_unknown(
    tmp_path: Path, saying: dict[str, Any], said: str
) -> None:
    with shuffler(saying) as (url, _):
        task = replace(TASK_OF_ONE_ROUND, shuffler=url)
        saying.setdefault("task", task.id)
        saying.setdefault("rounds", 1)
        with running(task, f"sqlite:{tmp_path}/tables.db") as remote:
            shown = words(remote.http.get("/").text)
            assert said in shown
            assert ("until 2099-01-01 00:00 UTC" in shown) == (said != "of this task is closed")


TASK_OF_ONE_ROUND: Task = replace(TASK, plan=plan_of(rounds=1))


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (timedelta(days=3, hours=5), "Time left: 3 days"),
        (timedelta(hours=47), "Time left: 47 hours"),
        (timedelta(minutes=61), "Time left: 61 minutes"),
        (timedelta(seconds=90), "Time left: 1 minute,"),
        (timedelta(seconds=5), "Time left: less than a minute"),
        (timedelta(0), "The task ended at"),
    ],
)
def test_time_left_is_never_said_to_be_more_than_it_is(tmp_path: Path, left: timedelta, said: str) -> None:
    from shufflesum.service.analyzer.page import AnalystPage, Estimates
    from shufflesum.service.stores.tables import open_tables

    page = AnalystPage(TASK, Estimates(TASK, open_tables(f"sqlite:{tmp_path}/tables.db", TASK)))
    assert said in words(page.live(TASK.expires - left, None, root="", newest=None))


def test_of_many_rounds_some_are_shown_and_the_others_are_a_link_away(tmp_path: Path) -> None:
    plan = unprotected_plan(users=20, shape=2, coordinates=1, levels=1, rounds=11)
    rows = np.full((20, 2), 0.5)
    with served(tmp_path, plan, rows, rounds=11) as remote:
        seen: list[int] = []
        address = "/"
        for _ in range(3):
            text = remote.http.get(address).text
            seen += [int(number) for number in re.findall(r'id="round-(\d+)"', text)]
            older = re.search(r'href="(\?round=\d+)">Older', text)
            address = f"/{older[1]}" if older else ""
        assert seen == list(range(11, 0, -1))
        assert address == ""
        assert re.search(r'href="\?round=11">Newer', remote.http.get("/?round=7").text)
        assert remote.http.get("/?round=x").status_code == 400
        saved = remote.http.get(f"/tasks/{remote.task.id}/page.html").text
        assert len(re.findall(r'id="round-\d+"', saved)) == 11


@pytest.mark.parametrize("kind", ["labels", "columns"])
def test_hostile_names_are_text(tmp_path: Path, kind: str) -> None:
    rows: Any
    if kind == "labels":
        plan, rows = ss.plan(users=USERS, domain=ss.Categories(HOSTILE), epsilon=1.0, delta=1e-6), HOSTILE * 50
    else:
        plan = unprotected_plan(users=20, shape=len(HOSTILE), coordinates=len(HOSTILE), levels=1)
        plan = replace(plan, domain=Arrays(len(HOSTILE), (0, 1), HOSTILE))
        rows = np.full((20, len(HOSTILE)), 0.5)
    with served(tmp_path, plan, rows, name="</title><script>alert(1)</script>") as remote:
        for path in ("/", f"/tasks/{remote.task.id}/page.html"):
            found = Elements(remote.http.get(path).text)
            assert found.handlers == []
            assert "img" in found.tags
            assert not any("example.org" in address for address in found.addresses)
            assert found.text.count("</title><script>alert(1)</script>") == 2  # title and heading
            assert found.text.count("<script>alert(1)</script>") > 2
            assert "\u202e" not in found.text
        svg = remote.http.get(f"/tasks/{remote.task.id}/rounds/1/estimate.svg").text
        assert "<script" not in svg
        assert "<img" not in svg


@pytest.mark.parametrize("entries", [1, 784, 100_000])
def test_a_page_stays_small_however_many_coordinates_there_are(tmp_path: Path, entries: int) -> None:
    plan = unprotected_plan(users=20, shape=entries, coordinates=min(entries, 100), levels=1)
    with served(tmp_path, plan, np.full((20, entries), 0.5)) as remote:
        text = remote.http.get("/").text
        assert len(text) < 40_000
        assert text.count("<tr>") == 1 + min(entries, 100)
        svg = remote.http.get(f"/tasks/{remote.task.id}/rounds/1/estimate.svg", timeout=60).content
        assert len(svg) < 400_000
        rows = remote.http.get(f"/tasks/{remote.task.id}/rounds/1/estimate.csv", timeout=60).text.count("\n")
        assert rows == 1 + entries


def test_the_page_can_be_switched_off(tmp_path: Path) -> None:
    task, address = collected(tmp_path, label_plan(), answers())
    with running(task, address, page=False) as remote:
        for path in ("/", f"/tasks/{task.id}", "/live.js", f"/tasks/{task.id}/rounds/1/estimate.csv"):
            assert remote.http.get(path).status_code == 404
        assert remote.http.get(f"/tasks/{task.id}/estimate").status_code == 200


def test_words_have_no_picture_but_how_to_ask_for_them(tmp_path: Path) -> None:
    plan = ss.plan(users=USERS, domain=ss.OpenVocabulary(width=50, depth=2), epsilon=1.0, delta=1e-6)
    with served(tmp_path, plan, answers()) as remote:
        assert "shufflesum estimate --task task.json --candidates words.txt" in words(remote.http.get("/").text)
        assert remote.http.get(f"/tasks/{remote.task.id}/rounds/1/estimate.svg").status_code == 404


def test_without_the_library_for_pictures_there_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shufflesum.errors import MissingExtraError

    def missing() -> None:
        raise MissingExtraError("missing-extra", "no altair")

    monkeypatch.setattr("shufflesum.service.analyzer.page.require_plots", missing)
    with served(tmp_path, label_plan(), answers()) as remote:
        shown = remote.http.get("/").text
        assert "installed without" in shown
        assert "estimate.svg" not in shown
        assert "estimate.csv" in shown
        assert remote.http.get(f"/tasks/{remote.task.id}/page.html").status_code == 200
