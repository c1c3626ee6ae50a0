"""What pages are put together from: a plan in words, and an estimate of any kind as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from shufflesum import statement
from shufflesum._format import counted
from shufflesum.estimate import BaseEstimate
from shufflesum.pages.render import markdown, render
from shufflesum.plans import Plan
from shufflesum.plots import estimate_chart, rendered_svg

if TYPE_CHECKING:
    from markupsafe import Markup


_MOST = 100  # rows
_LONGEST = 300  # letters of a cell
_LONGEST_QUESTION = 2000  # letters; labels can be long, and the statement has them
_NOTHING = "Nothing: one process holds all data and draws the noise."


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and whether words stand below it or numbers."""

    title: str
    words: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are shown, and a sentence on what is not."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""


def html_table(table: Table, *, tall: bool = False, what: str = "Table") -> Markup:
    """The table as HTML; a `tall` one scrolls in a box of its own. `what` it is says a screen reader."""
    rows = [[_short(cell) for cell in row] for row in table.rows]
    return render("table.html", table=Table(table.columns, rows, table.note), tall=tall, what=what)


def _short(cell: str) -> str:
    return cell if len(cell) <= _LONGEST else f"{cell[:_LONGEST]}… ({len(cell):,} letters)"


def estimate_table(estimate: BaseEstimate, level: float = 0.95, most: int = _MOST) -> Table:
    """Value, standard error and interval of each entry, of `most` entries at most.

    Of many means evenly spaced ones are shown, of many counts and groups the largest; the note says so.
    """
    if estimate.prompt is not None:
        return Table([], [], f"{estimate.prompt[:1].upper()}{estimate.prompt[1:]}.")
    found = estimate.to_table(level)
    places = found.some(most)
    heads = [Column(head[:1].upper() + head[1:], words=head in ("group", found.entry)) for head in found.heads()]
    return Table(heads, found.cells(places), found.left_out(places))


def estimate_svg(
    estimate: BaseEstimate, *, title: str, subtitle: str = "", truth: ArrayLike | None = None, level: float = 0.95
) -> str:
    """Means, counts, groups or words with their intervals; refused for words before any are named."""
    return rendered_svg(estimate_chart(estimate, title=title, subtitle=subtitle, truth=truth, level=level))


def question(plan: Plan) -> str:
    """What is asked, as a sentence."""
    wording = plan.domain.wording
    asked = f"{_capital(_short_question(wording.collected()))}, from at least {counted(plan.users, 'user')}."
    return f"{asked} {_short_question(wording.bounds())}".rstrip()


def plan_words(plan: Plan, *, in_process: bool = False) -> Markup:
    """Question, what is sent, guarantee and assumptions, as a list of definitions; `in_process` as for a statement."""
    none = plan.accountant == "none"
    alone = in_process or plan.noise_by == "curator"
    return render(
        "plan.html",
        question=question(plan),
        sent=_NOTHING if alone else f"{_capital(plan.mechanism.describe(plan.encoding))}.",
        guaranteed=None if none else markdown(statement.guaranteed(plan)),
        reveals=None if none else markdown(statement.reveals(plan, in_process=in_process)),
        assumed=markdown(statement.assumed(plan, in_process=in_process)),
    )


def statement_html(plan: Plan, *, in_process: bool = False) -> Markup:
    """The privacy statement without its title; the plan's claim is computed again first."""
    _, _, text = statement.statement(plan, in_process=in_process).partition("\n")
    return markdown(text.replace("\n## ", "\n### "))


def _short_question(text: str) -> str:
    return text if len(text) <= _LONGEST_QUESTION else f"{text[:_LONGEST_QUESTION]}… (cut off)"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
