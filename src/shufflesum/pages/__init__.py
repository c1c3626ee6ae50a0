"""Every HTML page: one style, templates that escape, and pieces that reports and servers put together."""

from __future__ import annotations

from shufflesum.pages.pictures import estimate_svg
from shufflesum.pages.plan import plan_words, question, statement_html
from shufflesum.pages.render import asset, markdown, page, picture, render, require_pages, stylesheet
from shufflesum.pages.report import report_page
from shufflesum.pages.simulation import simulation_page
from shufflesum.pages.tables import Column, Table, estimate_table, table_html

__all__ = [
    "Column",
    "Table",
    "asset",
    "estimate_svg",
    "estimate_table",
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
    "table_html",
]
