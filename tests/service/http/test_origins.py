"""Which pages may send, asked as browsers ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.refusals import refusal
from tests.service.http_requests import Answer
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

from shufflesum.errors import ParameterError
from shufflesum.service.http.app import check_origin

PAGE = "https://survey.example.org"
OTHER = "https://evil.example.org"


@pytest.mark.parametrize(
    "origin", [PAGE, f"{PAGE}:8443", "http://127.0.0.1:8000", "http://localhost", "http://[::1]:1"]
)
def test_an_origin_is_written_as_browsers_do(origin: str) -> None:
    assert check_origin(origin) == origin


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "", "survey.example.org", f"{PAGE}/", f"{PAGE}/a", f"{PAGE}:443", "https://Survey.example.org",
     "https://*.example.org", "https://a@b.example", f"{PAGE}?q", f"{PAGE}#f", "https://", "ftp://a.example",
     "https://a.example:x", "https://ä.example", "https://[::1"],
)  # fmt: skip
def test_what_no_browser_would_send_is_refused(origin: str) -> None:
    with refusal("malformed-address", error=ParameterError):
        check_origin(origin)


def test_a_page_that_others_can_change_is_refused() -> None:
    with refusal("untrusted", error=ParameterError):
        check_origin("http://survey.example.org")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return Deployment.small(tmp_path_factory.mktemp("origins"), users=1000)


@pytest.fixture(scope="module")
def shuffler(deployment: Deployment) -> Iterator[ServerProcess]:
    with (
        StandInAnalyzer() as analyzer,
        deployment.shuffler(
            analyzer.url, "--allow-origin", PAGE, "--allow-origin", "http://127.0.0.1:8000", "--max-pending", "5"
        ) as server,
    ):
        yield server


def cors(answer: Answer) -> dict[str, str]:
    found = {name.lower(): value for name, value in answer.headers.items()}
    return {name: value for name, value in found.items() if name.startswith("access-control-") or name == "vary"}


def ask(server: ServerProcess, method: str, path: str, origin: str, asked: str = "", **more: str) -> Answer:
    headers = {"Origin": origin, **more} | ({"Access-Control-Request-Method": asked} if asked else {})
    return server.request(method, path, headers=headers)


def test_a_page_may_ask_whether_it_may_send(deployment: Deployment, shuffler: ServerProcess) -> None:
    answer = ask(shuffler, "OPTIONS", f"/tasks/{deployment.task.id}/uploads", PAGE, "POST")
    assert answer.status == 204
    assert cors(answer) == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization, content-type",
        "access-control-max-age": "7200",
        "vary": "origin",
    }


def test_a_page_may_load_the_task_ask_for_the_round_and_upload(deployment: Deployment, shuffler: ServerProcess) -> None:
    here = f"/tasks/{deployment.task.id}"
    answers = [ask(shuffler, "GET", path, "http://127.0.0.1:8000") for path in (here, f"{here}/round")]
    headers = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}
    answers.append(shuffler.upload(fake_upload(deployment.task), headers=headers))
    assert [answer.status for answer in answers] == [200, 200, 201]
    for answer in answers:
        assert cors(answer)["access-control-allow-origin"] in (PAGE, "http://127.0.0.1:8000")
        assert cors(answer)["access-control-expose-headers"] == "retry-after"
        assert "access-control-allow-credentials" not in cors(answer)


def test_a_page_can_read_why_it_was_refused(deployment: Deployment, shuffler: ServerProcess) -> None:
    upload = fake_upload(deployment.task)
    for problem in (None, "repeated"):
        answer = shuffler.upload(upload, headers={"Origin": PAGE})
        assert answer.problem == problem
        assert cors(answer)["access-control-allow-origin"] == PAGE
    path = f"/tasks/{deployment.task.id}/uploads"
    for body, problem in ((b"\0\1", "wrong-version"), (b"\0" * 10_000, "too-large")):
        answer = shuffler.request("POST", path, body, headers={"Origin": PAGE})
        assert answer.problem == problem
        assert cors(answer)["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize("origin", [OTHER, "null", f"{PAGE}.evil.example", "http://survey.example.org", PAGE.upper()])
def test_another_page_is_refused_and_nothing_of_it_counts(
    origin: str, deployment: Deployment, shuffler: ServerProcess
) -> None:
    taken = shuffler.metric("shufflesum_uploads_total")
    answers = [
        ask(shuffler, "OPTIONS", f"/tasks/{deployment.task.id}/uploads", origin, "POST"),
        # what a browser sends unasked: a form
        shuffler.upload(fake_upload(deployment.task), headers={"Origin": origin, "Content-Type": "text/plain"}),
        ask(shuffler, "GET", f"/tasks/{deployment.task.id}", origin),
    ]
    for answer in answers:
        assert (answer.status, answer.problem, cors(answer)) == (403, "origin-refused", {})
    assert shuffler.metric("shufflesum_uploads_total") == taken


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/tasks/ID/release", "/tasks/other/uploads"])
def test_a_page_may_read_nothing_else(path: str, deployment: Deployment, shuffler: ServerProcess) -> None:
    place = path.replace("ID", deployment.task.id)
    for method in ("GET", "POST"):
        assert cors(ask(shuffler, "OPTIONS", place, PAGE, method)) == {}
        assert cors(ask(shuffler, method, place, PAGE)) == {}


@pytest.mark.parametrize("asked", ["GET", "PUT", "DELETE", ""])
def test_a_page_may_not_send_otherwise(asked: str, deployment: Deployment, shuffler: ServerProcess) -> None:
    answer = ask(shuffler, "OPTIONS", f"/tasks/{deployment.task.id}/uploads", PAGE, asked)
    assert (answer.status, answer.problem) == (405, "wrong-method")


def test_no_page_may_send_unless_one_is_named(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path)
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url) as server:
        assert ask(server, "OPTIONS", f"/tasks/{deployment.task.id}/uploads", PAGE, "POST").problem == "origin-refused"
        assert server.upload(fake_upload(deployment.task), headers={"Origin": PAGE}).problem == "origin-refused"
        own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}  # a page behind the same proxy
        assert server.upload(fake_upload(deployment.task), headers=own).status == 201
        assert server.upload(fake_upload(deployment.task)).status == 201
