"""Templates to HTML: all that is not markup of ours is shown as text, and nothing asks another host for anything.

Pages have no scripts. Their style is inside them or, for a server with a strict content security policy, linked.
"""

from __future__ import annotations

import base64
import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shufflesum._format import counted
from shufflesum.errors import MissingExtraError
from shufflesum.plots.look import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markdown_it import MarkdownIt
    from markupsafe import Markup


_TEMPLATES = Path(__file__).parent / "templates"


def require_pages() -> None:
    """Raise MissingExtraError unless pages can be made; call it before long work."""
    if any(importlib.util.find_spec(library) is None for library in ("jinja2", "markdown_it")):
        raise MissingExtraError(
            "missing-extra", "pages need jinja2 and markdown-it-py: pip install 'shufflesum[plots]'"
        )


def render(template: str | Path, **values: object) -> Markup:
    """A template of this package, or of a file, with these values, which are escaped unless they are markup already."""
    from markupsafe import Markup

    if isinstance(template, Path):
        made = _environment().from_string(template.read_text(encoding="utf-8"))
    else:
        made = _environment().get_template(template)
    return Markup(made.render(values))


def page(title: str, body: Markup, *, stylesheet: str | None = None) -> str:
    """A whole page; its style is part of it unless the address of a `stylesheet` is given."""
    return str(render("page.html", title=title, body=body, style=_style(), stylesheet=stylesheet))


def asset(name: str) -> str:
    """The style or a script of ours, for a server to hand out."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def stylesheet() -> str:
    """The style of every page."""
    return asset("style.css")


def picture(svg: str, alt: str, caption: str = "", *, id: str = "") -> Markup:
    """A picture inside the page; as an image it can neither run nor fetch anything, whatever is written in it."""
    source = base64.b64encode(svg.encode()).decode("ascii")
    coloured = "<linearGradient" in svg  # colours stand for numbers, and stay as they are in the dark
    return render("picture.html", source=source, alt=alt, caption=caption, id=id, coloured=coloured)


def markdown(text: str) -> Markup:
    """Headings, lists, bold and paragraphs of our own Markdown; no links and no images, so that names stay names."""
    from markupsafe import Markup

    return Markup(_markdown().render(_visible(text)))


@cache
def _environment() -> Environment:
    require_pages()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["counted"] = counted
    return environment


@cache
def _markdown() -> MarkdownIt:
    require_pages()
    from markdown_it import MarkdownIt

    return MarkdownIt("zero").enable(["heading", "list", "emphasis", "balance_pairs", "fragments_join"])


@cache
def _style() -> Markup:
    from markupsafe import Markup

    return Markup(stylesheet())


def _visible(value: Any) -> Any:
    """Text with its invisible commands written out, such as \\u202e; anything else as it is."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return visible(value)
