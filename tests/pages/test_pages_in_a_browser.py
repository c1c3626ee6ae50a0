"""Report and simulation pages in a real browser: what they ask for, and whether a label can run anything."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from markupsafe import Markup
from tests.pages.elements import HOSTILE

import shufflesum as ss
from shufflesum.pages import page, report_page, simulation_page
from shufflesum.plots import estimate_chart, save_chart
from shufflesum.simulation import simulate

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=4000"),
)
MADE = datetime(2026, 1, 1, tzinfo=UTC)


class Proxy:
    """Takes every connection of a browser to any host, remembers its first line, and answers nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(2)
                try:
                    self.asked.append(connection.recv(200).decode(errors="replace").split("\r\n", maxsplit=1)[0])
                except OSError:
                    self.asked.append("nothing")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def opened(file: Path, folder: Path) -> tuple[str, list[str]]:
    """The page as the browser has it in the end, and what it asked hosts for, example.org's among them."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    proxy = Proxy()
    try:
        done = subprocess.run(
            [
                CHROMIUM,
                *FLAGS,
                f"--proxy-server=http://127.0.0.1:{proxy.port}",
                "--proxy-bypass-list=<-loopback>",
                f"--user-data-dir={folder / 'profile'}",
                "--dump-dom",
                file.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        proxy.close()
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in proxy.asked if "example.org" in line]


def test_hostile_labels_run_nothing_and_ask_nobody(tmp_path: Path) -> None:
    labels = [*HOSTILE, "<script>document.title = 'changed'</script>", "</script><script>document.title = 'changed'//"]
    held = [labels[i % len(labels)] for i in range(1000)]
    estimate = ss.aggregate(held, domain=ss.Categories(labels), epsilon=1.0, delta=1e-6)
    tried = simulate(estimate.plan, held, repeats=2)
    file = tmp_path / "page.html"
    file.write_text(report_page([estimate], title=labels[-1], made=MADE, command=labels[-1]), encoding="utf-8")
    dom, asked = opened(file, tmp_path)
    assert asked == []
    assert "<title>changed" not in dom
    assert "&lt;script&gt;document.title" in dom
    file.write_text(simulation_page(tried, title=labels[-2], made=MADE, command=labels[-1]), encoding="utf-8")
    dom, asked = opened(file, tmp_path)
    assert asked == []
    assert "<title>changed" not in dom
    save_chart(estimate_chart(estimate, title=labels[-1]), file)
    dom, asked = opened(file, tmp_path)
    assert asked == []
    assert "<title>changed" not in dom
    assert "<svg" in dom or "<canvas" in dom


def test_a_page_that_asks_or_runs_would_be_noticed(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    body = '<img src="http://example.org/x.png"><script>document.title = "changed"</script>'
    file.write_text(page("t", Markup(body)), encoding="utf-8")
    dom, asked = opened(file, tmp_path)
    assert asked
    assert "<title>changed" in dom
