"""Every HTML page: templates that escape, one style, and the pieces of reports and servers' pages.

All that is not markup of ours is shown as text, and nothing asks another host for anything.

Pages have no scripts. Their style is inside them or, for a server with a strict content security policy, linked.
"""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from shufflesum import statement
from shufflesum._format import counted, downwards, evenly, number, percent, upwards, visible
from shufflesum.errors import MissingExtraError, ParameterError
from shufflesum.estimate import BaseEstimate
from shufflesum.plans import Plan
from shufflesum.plots import estimate_chart, rendered_svg, rounds_chart
from shufflesum.simulation import Simulation, found

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


# ---- What pages are put together from: a plan in words, and an estimate of any kind as a table and as a picture.


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


# ---- One page for a run: question, guarantee, result, assumptions, statement, and the command to repeat it.


_SENT = "The same reports give the same estimate: repeating it costs no privacy."
_DRAWN = (
    "Repeating it draws new noise. A second result is one more release about the same users, and the guarantees add "
    "up: plan for it with rounds."
)


def report_page(
    estimates: Sequence[BaseEstimate],
    *,
    title: str,
    made: datetime,
    command: str = "",
    fresh_noise: bool = False,
    level: float = 0.95,
) -> str:
    """A page that holds all it shows; of several rounds, oldest first, the newest is drawn, and all of them over time.

    `command` is shown as it is: leave secrets out of it. `fresh_noise` tells whether repeating it draws noise again.
    """
    if not estimates:
        raise ParameterError("missing-argument", "there is no estimate to report; give at least one")
    newest, plan = estimates[-1], estimates[-1].plan
    named = len(estimates) > 1
    nothing_drawn = newest.prompt is not None
    body = render(
        "report.html",
        title=title,
        question=question(plan),
        fresh_noise=fresh_noise,
        broken=newest.broken,
        adjustment=newest.adjustment,
        figures=_figures(newest),
        notes=list(dict.fromkeys(str(warning) for each in estimates for warning in each.warnings)),
        over_time=_over_time(estimates, level) if named and not nothing_drawn else None,
        results=[
            {
                "heading": f"Round {estimate.round_number}, {counted(estimate.users, 'user')}"
                if named
                else shown.heading,
                "broken": estimate.broken,
                "picture": None if nothing_drawn or estimate is not newest else _picture(shown, level),
                "table": html_table(estimate_table(shown, level)),
            }
            for estimate in reversed(estimates)
            for shown in (estimate, *estimate.beside, *(estimate.details if estimate is newest else ()))
        ],
        level=percent(level),
        words=plan_words(plan, in_process=fresh_noise),
        command=command,
        again=_DRAWN if fresh_noise else _SENT,
        statement=None if plan.accountant == "none" else statement_html(plan, in_process=fresh_noise),
        version=version("shufflesum"),
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        plan=plan.id,
    )
    return page(f"{title} (shufflesum)", body)


def _figures(estimate: BaseEstimate) -> list[tuple[str, str]]:
    """What a reader looks for first."""
    plan = estimate.plan
    users = (f"{estimate.users:,}", "users")
    if not estimate.guarantee_holds or plan.accountant == "none":
        return [users, ("none", "guarantee")]
    rounds = "one round" if plan.rounds == 1 else f"all {plan.rounds:,} rounds together"
    return [users, (upwards(plan.epsilon), f"epsilon, {rounds}"), (upwards(plan.delta), "delta")]


def _picture(estimate: BaseEstimate, level: float) -> Markup:
    later = f" of round {estimate.round_number}" if estimate.round_number > 1 else ""
    words = f"Private estimate{later} with its {percent(level)} % intervals"
    return picture(estimate_svg(estimate, title="", level=level), f"{words}; the table below has its numbers")


def _over_time(estimates: Sequence[BaseEstimate], level: float) -> Markup:
    chart = rounds_chart(estimates, title="Estimates by round", level=level)
    return picture(rendered_svg(chart), "Estimates by round, with their intervals")


# ---- One page for a simulation: the plan, the error to expect beside the observed one, and one try with the truth.


def simulation_page(simulation: Simulation, *, title: str, made: datetime, command: str = "") -> str:
    """A page that holds all it shows; `command` is shown as it is."""
    plan, level = simulation.plan, simulation.level
    svg = estimate_svg(simulation.estimate, title="", truth=simulation.truth, level=level)
    figures = [(what[0].upper() + what[1:], value) for what, value in found(simulation).items()]
    body = render(
        "simulation.html",
        title=title,
        question=question(plan),
        data=f"{counted(simulation.users, 'user')}, {simulation.data}",
        found=html_table(Table([Column("What", words=True), Column("Found", words=True)], figures)),
        repeats=f"{simulation.repeats:,}",
        picture=picture(svg, "The estimate of the first try with its intervals, and the truth"),
        table=html_table(estimate_table(simulation.estimate, level)),
        each=html_table(_by_entry(simulation)),
        words=plan_words(plan),
        command=command,
        again="Noise is drawn anew each time; made-up data is the same for the same seed.",
        statement=None if plan.accountant == "none" else statement_html(plan),
        version=version("shufflesum"),
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        plan=plan.id,
    )
    return page(f"{title} (shufflesum)", body)


def _by_entry(simulation: Simulation, most: int = 100) -> Table:
    """Truth, errors and intervals of each entry, of many the evenly spaced ones."""
    truth = simulation.truth.reshape(-1)
    places = evenly(truth.size, most)
    rows = []
    for name, place in zip(simulation.estimate.to_table().labels(places), places, strict=True):
        said, seen = simulation.predicted_each[place], simulation.observed_each[place]
        held = simulation.held_each[place]
        rows.append(
            [
                name,
                number(truth[place], said),
                number(said, said),
                number(seen, said),
                "" if np.isnan(held) else f"{downwards(100 * float(held), 4)} %",
            ]
        )
    heads = [Column("Entry", words=True), *map(Column, ("Truth", "Error bars say", "Observed", "Intervals that held"))]
    note = "" if len(rows) == truth.size else f"{len(rows)} of {truth.size:,} entries are shown, evenly spaced."
    return Table(heads, rows, note)
