from __future__ import annotations

from pathlib import Path

import pytest

from shufflesum.errors import FileError, ParameterError
from shufflesum.service.addresses import check_url
from shufflesum.service.http import ServerOptions, load_secret
from shufflesum.service.problems import PROBLEMS, parse_problem


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_secret_is_one_line_without_the_space_around_it(tmp_path: Path) -> None:
    assert load_secret(write(tmp_path / "secret", f"{'s' * 16}\n")) == "s" * 16


@pytest.mark.parametrize("text", ["", "short", "a" * 15, "a" * 2000, "a" * 20 + "\n" + "b" * 20, "\xe4" * 20])
def test_what_is_no_secret_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileError, match="openssl rand"):
        load_secret(write(tmp_path / "secret", text))


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="chmod 600"):
        load_secret(write(tmp_path / "secret", "s" * 16, 0o640))


@pytest.mark.parametrize(
    "url", ["https://host.example/", "http://127.0.0.1:80", "http://localhost/x", "http://[::1]:9"]
)
def test_https_and_this_machine_may_be_talked_to(url: str) -> None:
    assert check_url(url, allow_plain_http=False) == url.rstrip("/")


@pytest.mark.parametrize("url", ["http://host.example", "http://10.0.0.1", "http://127.0.0.1.example.org"])
def test_plain_http_to_another_machine_needs_insistence(url: str) -> None:
    with pytest.raises(ParameterError, match="insist"):
        check_url(url, allow_plain_http=False)
    assert check_url(url, allow_plain_http=True) == url


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "https://", "https://a:b@c", "https://h?q", "https://h:0", "https://h:x", "http://[::1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ParameterError, match="must be a plain address"):
        check_url(url, allow_plain_http=True)


def test_half_of_tls_is_refused() -> None:
    with pytest.raises(ParameterError, match="both --tls-cert and --tls-key"):
        ServerOptions(tls_cert=Path("cert.pem"))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_reads_back_as_it_was_written(name: str) -> None:
    problem = PROBLEMS[name]
    assert parse_problem(problem.encode("why")) == (name, "why", problem.retry)
    assert 400 <= problem.status <= 503


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"type": 3}', b'{"type": "urn:else"}', b"\xff"])
def test_what_others_answer_is_no_problem_of_ours(body: bytes) -> None:
    assert parse_problem(body)[0] is None
