"""A plan in words: what is asked, what is guaranteed, what was assumed; and the whole statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shufflesum import statement
from shufflesum.pages.render import markdown, render
from shufflesum.plans import Plan

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["plan_words", "question", "statement_html"]

_ONE_PROCESS = "Nothing: one process holds all data, and does as if each user sent "
_LONGEST = 2000  # letters of a question; labels can be long, and the statement has them


def question(plan: Plan) -> str:
    """What is asked, as a sentence."""
    asked = f"{_capital(_short(statement.collected(plan.domain)))}, from at least {plan.users:,} users."
    return asked + _short(statement.bounds_in_words(plan.domain))


def plan_words(plan: Plan) -> Markup:
    """Question, what is sent, guarantee and assumptions, as a list of definitions."""
    none = plan.accountant == "none"
    sent = plan.mechanism.describe(plan.domain)
    return render(
        "plan.html",
        question=question(plan),
        sent=f"{_ONE_PROCESS + sent if plan.one_process else _capital(sent)}.",
        guaranteed=None if none else markdown(statement.guaranteed(plan)),
        reveals=None if none else markdown(statement.reveals(plan)),
        assumed=markdown(statement.assumed(plan)),
    )


def statement_html(plan: Plan) -> Markup:
    """The privacy statement without its title; the plan's claim is computed again first."""
    _, _, text = statement.statement(plan).partition("\n")
    return markdown(text.replace("\n## ", "\n### "))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… (cut off)"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
