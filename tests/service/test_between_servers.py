"""How the two servers know each other: by a secret that can be replaced, by certificates, or by both."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.forked_processes import wait_until
from tests.refusals import refusal
from tests.service.certificates import Authority
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, fake_upload, replace_secret

from shufflesum.errors import ParameterError
from shufflesum.sealing import SEALED_BYTES, Opener
from shufflesum.service.analyzer.server import AnalyzerServer
from shufflesum.service.http.server import ServerOptions
from shufflesum.service.stores.tables import open_tables

USERS = 3


def secured(server: ServerProcess) -> str:
    return server.url.replace("http:", "https:")


def fill_round(shuffler: ServerProcess, deployment: Deployment, number: int) -> None:
    """A round's worth of uploads; only whether they are counted matters here."""
    for _ in range(USERS):
        wait_until(lambda: shuffler.upload(fake_upload(deployment.task, number)).status in (201, 409))


def counted(deployment: Deployment) -> int:
    tables = open_tables(f"sqlite:{deployment.folder / 'analyzer.db'}", deployment.task)
    return len(tables.counted())


def refusals(shuffler: ServerProcess) -> set[str]:
    return {event["error"] for event in shuffler.events() if event["event"].startswith("release failed")}


def without_secret(deployment: Deployment, role: str, *options: str) -> ServerProcess:
    """A server without --secret-file."""
    folder = deployment.folder
    common = ["--task", str(deployment.task_file), "--store", f"sqlite:{folder / f'{role}.db'}"]
    return ServerProcess(folder / f"{role}.log", [role, *common, *options])


def post_batch(deployment: Deployment, url: str, context: ssl.SSLContext, **headers: str) -> httpx.Response:
    with httpx.Client(verify=context, trust_env=False, timeout=60) as http:
        path = f"{url}/tasks/{deployment.task.id}/batches/{secrets.token_hex(16)}"
        return http.post(
            path,
            params={"round": 2, "users": USERS},
            content=bytes(USERS * SEALED_BYTES),
            headers={name.title(): value for name, value in headers.items()},
        )


def test_a_certificate_takes_the_place_of_the_secret(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    here, there = ours.issue("127.0.0.1"), ours.issue("shuffler.example.org")
    deployment = Deployment.small(tmp_path, users=USERS, rounds=9, shuffler_url="https://shuffler.example.org")
    tls = ("--tls-cert", here[0], "--tls-key", here[1], "--peer-ca", ours.file)
    with without_secret(
        deployment, "analyzer", "--key", str(deployment.key_file), "--processes", "1", *tls
    ) as analyzer:
        url = secured(analyzer)
        known = ("--client-cert", there[0], "--client-key", there[1])
        with without_secret(deployment, "shuffler", "--analyzer", url, "--analyzer-ca", ours.file, *known) as shuffler:
            fill_round(shuffler, deployment, 1)
            wait_until(lambda: counted(deployment) == 1)
            assert refusals(shuffler) == set()

        def shown(authority: Authority | None, name: str = "") -> ssl.SSLContext:
            context = ssl.create_default_context(cafile=ours.file)
            if authority is not None:
                context.load_cert_chain(*authority.issue(name))
            return context

        def problem(context: ssl.SSLContext) -> str:
            return str(post_batch(deployment, url, context).json()["type"]).rpartition(":")[2]

        # None, one of the right authority with another name, the analyzer's own.
        for context in (shown(None), shown(ours, "mallory.example.org"), shown(ours, "127.0.0.1")):
            assert problem(context) == "wrong-certificate"
        # One with the right name, of an authority that is not ours.
        with pytest.raises(httpx.TransportError):
            problem(shown(others, "shuffler.example.org"))
        assert post_batch(deployment, url, shown(ours, "shuffler.example.org")).status_code == 201
        # Readers need no certificate.
        with httpx.Client(verify=shown(None), trust_env=False, timeout=60) as reader:
            assert reader.get(f"{url}/healthz").status_code == 200
            assert reader.get(f"{url}/tasks/{deployment.task.id}/estimate").status_code in (200, 409)


def test_with_both_a_secret_and_a_certificate_both_are_needed(tmp_path: Path) -> None:
    ours = Authority(tmp_path / "ours")
    here, there = ours.issue("127.0.0.1"), ours.issue("peer.example.org")
    deployment = Deployment.small(tmp_path, users=USERS, rounds=9)
    tls = ("--tls-cert", here[0], "--tls-key", here[1], "--peer-ca", ours.file, "--peer-name", "Peer.example.org")
    with deployment.analyzer("--processes", "1", *tls) as analyzer:
        url, bearer = secured(analyzer), f"Bearer {deployment.secret}"
        anonymous = ssl.create_default_context(cafile=ours.file)
        named = ssl.create_default_context(cafile=ours.file)
        named.load_cert_chain(*there)
        answers = [
            post_batch(deployment, url, anonymous, authorization=bearer),
            post_batch(deployment, url, named),
            post_batch(deployment, url, named, authorization=bearer),
        ]
        assert [answer.status_code for answer in answers] == [403, 401, 201]


def test_half_of_what_certificates_need_is_refused(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path)
    with refusal("missing-argument", "peer_ca", "tls_cert", error=ParameterError):
        ServerOptions(peer_ca=tmp_path / "ca.pem")
    with refusal("missing-argument", "secret_file", "peer_ca", error=ParameterError):
        AnalyzerServer(
            deployment.task,
            Opener(deployment.key, processes=1),
            open_tables(f"sqlite:{tmp_path / 'a'}", deployment.task),
        )


@pytest.mark.parametrize("first", ["shuffler", "analyzer"])
def test_a_secret_is_replaced_while_both_run_in_either_order(tmp_path: Path, first: str) -> None:
    deployment = Deployment.small(tmp_path, users=USERS, rounds=9)
    files = {role: tmp_path / f"{role}.secret" for role in ("analyzer", "shuffler")}
    for path in files.values():
        replace_secret(path, deployment.secret)
    new = secrets.token_hex(16)
    give: Callable[[str], tuple[str, str]] = lambda role: ("--secret-file", str(files[role]))  # noqa: E731
    with (
        deployment.analyzer("--processes", "1", *give("analyzer")) as analyzer,
        deployment.shuffler(analyzer.url, *give("shuffler")) as shuffler,
    ):
        second = "analyzer" if first == "shuffler" else "shuffler"
        both, alone = (new, deployment.secret), (new,)
        for number, (role, lines) in enumerate([(first, both), (second, both), (first, alone), (second, alone)], 1):
            replace_secret(files[role], *lines)
            fill_round(shuffler, deployment, number)
            wait_until(lambda number=number: counted(deployment) == number)
        assert refusals(shuffler) == set()
        # The old one is of no use any more.
        batch = f"/tasks/{deployment.task.id}/batches/{secrets.token_hex(16)}?round=5&users={USERS}"
        stale = analyzer.request("POST", batch, bytes(USERS * SEALED_BYTES), headers=deployment.bearer)
        assert stale.problem == "wrong-secret"
        replace_secret(files["analyzer"], secrets.token_hex(16))
        fill_round(shuffler, deployment, 5)
        wait_until(lambda: refusals(shuffler) == {"wrong-secret"})
        assert counted(deployment) == 4
        assert "secret replaced" in {event["event"] for event in analyzer.events()}
        assert new not in analyzer.log.read_text() + shuffler.log.read_text()
