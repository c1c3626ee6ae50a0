"""What a server does with requests that do not end, do not come, or are none."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from pathlib import Path

import pytest
from tests.service.http.raw_connections import Target
from tests.service.servers import Deployment, fake_upload

from shufflesum.service.http import app
from shufflesum.service.http import server as server_module
from shufflesum.service.http.messages import parse_problem


def test_a_body_without_an_end_is_cut_off_while_it_streams(shuffler: Target) -> None:
    deployment, server = shuffler.deployment, shuffler.server
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(
            f"POST /tasks/{deployment.task.id}/uploads HTTP/1.1\r\nHost: x\r\n".encode()
            + b"Transfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(b"1000\r\n" + bytes(0x1000) + b"\r\n")  # and the body goes on
        assert b" 413 " in connection.recv(4096)


def test_a_client_that_leaves_halfway_harms_nobody(shuffler: Target) -> None:
    deployment, server = shuffler.deployment, shuffler.server
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(
                f"POST /tasks/{deployment.task.id}/uploads HTTP/1.1\r\nHost: x\r\n".encode()
                + b"Content-Length: 162\r\n\r\nab"
            )
    assert server.upload(fake_upload(deployment.task)).status == 201


def test_headers_without_an_end_are_cut_off(shuffler: Target) -> None:
    server = shuffler.server
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                connection.sendall(bytes([97]) * 1_000_000)
            raise AssertionError("the server took 64 MB of headers")
    assert server.request("GET", "/healthz").status == 200


def test_many_requests_at_once_are_answered_one_after_another(shuffler: Target) -> None:
    server = shuffler.server
    count = 4000
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        sender = threading.Thread(
            target=connection.sendall, args=(b"GET /healthz HTTP/1.1\r\nHost: loopback\r\n\r\n" * count,)
        )
        sender.start()
        answers = b""
        while answers.count(b"HTTP/1.1 ") < count or not answers.endswith(b"ok\n"):
            answers += (piece := connection.recv(1 << 20))
            assert piece
        sender.join()
    assert answers.count(b"HTTP/1.1 200 OK") == count


def test_what_is_no_http_is_counted_among_the_refusals(shuffler: Target) -> None:
    server = shuffler.server
    before = server.metric("shufflesum_refused_total")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"HELLO\r\n\r\n")
        assert b" 400 " in connection.recv(4096)
    assert server.metric("shufflesum_refused_total") == before + 1


@pytest.mark.parametrize("kind", ["one", "many"])
def test_trailers_without_an_end_are_cut_off(shuffler: Target, kind: str) -> None:
    deployment, server = shuffler.deployment, shuffler.server
    head = f"POST /tasks/{deployment.task.id}/uploads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    endless = b"a" * 1_000_000 if kind == "one" else b"a: b\r\n" * 150_000
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode() + b"1\r\nx\r\n0\r\nX: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                connection.sendall(endless)
            raise AssertionError("the server took 64 MB of trailers")
    assert server.request("GET", "/healthz").status == 200


def test_a_body_may_come_in_chunks_with_trailers(shuffler: Target) -> None:
    deployment, server = shuffler.deployment, shuffler.server
    body = fake_upload(deployment.task).encode()
    head = f"POST /tasks/{deployment.task.id}/uploads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for _ in range(2):
            connection.sendall(head.encode() + chunks + b"0\r\nA: b\r\n\r\n")
            assert _status(connection) in (201, 409)


def _hurry() -> None:
    server_module._HEAD_SECONDS = 0.3
    app._BODY_SECONDS = 0.5


def _status(connection: socket.socket) -> int:
    """Read one whole answer."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def test_what_begins_no_request_keeps_no_connection_open(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path)
    refused_post = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n"
    with deployment.shuffler("http://127.0.0.1:1", prepare=_hurry) as server:
        for start, rest in (
            (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n"),
            (refused_post, b"rest"),
            (refused_post, bytes(300_000)),
        ):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                connection.sendall(start)
                assert _status(connection) in (200, 404)
                with contextlib.suppress(ConnectionError):
                    connection.sendall(rest)
                    assert connection.recv(4096) == b""  # closed, without another answer


def test_a_body_that_does_not_come_is_refused_and_one_in_pieces_is_taken(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path)
    path = f"/tasks/{deployment.task.id}/uploads"
    body = fake_upload(deployment.task).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with deployment.shuffler("http://127.0.0.1:1", prepare=_hurry) as server:
        for sent in (head, head + body[:50]):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                connection.sendall(sent)
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                assert (answer.status, parse_problem(answer.read())[0]) == (408, "too-slow")
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            for piece in (head, body[:50], body[50:]):
                connection.sendall(piece)
                time.sleep(0.1)
            assert _status(connection) == 201


def test_a_connection_serves_on_after_what_begins_no_request(shuffler: Target) -> None:
    server = shuffler.server
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for _ in range(3):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert _status(connection) == 200
            connection.sendall(b"\r\n")


@pytest.mark.parametrize("line", ["CONNECT a:1", "GET ?a", "OPTIONS *", "GET /healthz HTTP/9.9", "PRI * HTTP/2.0"])
def test_strange_requests_are_refused_with_a_problem(shuffler: Target, line: str) -> None:
    server = shuffler.server
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        protocol = "" if "HTTP" in line else " HTTP/1.1"
        connection.sendall(f"{line}{protocol}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4")
    assert b"application/problem+json" in head
    assert parse_problem(body)[0] in ("bad-request", "not-found")
