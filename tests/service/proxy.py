"""A loopback proxy that loses what passes through it: whole requests, parts of them, or their answers."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable
from typing import Self

__all__ = ["LossyProxy"]

_PIECE = 1 << 16


class LossyProxy:
    """Forwards connections to a port of this machine; each is damaged with probability `loss`. For a `with` block.

    A damaged connection is closed before anything passes, in the middle of a request, or when an answer comes back:
    then the server has done its work and nobody hears of it.
    """

    def __init__(self, target: Callable[[], int], *, loss: float, seed: int) -> None:
        self.loss = loss
        self.lost: dict[str, int] = {"connection": 0, "request": 0, "answer": 0}
        self._target = target
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopped = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def faults(self) -> int:
        return sum(self.lost.values())

    def _accept(self) -> None:
        while not self._stopped:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            kind = self._random.choice(list(self.lost)) if self._random.random() < self.loss else None
            room = self._random.randrange(3000 if kind == "request" else 300)
            threading.Thread(target=self._serve, args=(client, kind, room), daemon=True).start()

    def _serve(self, client: socket.socket, kind: str | None, room: int) -> None:
        with client:
            if kind == "connection":
                self.lost[kind] += 1
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target()), timeout=5)
            except OSError:
                return
            server.settimeout(None)
            with server:
                back = threading.Thread(target=self._pump, args=(server, client, "answer", kind, room), daemon=True)
                back.start()
                self._pump(client, server, "request", kind, room)
                back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, what: str, kind: str | None, room: int) -> None:
        """Pass bytes on until the end; where these are to be lost, until `room` of them have passed."""
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                self.passing(source, what, piece)
                if what == kind and len(piece) > room:
                    self.lost[what] += 1
                    sink.sendall(piece[:room])
                    break
                room -= len(piece)
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def passing(self, source: socket.socket, what: str, piece: bytes) -> None:
        """For those who want to see what passes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
