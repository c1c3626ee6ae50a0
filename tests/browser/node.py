"""The browser client in Node, asked questions."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CLIENT", "Node", "needs_node"]

CLIENT = Path(__file__).parents[2] / "clients" / "browser"
_HARNESS = Path(__file__).with_name("harness.mjs")


def _version() -> int:
    found = shutil.which("node")
    if found is None:
        return 0
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    return int(told.removeprefix("v").split(".")[0])


needs_node = pytest.mark.skipif(_version() < 20, reason="Node 20 or newer is not installed: make setup-browser")


class Node:
    """`harness.mjs` as a process; use it in a `with` block."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", "--no-warnings", str(_HARNESS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, command: str, **rest: Any) -> Any:
        """The answer; an AssertionError where the client refused."""
        told = self.tell(command, **rest)
        assert "answer" in told, told
        return told["answer"]

    def problem(self, command: str, **rest: Any) -> str:
        """The name of the refusal."""
        told = self.tell(command, **rest)
        assert "problem" in told, told
        problem: str = told["problem"]
        return problem

    def tell(self, command: str, **rest: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **rest}) + "\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
