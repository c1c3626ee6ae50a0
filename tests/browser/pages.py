"""A page's own host on this machine, and a real Chromium that visits it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.browser.node import CLIENT

__all__ = ["CHROMIUM", "chromium", "host"]

CHROMIUM = shutil.which("chromium")
_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_KINDS = {"js": "text/javascript", "html": "text/html; charset=utf-8", "json": "application/json"}


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_OPTIONS)
        yield browser
        browser.close()


@contextmanager
def host(shuffler: str, **files: str) -> Iterator[str]:
    """The origin of a host that serves these files and the browser client, under the policy of docs/browser.md."""
    page = (CLIENT.parents[1] / "docs" / "browser.md").read_text()
    policy = page.split("Content-Security-Policy: ")[1].split("```")[0].replace("\n", " ").strip()
    assert "https://shuffler.example.org" in policy

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = urlsplit(self.path).path.removeprefix("/")
            found = files.get(name.replace(".", "_"))
            if found is None and (CLIENT / name).is_file():
                found = (CLIENT / name).read_text()
            body = (found or "").encode()
            self.send_response(204 if found is None else 200)
            self.send_header("Content-Type", _KINDS.get(name.rpartition(".")[2], "text/plain"))
            self.send_header("Content-Security-Policy", policy.replace("https://shuffler.example.org", shuffler))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if found is not None:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
