"""Damaged and made-up requests, tokens and seals, to real servers: refused with a 4xx, never stored, never a 5xx."""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
from pathlib import Path

import pytest
from tests.fuzz import damaged_bytes
from tests.service.http.bad_requests import REPORTS, USERS, bad_for_a_shuffler, bad_for_an_analyzer, request_of
from tests.service.http.raw_connections import Line, Target, assert_alive, assert_refused, assert_takes_uploads
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload
from tests.slow_params import few_or_many

from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.shuffler.tokens import write_tokens

# Requests.


@few_or_many(500, 50_000)
def test_bad_requests_to_a_shuffler(shuffler: Target, cases: int) -> None:
    source = random.Random(cases)
    taken = shuffler.taken()
    with Line(shuffler.server.port) as line:
        for _ in range(cases):
            request = bad_for_a_shuffler(source, shuffler)
            assert_refused(line.ask(request), request)
    assert shuffler.taken() == taken
    assert_takes_uploads(shuffler)


def lying(source: random.Random, path: bytes, secret: bytes, body: bytes) -> bytes:
    """A request whose headers contradict each other, its body, or the protocol; or no request at all."""
    size = len(body)
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: x", b"Authorization: Bearer " + secret]
    kind = source.randrange(8)
    if kind == 0:
        lines += [b"Content-Length: " + source.choice([b"-1", b"+5", b"0x10", b"9" * 30, b"1e3", b"\xb2", b"5, 5"])]
    elif kind == 1:
        lines += [b"Content-Length: %d" % size, b"Content-Length: %d" % (size + 1)]
    elif kind == 2:
        lines += [b"Content-Length: %d" % (size + 1 + source.randrange(500))]
    elif kind == 3:
        lines += [b"Transfer-Encoding: " + source.choice([b"chunked, gzip", b"x", b"chunked"]), b"Content-Length: 3"]
    elif kind == 4:
        lines += [b"Transfer-Encoding: chunked"]
        body = source.choice([b"zz\r\n", b"-1\r\n", b"f" * 17 + b"\r\n", b"5\r\nab\r\n0\r\n\r\n", b"1\r\n"]) + body
    elif kind == 5:
        lines += [source.choice([b" folded", b": no name", b"no colon", b"a b: c", b"N\0: v", b"X: \0", b"X" * 70_000])]
    elif kind == 6:
        start = source.choice([b"", b"POST ", b"GET / HTTP/", b"\x16\x03\x01", b"PRI * HTTP/2.0"])
        return start + source.randbytes(200)
    else:
        method = source.choice([b"POST", b"post", b"P\xd6ST", b"SSTP"])
        rest = [path + b" HTTP/9.9", b"\xff\xfe HTTP/1.1", path, path + b" HTTP/1.1 x", b" HTTP/1.1", b"x:y HTTP/1.1"]
        lines[0] = method + b" " + source.choice(rest)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize("which", ["shuffler", "analyzer"])
@few_or_many(150, 3_000)
def test_what_contradicts_itself_or_is_no_http(which: str, cases: int, request: pytest.FixtureRequest) -> None:
    """Broken off before its end it may go without an answer, but never with one that says yes."""
    target: Target = request.getfixturevalue(which)
    source = random.Random(cases)
    taken = target.taken()
    path = target.path + (b"/uploads" if which == "shuffler" else b"/batches/%s?round=1&users=4" % (b"a" * 32))
    with Line(target.server.port) as line:
        for _ in range(cases):
            bad = damaged_bytes(source, fake_upload(target.deployment.task).encode(), within=38)
            sent = lying(source, path, target.deployment.secret.encode(), bad)
            answer = line.ask(sent, last=True)
            assert answer is None or 400 <= answer.status < 500, (answer, sent)
    assert target.taken() == taken
    assert_alive(target)


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c", b"TLS/1.3", b"x"])
def test_a_body_is_never_taken_for_a_request(shuffler: Target, protocol: bytes) -> None:
    """An answer too many, on a connection that a proxy shares between users, would tell a user that they are in."""
    taken = shuffler.taken()
    uploads = shuffler.path + b"/uploads"
    inner = request_of(b"POST", uploads, [], fake_upload(shuffler.deployment.task).encode())
    outer = request_of(b"POST", uploads, [b"Connection: Upgrade", b"Upgrade: " + protocol], inner)
    head = outer.removesuffix(inner)
    with socket.create_connection(("127.0.0.1", shuffler.server.port), timeout=20) as connection:
        connection.sendall(head)
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 4")
        with contextlib.suppress(ConnectionError):
            connection.sendall(inner)
            while piece := connection.recv(4096):
                answer += piece
                assert b" 201 " not in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert shuffler.taken() == taken
    assert_takes_uploads(shuffler)


@few_or_many(300, 20_000)
def test_bad_requests_to_an_analyzer(analyzer: Target, cases: int) -> None:
    source = random.Random(cases)
    taken = int(analyzer.taken())
    with Line(analyzer.server.port) as line:
        for _ in range(cases):
            request = bad_for_an_analyzer(source, analyzer)
            assert_refused(line.ask(request), request)
    assert analyzer.taken() == taken
    assert_alive(analyzer)
    good = f"/tasks/{analyzer.deployment.task.id}/batches/{secrets.token_hex(16)}?round={1000 - taken}&users={USERS}"
    body = bytes(USERS * REPORTS * SEALED_BYTES)
    assert analyzer.server.request("POST", good, body, headers=analyzer.deployment.bearer).status == 201


# Tokens.


@few_or_many(200, 5_000)
def test_tokens_that_are_none(tmp_path: Path, cases: int) -> None:
    """The upload is good each time: only the token is wrong."""
    deployment = Deployment.small(tmp_path, users=10**6)
    write_tokens(5, tmp_path / "tokens", tmp_path / "digests")
    tokens = (tmp_path / "tokens").read_bytes().split()
    digests = (tmp_path / "digests").read_bytes().split()
    source = random.Random(cases)
    with (
        StandInAnalyzer() as nobody,
        deployment.shuffler(nobody.url, "--tokens", str(tmp_path / "digests")) as server,
        Line(server.port) as line,
    ):
        path = f"/tasks/{deployment.task.id}/uploads".encode()
        for _ in range(cases):
            good = source.choice(tokens)
            value = source.choice(
                [
                    b"Token " + damaged_bytes(source, good).translate(None, b"\r\n\0"),
                    b"Token " + source.choice(digests),
                    b"Token " + good[:-1] + bytes([good[-1] ^ 1]),
                    source.choice([b"Bearer ", b"Basic ", b"", b"Token" * 100]) + good,
                    b"Token " + good + b", Token " + good,
                ]
            )
            if not is_allowed(value) or is_token(value, good):
                continue
            lines = [b"Authorization: " + value]
            if source.random() < 0.2:
                lines += [b"Authorization: Token " + good]  # the first one counts
            request = request_of(b"POST", path, lines, fake_upload(deployment.task).encode())
            answer = line.ask(request)
            assert_refused(answer, request)
            assert answer is not None
            assert answer.problem in ("token-missing", "token-unknown")
        assert server.metric("shufflesum_uploads_total") == 0
        assert_takes_uploads(Target(deployment, server), headers={"Authorization": f"Token {tokens[0].decode()}"})


def is_token(value: bytes, good: bytes) -> bool:
    """Whether it is the token after all, in capitals or with spaces between."""
    try:
        return bytes.fromhex(value.decode("ascii").partition(" ")[2]) == bytes.fromhex(good.decode())
    except ValueError:
        return False


def is_allowed(value: bytes) -> bool:
    """Whether HTTP allows this in a header; if not, it is refused before anybody looks at tokens."""
    return all(byte == 9 or 32 <= byte != 127 for byte in value)
