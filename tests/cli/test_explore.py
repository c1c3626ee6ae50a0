from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx
import pytest
from tests.refusals import refusal

from shufflesum.errors import MissingExtraError
from shufflesum.service import require_explorer, require_service

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("library", ["uvicorn", "altair", "markdown_it"])
def test_what_the_page_needs_is_said_to_be_what_it_needs(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with refusal("missing-extra", "explorer", library, "shufflesum[plots]", error=MissingExtraError):
        require_explorer()


def test_the_page_needs_less_than_servers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    require_explorer()
    with refusal("missing-extra", "servers", "shufflesum[service]"):
        require_service()


def test_what_the_readme_installs_is_all_that_the_page_needs() -> None:
    (extras,) = set(re.findall(r"pip install '\.\[([a-z,]+)\]'", (ROOT / "README.md").read_text()))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought, waiting = set[str](), [f"shufflesum[{extras}]", *project["dependencies"]]
    while waiting:
        name, own = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", waiting.pop()).groups()  # type: ignore[union-attr]
        brought.add(name)
        if name == "shufflesum":
            waiting += [each for extra in own.split(",") for each in project["optional-dependencies"][extra]]
    assert brought >= {"starlette", "uvicorn", "jinja2", "markdown-it-py", "altair", "vl-convert-python"}
    others = {"httpx", "httptools", "prometheus_client", "structlog", "psycopg", "sqlalchemy", "uvloop"}
    assert not brought & others
    blocked = f"import sys\nfor name in {sorted(others)}: sys.modules[name] = None\n"
    program = blocked + "import uvicorn, shufflesum.cli.plan\nfrom shufflesum.explorer import *"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_command_prints_an_address_that_works_and_ends_by_an_interrupt(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", "from shufflesum.cli import main; main()", "explore", "--no-browser"],
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        end = time.monotonic() + 60
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", out.read_text())):
            assert process.poll() is None, out.read_text()
            assert time.monotonic() < end
            time.sleep(0.1)
        while True:
            try:
                answer = httpx.get(found[0], trust_env=False, timeout=30)
                break
            except httpx.ConnectError:
                assert time.monotonic() < end
                time.sleep(0.1)
        assert answer.status_code == 200
        assert "Plan a collection" in answer.text
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)
        assert "Traceback" not in out.read_text()
    finally:
        process.kill()
        process.wait()
