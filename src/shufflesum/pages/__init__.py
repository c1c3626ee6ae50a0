"""Every HTML page: one style, templates that escape, and pieces that reports and servers put together."""

from __future__ import annotations

from shufflesum.pages.pieces import (
    Column,
    Table,
    estimate_svg,
    estimate_table,
    html_table,
    plan_words,
    question,
    statement_html,
)
from shufflesum.pages.render import asset, markdown, page, picture, render, require_pages, stylesheet
from shufflesum.pages.report import report_page
from shufflesum.pages.simulation import simulation_page

__all__ = [
    "Column",
    "Table",
    "asset",
    "estimate_svg",
    "estimate_table",
    "html_table",
    "markdown",
    "page",
    "picture",
    "plan_words",
    "question",
    "render",
    "report_page",
    "require_pages",
    "simulation_page",
    "statement_html",
    "stylesheet",
]
