"""What a page is made of, and names that would be more than text if they could."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["HOSTILE", "Elements"]

HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=https://example.org/x.png onerror=alert(1)>",
    "[a](https://example.org) ![b](https://example.org/b.png) <https://example.org>",
    "\u202eright to left\u2066",
    "&lt;already&gt; \"quoted' {{ 7 * 7 }} {% raw %}",
    "w" * 10_000,
]


class Elements(HTMLParser):
    """The tags and addresses of a page, as a browser would find them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_data(self, data: str) -> None:
        self.text += data
