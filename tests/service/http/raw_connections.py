"""Connections that say exactly what they are told to, and what a server must do with it."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import Any

from tests.service.http_requests import Answer
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, fake_upload

__all__ = ["Line", "Target", "assert_alive", "assert_refused", "assert_takes_uploads"]


@dataclass(frozen=True)
class Target:
    """A running server and the task it serves."""

    deployment: Deployment
    server: ServerProcess

    @property
    def path(self) -> bytes:
        return f"/tasks/{self.deployment.task.id}".encode()

    def taken(self) -> float:
        """What it has ever said yes to: uploads or batches."""
        return self.server.metric("shufflesum_uploads_total") + self.server.metric("shufflesum_batches_total")


class Line:
    """A connection that says exactly what it is told to, and is made anew when the server has ended it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, request: bytes, *, last: bool = False) -> Answer | None:
        """The answer, if any; `last` says that nothing else will be sent, so that nobody waits for it."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            self._file = self._socket.makefile("rb")
        with contextlib.suppress(ConnectionError):  # refused while it was still being sent
            self._socket.sendall(request)
            if last:
                self._socket.shutdown(socket.SHUT_WR)
        try:
            answer = self._read(bodiless=request.startswith(b"HEAD "))
        except ConnectionError:
            answer = None
        if last or answer is None or answer.headers.get("connection") == "close":
            self.close()
        return answer

    def _read(self, *, bodiless: bool) -> Answer | None:
        first = self._file.readline()
        if not first:
            return None
        status = int(first.split(b" ")[1])
        headers = {}
        while (line := self._file.readline().rstrip(b"\r\n")) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if status == 100:
            return self._read(bodiless=bodiless)
        size = 0 if bodiless else int(headers.get("content-length", "0"))
        return Answer(status, headers, self._file.read(size))

    def close(self) -> None:
        if self._socket is not None:
            self._file.close()
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def assert_refused(answer: Answer | None, request: bytes) -> None:
    assert answer is not None, request
    assert 400 <= answer.status < 500, (answer, request)
    if not request.startswith(b"HEAD "):
        assert answer.headers["content-type"] == "application/problem+json", (answer, request)
        assert answer.problem is not None, (answer, request)


def assert_alive(target: Target) -> None:
    """The server still does its work."""
    assert target.server.request("GET", "/readyz").status == 200
    assert target.server.process is not None
    assert target.server.process.poll() is None
    assert not [event for event in target.server.events() if event["level"] == "error"]


def assert_takes_uploads(target: Target, **rest: Any) -> None:
    assert_alive(target)
    assert target.server.upload(fake_upload(target.deployment.task), **rest).status == 201
