"""One page for a run: question, guarantee, result, assumptions, statement, and the command to repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from shufflesum._format import counted, percent, upwards
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate
from shufflesum.pages.pieces import estimate_svg, estimate_table, html_table, plan_words, question, statement_html
from shufflesum.pages.render import page, picture, render
from shufflesum.plots import rendered_svg, rounds_chart

if TYPE_CHECKING:
    from markupsafe import Markup


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
    notes: Sequence[str] = (),
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
        notes=[*notes, *dict.fromkeys(str(warning) for each in estimates for warning in each.warnings)],
        over_time=_over_time(estimates, level) if named and not nothing_drawn else None,
        results=[
            {
                "heading": f"Round {estimate.round_number}, {counted(estimate.users, 'user')}" if named else "",
                "broken": estimate.broken,
                "picture": None if nothing_drawn or estimate is not newest else _picture(estimate, level),
                "table": html_table(estimate_table(estimate, level)),
            }
            for estimate in reversed(estimates)
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
