from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from starlette.applications import Starlette
from tests.forked_processes import forked
from tests.refusals import refusal
from tests.service.certificates import certificate

from shufflesum.errors import FileError, ParameterError
from shufflesum.service.http.app import SecretFile
from shufflesum.service.http.messages import PROBLEMS, check_url, parse_problem, why_unreachable
from shufflesum.service.http.server import ServerOptions, background, run_server
from shufflesum.service.logs import configure_logging


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_secret_is_one_line_without_the_space_around_it(tmp_path: Path) -> None:
    assert SecretFile(write(tmp_path / "secret", f"{'s' * 16}\n")).valid() == ("s" * 16,)


def test_two_secrets_are_valid_while_one_replaces_the_other(tmp_path: Path) -> None:
    path, old, new = tmp_path / "secret", "o" * 16, "n" * 16
    secret = SecretFile(write(path, old))
    write(tmp_path / "next", f"{new}\n{old}\n").replace(path)
    assert secret.valid() == (new, old)
    for damage in (lambda: path.write_text("short"), lambda: path.chmod(0o644), path.unlink):
        damage()
        assert secret.valid() == (new, old)  # never none, and never a wrong one
    write(path, new)
    assert secret.valid() == (new,)


@pytest.mark.parametrize(
    "text", ["", "short", "a" * 15, "a" * 2000, "\n".join(["a" * 20] * 3), "a" * 20 + "\n" + "b" * 5, "\xe4" * 20]
)
def test_what_is_no_secret_is_refused(tmp_path: Path, text: str) -> None:
    with refusal("malformed", error=FileError):
        SecretFile(write(tmp_path / "secret", text))


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with refusal("insecure-permissions", "chmod 600", error=FileError):
        SecretFile(write(tmp_path / "secret", "s" * 16, 0o640))


@pytest.mark.parametrize(
    "url", ["https://host.example/", "http://127.0.0.1:80", "http://localhost/x", "http://[::1]:9"]
)
def test_https_and_this_machine_may_be_talked_to(url: str) -> None:
    assert check_url(url, allow_plain_http=False) == url.rstrip("/")


@pytest.mark.parametrize("url", ["http://host.example", "http://10.0.0.1", "http://127.0.0.1.example.org"])
def test_plain_http_to_another_machine_needs_insistence(url: str) -> None:
    with refusal("untrusted", error=ParameterError):
        check_url(url, allow_plain_http=False)
    assert check_url(url, allow_plain_http=True) == url


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "https://", "https://a:b@c", "https://h?q", "https://h:0", "https://h:x", "http://[::1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with refusal("malformed-address", error=ParameterError):
        check_url(url, allow_plain_http=True)


def test_a_tls_key_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    cert, key = map(Path, certificate(tmp_path))
    key.chmod(0o604)
    with refusal("insecure-permissions", error=FileError):
        run_server(Starlette(), ServerOptions(tls_cert=cert, tls_key=key), role="test")


def test_an_encrypted_tls_key_is_refused_without_asking(tmp_path: Path) -> None:
    cert, key = map(Path, certificate(tmp_path))
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    with refusal("malformed", error=FileError):
        run_server(Starlette(), ServerOptions(tls_cert=cert, tls_key=key), role="test")


def half_fails() -> None:
    async def fail() -> None:
        raise RuntimeError("secret")

    async def serve() -> None:
        async with background(fail):
            await asyncio.sleep(20)

    configure_logging()
    asyncio.run(serve())


def test_a_server_stops_when_half_of_its_work_has_ended(tmp_path: Path) -> None:
    """A process of its own, because the signal would stop the tests as well."""
    assert forked(tmp_path / "log", half_fails) == -signal.SIGTERM
    said = (tmp_path / "log").read_text()
    assert "work ended, so the server stops" in said
    assert "secret" not in said


def failed(*causes: BaseException) -> BaseException:
    """An error raised from another, as libraries wrap them."""
    outermost, *inner = causes
    for outer, cause in itertools.pairwise([outermost, *inner]):
        outer.__cause__ = cause
    return outermost


@pytest.mark.parametrize(
    ("causes", "reason"),
    [
        ((OSError(), ssl.SSLCertVerificationError("self-signed")), "its certificate is not trusted"),
        ((OSError(), OSError(), ConnectionRefusedError("10.0.0.7")), "connection refused"),
        ((OSError(), socket.gaierror("db.internal")), "unknown host name"),
        ((TimeoutError("10.0.0.7"),), "no answer in time"),
        ((ValueError("10.0.0.7"),), "ValueError"),
    ],
)
def test_why_a_server_is_out_of_reach_is_said_without_naming_it(causes: tuple[BaseException, ...], reason: str) -> None:
    assert why_unreachable(failed(*causes)) == reason


def test_half_of_tls_is_refused() -> None:
    with refusal("missing-argument", "tls_cert", "tls_key", error=ParameterError):
        ServerOptions(tls_cert=Path("cert.pem"))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_reads_back_as_it_was_written(name: str) -> None:
    problem = PROBLEMS[name]
    assert parse_problem(problem.encode("why")) == (name, "why", problem.retry)
    assert 400 <= problem.status <= 503


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"type": 3}', b'{"type": "urn:else"}', b"\xff"])
def test_what_others_answer_is_no_problem_of_ours(body: bytes) -> None:
    assert parse_problem(body)[0] is None
