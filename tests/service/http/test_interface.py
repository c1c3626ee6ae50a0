"""What the servers say of their interface (OpenAPI) against what they do."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import schemathesis
from docs.interfaces import DESCRIBED
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, BaseSchema, Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from starlette.routing import BaseRoute, Route
from tests.forked_processes import wait_until
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload
from tests.slow_params import few_or_many

from shufflesum.protocol import Randomizer
from shufflesum.sealing import SEALED_BYTES, Opener
from shufflesum.service.analyzer.interface import analyzer_interface
from shufflesum.service.analyzer.server import AnalyzerServer
from shufflesum.service.http.messages import PREFIX, PROBLEMS
from shufflesum.service.http.openapi import Json, to_bytes
from shufflesum.service.shuffler.interface import shuffler_interface
from shufflesum.service.shuffler.release import AnalyzerAddress
from shufflesum.service.shuffler.server import ShufflerOptions, shuffler_app
from shufflesum.service.shuffler.tokens import write_tokens
from shufflesum.service.stores.store import open_store
from shufflesum.service.stores.tables import open_tables
from shufflesum.wire import Upload

DOCS = Path(__file__).parents[3] / "docs"
ORIGIN = "https://survey.example.org"
Role = Literal["shuffler", "analyzer"]


def in_docs(role: Role) -> Json:
    found: Json = json.loads((DOCS / f"openapi-{role}.json").read_bytes())
    return found


def operations(role: Role) -> list[tuple[Role, str, str]]:
    return [(role, path, method) for path, found in in_docs(role)["paths"].items() for method in found]


OPERATIONS = [*operations("shuffler"), *operations("analyzer")]


@dataclass
class Described:
    """A running server, its own description, and what makes its requests good."""

    deployment: Deployment
    url: str
    schema: BaseSchema
    tokens: list[str]

    def operation(self, path: str, method: str) -> APIOperation[Any, Any, Any, Any]:
        return self.schema[path][method.upper()]

    def uploads(self) -> st.SearchStrategy[bytes]:
        """Good ones, now and then the same again, and others."""
        task = self.deployment.task

        def made(number: int, seed: int) -> bytes:
            drawn = random.Random(seed).randbytes(16 + task.plan.reports * SEALED_BYTES)
            return Upload(task.id, number, drawn[:16], drawn[16:]).encode()

        good = st.builds(made, st.integers(0, 4), st.integers(0, 60))
        return st.one_of(good, st.binary(max_size=task.upload_bytes + 60))

    def secrets(self) -> st.SearchStrategy[str]:
        words = ["", "Token", "Bearer x", f"Token {secrets.token_hex(16)}"]
        words += [self.deployment.bearer["Authorization"], self.deployment.operator["Authorization"]]
        return st.sampled_from(words + [f"Token {token}" for token in self.tokens])


def described(deployment: Deployment, url: str, *tokens: str) -> Described:
    return Described(deployment, url, schemathesis.openapi.from_url(f"{url}/openapi.json"), list(tokens))


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    """Rounds of it fill and close; it has tokens, a page that may send, and shows its progress."""
    folder = tmp_path_factory.mktemp("shuffler")
    deployment = Deployment.small(folder, users=6, reports=2, rounds=3)
    write_tokens(40, folder / "tokens", folder / "digests")
    options = ["--tokens", str(folder / "digests"), "--allow-origin", ORIGIN, "--show-progress"]
    options += ["--operator-secret-file", str(deployment.operator_file)]
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, *options) as server:
        yield described(deployment, server.url, *(folder / "tokens").read_text().split())


@pytest.fixture(scope="module")
def analyzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    deployment = Deployment.small(tmp_path_factory.mktemp("analyzer"), users=4, reports=2, rounds=1000)
    with deployment.analyzer("--processes", "1") as server:
        yield described(deployment, server.url)


@pytest.mark.parametrize("role", ["shuffler", "analyzer"])
def test_docs_and_servers_say_the_same(role: Role, request: pytest.FixtureRequest) -> None:
    name, server = f"openapi-{role}.json", request.getfixturevalue(role)
    assert (DOCS / name).read_bytes() == to_bytes(DESCRIBED[name]()), "python docs/interfaces.py"
    served, kept = deepcopy(server.schema.raw_schema), in_docs(role)
    schemas, of_any = served["components"].pop("schemas"), kept["components"].pop("schemas")
    assert served == kept
    own = {name for name in of_any if schemas[name] != of_any[name]}
    assert own == {"TaskId", "Round"} | ({"Upload"} if role == "shuffler" else {"Batch", "Users"})
    assert schemas.keys() == of_any.keys()
    assert schemas["TaskId"]["const"] == server.deployment.task.id


def test_the_sizes_of_a_task_are_exact(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=5, reports=3, rounds=2)
    task = deployment.task
    schemas = shuffler_interface(task)["components"]["schemas"]
    assert {schemas["Upload"][end] for end in ("minLength", "maxLength")} == {task.upload_bytes}
    assert schemas["Round"]["maximum"] == 2
    assert analyzer_interface(task)["components"]["schemas"]["Batch"]["minLength"] == 5 * 3 * SEALED_BYTES
    assert "/style.css" not in analyzer_interface(task, page=False)["paths"]


def test_every_problem_and_its_status_is_described() -> None:
    found = {}
    for role in ("shuffler", "analyzer"):
        for path in in_docs(role)["paths"].values():
            for method in path.values():
                for status, answer in method["responses"].items():
                    schema = answer.get("content", {}).get("application/problem+json", {}).get("schema")
                    for urn in schema["properties"]["type"]["enum"] if schema else []:
                        found[urn.removeprefix(PREFIX)] = int(status)
    assert found == {name: problem.status for name, problem in PROBLEMS.items()}


@pytest.mark.parametrize("role", ["shuffler", "analyzer"])
def test_every_path_is_described(role: Role, tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path)
    task, secret, address = deployment.task, deployment.secret, f"sqlite:{tmp_path}/store.db"
    if role == "shuffler":
        options = ShufflerOptions(AnalyzerAddress("http://127.0.0.1:1", secret))
        with closing(open_store(address, task)) as store:
            routes = shuffler_app(task, store, options).routes
    else:
        opener = Opener(deployment.key, processes=1)
        routes = AnalyzerServer(task, opener, open_tables(address, task), secret=secret).app().routes
    paths = {route.path: {each.lower() for each in route.methods or ()} - {"head"} for route in map(as_route, routes)}
    assert paths == {path: set(found) - {"options"} for path, found in in_docs(role)["paths"].items()}


def as_route(route: BaseRoute) -> Route:
    assert isinstance(route, Route)
    return route


@pytest.mark.parametrize(("role", "path", "method"), OPERATIONS)
@few_or_many(4, 100)
def test_answers_are_as_described(
    role: Role, path: str, method: str, cases: int, request: pytest.FixtureRequest
) -> None:
    """Of requests as described and of others: status, problem, headers and content of every answer."""
    server: Described = request.getfixturevalue(role)
    operation = server.operation(path, method)
    can_be_wrong = "{" in path or bool(operation.query)  # nothing is wrong about headers that are any text
    modes = list(GenerationMode) if can_be_wrong else [GenerationMode.POSITIVE]
    for mode in modes:

        @settings(
            max_examples=cases,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
        def ask(case: Case[Any], data: st.DataObject) -> None:
            if path.endswith("/uploads") and method == "post":
                case.body = data.draw(server.uploads())
            elif method == "post":
                case.body = bytes(4 * 2 * SEALED_BYTES)
            if method == "post":
                case.headers["Authorization"] = data.draw(server.secrets())
            if role == "shuffler":
                origin = data.draw(st.sampled_from([None, None, None, ORIGIN, "https://elsewhere.example.org"]))
                if origin is not None:
                    case.headers["Origin"] = origin
            case.call_and_validate(base_url=server.url)

        ask()


def answered(server: Described, path: str, method: str, **sent: Any) -> Any:
    """One request and its answer, which must be as described."""
    number, kind = sent.pop("number", 1), sent.pop("kind", "json")
    given = {"task_id": server.deployment.task.id, "batch_id": "a" * 32, "round": number, "kind": kind}
    case = server.operation(path, method).Case(path_parameters=given, **sent)
    return case.call_and_validate(base_url=server.url)


def problem(answer: Any) -> str:
    return str(answer.json()["type"]).removeprefix(PREFIX)


def test_uploads_are_answered_as_described(tmp_path: Path) -> None:
    """Each answer that a client can bring about, in its place."""
    deployment = Deployment.small(tmp_path, users=2, reports=2, rounds=2)
    task, uploads = deployment.task, "/tasks/{task_id}/uploads"
    write_tokens(3, tmp_path / "tokens", tmp_path / "digests")
    first, second, third = (f"Token {token}" for token in (tmp_path / "tokens").read_text().split())
    options = ["--tokens", str(tmp_path / "digests"), "--allow-origin", ORIGIN]
    options += ["--operator-secret-file", str(deployment.operator_file)]
    with StandInAnalyzer() as nobody, deployment.shuffler(nobody.url, *options) as running:
        server = described(deployment, running.url)

        def post(body: bytes, token: str = first, **headers: str) -> Any:
            return answered(server, uploads, "post", body=body, headers={"Authorization": token, **headers})

        one = fake_upload(task)
        body = one.encode()
        assert problem(post(body, "")) == "token-missing"
        assert problem(post(body, f"Token {'0' * 32}")) == "token-unknown"
        assert problem(post(b"\0\1" + body[2:])) == "wrong-version"
        assert problem(post(body[:60])) == "wrong-length"
        assert problem(post(body[:2] + bytes(32) + body[34:])) == "wrong-task"
        assert problem(post(fake_upload(task, 3).encode())) == "wrong-round"
        assert problem(post(fake_upload(task, 2).encode())) == "round-not-open"
        assert problem(post(bytes(2 * task.upload_bytes))) == "too-large"
        assert problem(post(body, Origin="https://elsewhere.example.org")) == "origin-refused"
        taken = post(body, Origin=ORIGIN)
        assert (taken.status_code, taken.content) == (201, b"")
        assert taken.headers["access-control-allow-origin"] == [ORIGIN]
        assert problem(post(body)) == "repeated"
        assert problem(post(fake_upload(task).encode())) == "token-spent"
        assert problem(post(fake_upload(task, sealed=one.sealed).encode(), second)) == "duplicate-report"
        assert answered(server, "/tasks/{task_id}/round", "get").json()["open_round"] == 1
        assert post(fake_upload(task).encode(), third).status_code == 201
        wait_until(lambda: running.metric("shufflesum_batches_released_total") == 1)
        assert problem(post(fake_upload(task).encode(), second)) == "round-closed"
        released = "/tasks/{task_id}/release"
        assert problem(answered(server, released, "post", headers=deployment.bearer)) == "wrong-secret"
        assert problem(answered(server, released, "post", headers=deployment.operator)) == "batch-too-small"
        asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
        assert answered(server, uploads, "options", headers=asked).status_code == 204

        del server.schema.raw_schema["paths"][uploads]["post"]["responses"]["409"]
        lagging = Described(deployment, running.url, schemathesis.openapi.from_dict(server.schema.raw_schema), [])
        with pytest.raises(FailureGroup, match="Undocumented"):
            answered(lagging, uploads, "post", body=body, headers={"Authorization": first})


def test_estimates_and_files_are_answered_as_described(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=4, reports=2, rounds=2)
    task, estimate, batches = deployment.task, "/tasks/{task_id}/estimate", "/tasks/{task_id}/batches/{batch_id}"
    files = "/tasks/{task_id}/rounds/{round}/estimate.{kind}"
    sealed = b"".join(
        Upload.seal(task, Randomizer(task.plan).randomize(np.full((1, 4), 0.5)), 1).sealed for _ in range(4)
    )
    with deployment.analyzer("--processes", "1") as running:
        server = described(deployment, running.url)

        def post(body: bytes, **query: int) -> Any:
            given = {"round": 1, "users": 4} | query
            return answered(server, batches, "post", body=body, query=given, headers=deployment.bearer)

        assert problem(answered(server, estimate, "get")) == "no-estimate-yet"
        assert problem(answered(server, files, "get")) == "no-estimate-yet"
        assert problem(post(sealed, users=3)) == "batch-too-small"
        assert problem(post(sealed, round=3)) == "wrong-round"
        assert problem(post(sealed[1:])) == "wrong-length"
        assert [post(sealed).status_code for _ in range(2)] == [201, 200]
        assert problem(post(sealed, round=2)) == "wrong-batch"
        for table in (0, 1):
            (found,) = answered(server, estimate, "get", query={"table": table}).json()["rounds"]
            assert ("table" in found) == bool(table)
        assert problem(answered(server, estimate, "get", query={"round": 2})) == "no-estimate-yet"
        for kind in ("csv", "json", "svg", "png"):
            assert answered(server, files, "get", kind=kind).status_code == 200
        page = answered(server, "/", "get")
        known = {"If-None-Match": page.headers["etag"][0]}
        assert answered(server, "/style.css", "get", headers=known).status_code == 200
        assert answered(server, "/", "get", headers=known).status_code == 304
