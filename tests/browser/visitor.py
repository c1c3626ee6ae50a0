"""A visitor's browser: Debian's Chromium, with an eye on what it complains about and whom it asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.browser.node import CLIENT
from tests.browser.pages import chromium

__all__ = ["AXE", "Visitor", "visiting"]

AXE = CLIENT / "node_modules" / "axe-core" / "axe.min.js"


class Visitor:
    """A page, what its console said, and which hosts were asked for anything."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def serious(self) -> list[str]:
        """What axe finds that bars people from the page: serious and critical findings, each with its place.

        It is handed to the page past its content security policy, which would not let it in.
        """
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {node['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    def reached_by_keyboard(self) -> tuple[int, int]:
        """How many controls the Tab key reaches, and how many there are; radio buttons of one name are one."""
        total: int = self.page.evaluate(
            """() => {
              const kinds = "a[href], button:enabled, input, select, summary, [tabindex='0']";
              const all = [...document.querySelectorAll(kinds)];
              const shown = all.filter((one) => one.checkVisibility());
              return new Set(shown.map((one) => (one.type === "radio" ? one.name : one))).size;
            }"""
        )
        self.page.evaluate("() => { document.activeElement.blur(); window.reached = new Set(); }")
        for _ in range(2 * total + 5):
            self.page.keyboard.press("Tab")
            self.page.evaluate(
                """() => {
                  const one = document.activeElement;
                  if (one !== document.body) window.reached.add(one.type === "radio" ? one.name : one);
                }"""
            )
        reached: int = self.page.evaluate("() => window.reached.size")
        return reached, total


@contextmanager
def visiting(**context: Any) -> Iterator[Visitor]:
    """A browser with an empty profile, for one visit."""
    with chromium() as browser:
        yield Visitor(browser.new_context(**context).new_page())
