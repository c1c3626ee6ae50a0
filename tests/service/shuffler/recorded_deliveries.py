"""What reaches the analyzer's address: connections, heads of requests, whole batches."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.service.servers import Received

__all__ = ["Recorder", "named"]


class Recorder:
    """Stands where the analyzer would and keeps whatever comes in: connections, heads of requests, whole batches."""

    def __init__(self) -> None:
        self.connections = 0
        self.heads: list[str] = []
        self.batches: list[Received] = []
        self.fault: int | None = None  # what becomes of the next batch: a status, or 0 for no answer at all
        self._server = self._listen()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _listen(self) -> ThreadingHTTPServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.heads.append(self.path)
                size = int(self.headers["Content-Length"])
                body = self.rfile.read(size)
                self.close_connection = True
                if len(body) == size:
                    outer._take(self, body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def verify_request(self, *_: object) -> bool:
                outer.connections += 1
                return True

            def handle_error(self, *_: object) -> None:
                """A shuffler that was killed breaks off."""

        return Server(("127.0.0.1", 0), Handler)

    def _take(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        batch_id, round_number, users = named(handler.path)
        self.batches.append(Received(batch_id, round_number, users, body, handler.headers["Authorization"]))
        status, self.fault = (201 if self.fault is None else self.fault), None
        if status:
            taken = json.dumps({"batch": batch_id, "answer": "counted"}).encode() if status == 201 else b""
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(taken)))
            handler.end_headers()
            handler.wfile.write(taken)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def named(path: str) -> tuple[str, int, int]:
    """What a batch's address says: its id, round and users."""
    parts = urlsplit(path)
    query = parse_qs(parts.query)
    return parts.path.rpartition("/")[2], int(query["round"][0]), int(query["users"][0])
