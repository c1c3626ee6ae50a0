"""A server that answers everybody as somebody would who wants to fill their memory, or to keep them for ever."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Iterator
from functools import cache

__all__ = ["HUGE", "HostileServer"]

HUGE = 1 << 30


@cache
def _bomb() -> bytes:
    """A gibibyte of zeros, compressed to one megabyte."""
    piece = gzip.compress(bytes(1 << 20), 9)
    return piece * (HUGE >> 20)  # members one after another are one file


class HostileServer:
    """Reads a request to its end, then answers with `status` as `manner` says.

    "compressed" and "endless" are a gibibyte of zeros, the first in a megabyte; "dripping head" and "dripping body"
    send a byte now and then, for ever; "nested" is a document of 60,000 lists in each other.
    """

    def __init__(self, manner: str, status: int = 201) -> None:
        self.manner, self.status = manner, status
        self.sent = 0
        self._over = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._over:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._read(connection)
                for piece in self._pieces():
                    connection.sendall(piece)
                    self.sent += len(piece)
                    if self._over:
                        return
            except OSError:
                pass  # whoever asked has gone

    def _read(self, connection: socket.socket) -> None:
        came = b""
        while b"\r\n\r\n" not in came:
            came += self._received(connection)
        head, _, body = came.partition(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        left = (int(lengths[0]) if lengths else 0) - len(body)
        while left > 0:
            left -= len(self._received(connection))

    def _received(self, connection: socket.socket) -> bytes:
        """What came; from whoever has closed comes nothing at once, for ever."""
        piece = connection.recv(1 << 16)
        if not piece:
            raise ConnectionAbortedError
        return piece

    def _pieces(self) -> Iterator[bytes]:
        head = f"HTTP/1.1 {self.status} Yes\r\nContent-Type: application/json\r\n".encode()
        if self.manner == "compressed":
            yield head + f"Content-Encoding: gzip\r\nContent-Length: {len(_bomb())}\r\n\r\n".encode()
            yield _bomb()
        elif self.manner == "endless":
            yield head + b"Connection: close\r\n\r\n"
            for _ in range(HUGE >> 16):
                yield bytes(1 << 16)
        elif self.manner == "nested":
            body = b"[" * 60_000
            yield head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        else:
            yield head + (b"" if self.manner == "dripping head" else f"Content-Length: {HUGE}\r\n\r\n".encode())
            while True:
                yield b"a"
                time.sleep(0.02)

    def __enter__(self) -> HostileServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
