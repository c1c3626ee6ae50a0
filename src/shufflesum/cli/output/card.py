"""A plan for a person: who sends what, what is guaranteed, what error to expect."""

from __future__ import annotations

import math
import textwrap

from rich.markup import escape

from shufflesum._rounding import upwards
from shufflesum.cli.output.printed import fallback
from shufflesum.domain import Ball, Box, Categories, Choices, Domain, Groups, Hashed, numbers_of
from shufflesum.errors import ShufflesumError
from shufflesum.mechanisms import Add, AddSlots, Replace
from shufflesum.mechanisms.add_slots.error import ASSUMED_LAW
from shufflesum.planning import box_is_better, published_plan
from shufflesum.plans import Plan
from shufflesum.statement import bounds_in_words, collected, dishonest, of_each

__all__ = ["card", "sent"]

_WIDTH = 88
_WHICH = (
    "Take add for accuracy close to a trusted curator's. Take replace where a device may send only few reports "
    "(--max-reports), or where something must be left if shuffler and analyzer collude: under add nothing is."
)


def card(plan: Plan, spread: float | None = None) -> str:
    """The plan for a person."""
    rounds = "" if plan.rounds == 1 else f", over {plan.rounds:,} rounds"
    honest = "" if plan.honest_fraction == 1 else f", {plan.honest_users:,} of them honest"
    guarantee = f"epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} for one user{rounds}"
    numbers = isinstance(plan.domain, Ball | Box)
    lines = {
        "collects": [] if isinstance(plan.domain, Box) else _wrapped(collected(plan.domain)),
        "bounds": _wrapped(bounds_in_words(plan.domain).strip()),
        "users": [f"at least {plan.users:,}{honest}; nothing is released below"],
        "each sends": [*_wrapped(plan.mechanism.describe(plan.domain)), sent(plan)],
        "guarantee": [f"{guarantee} ({plan.accountant} accountant)"],
        "error": _error(plan),
        "dishonest": _wrapped(f"at most, {dishonest(plan)}"),
        "the paper": _wrapped(_published(plan)) if isinstance(plan.domain, Box) else [],
        "fallback": [f"{fallback(plan)} if shuffler and analyzer collude"],
        "mechanism": _wrapped(f"{plan.mechanism.word}. {_WHICH}") if isinstance(plan.domain, Box | Categories) else [],
    }
    if not numbers:
        lines["each sends"] += _wrapped(_noise(plan))
    if spread is not None:
        expected = plan.error_at_spread(spread)
        lines["error"].append(
            f"where users differ by {spread:g}: {math.sqrt(expected.total / plan.dimension):.3g} per coordinate, "
            f"{expected.total:.4g} squared"
        )
    for warning in plan.warnings:
        lines["guarantee"] += _wrapped(str(warning))
    if box_is_better(plan):
        lines["error"].append("bounds on each number, and mechanism add, would do better for so few of them")
    if plan.worse_than_guessing:
        lines["error"].append(f"so guessing {_guess(plan)} can do better: see the note")
    text = [f"[bold]Plan {plan.id[:16]}[/bold]"]
    for label, (first, *more) in ((label, said) for label, said in lines.items() if said):
        text += [f"  {label:<12} {first}", *(f"{'':15}{line}" for line in more)]
    return "\n".join(text)


def sent(plan: Plan) -> str:
    """How much leaves a device."""
    if plan.one_process:
        return "one process holds all data and draws all noise: nothing is sent"
    blanks = f", about {plan.blanks:,.0f} of them blank" if plan.blanks else ""
    size = plan.bytes_per_user
    return f"{plan.reports:,} reports a user and round{blanks}: {size['raw']:,} bytes ({size['sealed']:,} sealed)"


def _wrapped(text: str) -> list[str]:
    return [escape(line) for line in textwrap.wrap(text, _WIDTH)]


def _noise(plan: Plan) -> str:
    """How many noise reports there are, also where one process draws them for everybody."""
    match plan.mechanism:
        case AddSlots():
            noise = plan.mechanism.noise
        case Add():
            noise = plan.mechanism.noise_reports(plan.domain)
        case Replace():
            noise = plan.reports * plan.mechanism.noise_probability
        case _:
            return ""
    whose = "a user would send in a deployment" if plan.one_process else "of a user"
    return f"noise reports {whose}: {noise:{',.0f' if noise >= 100 else '.3g'}} on average"


def _error(plan: Plan) -> list[str]:
    """What to expect, in the words of what is estimated, and against a curator whom everybody trusts."""
    error, domain = plan.expected_error, plan.domain
    each = math.sqrt(error.total / plan.dimension)
    split = (
        f"{error.total:.4g} = {error.sampling:.3g} sampling + {error.rounding:.3g} rounding + {error.noise:.3g} noise"
    )
    curator = f"{upwards(plan.over_curator)} times that of a curator whom everybody trusts"
    if not _alike(domain):
        curator += ", each number in widths of its bounds"
    match domain:
        case Categories() | Choices():
            return [
                f"{each * plan.users:.3g} users in the count of each label (standard error): {each:.3g} of all",
                f"squared, all frequencies: {split}",
                curator,
            ]
        case Hashed():
            return [
                f"{each * plan.users:.3g} users in the count of each word (root mean square): {each:.3g} of all",
                *_wrapped(f"if {ASSUMED_LAW}"),
                f"squared, of one frequency: {split}",
                curator,
            ]
        case Groups():
            assert isinstance(plan.mechanism, Add)
            size = math.sqrt(plan.users * float(plan.mechanism.noise_variances[-1]))
            return [
                *_each_number(plan, "per entry of a group's mean, if all groups are equally large"),
                f"{size:.3g} users in the size of each group (standard error)",
                f"squared, all means: {split}",
                curator,
            ]
        case Ball():
            return [
                f"{each:.3g} per entry (root mean square, worst data), {math.sqrt(error.total):.3g} in norm",
                f"squared, all entries: {split}",
                curator,
            ]
    return [
        *_each_number(plan, "per coordinate (root mean square, worst data)"),
        f"squared, all coordinates: {split}",
        curator,
    ]


def _alike(domain: Domain) -> bool:
    """Whether all numbers have the same bounds; else they may have different units, and one error says nothing."""
    box = numbers_of(domain)
    return not isinstance(box, Box) or box.bounds.uniform


def _each_number(plan: Plan, what: str) -> list[str]:
    """The error of each number: one for all, or by name."""
    if _alike(plan.domain):
        return [f"{math.sqrt(plan.expected_error.total / plan.dimension):.3g} {what}"]
    box = numbers_of(plan.domain)
    assert isinstance(box, Box)
    part = math.sqrt(plan.error_in_widths.total / plan.dimension)
    each = of_each(box, [f"{part * width:.3g}" for width in box.width.tolist()])
    return _wrapped(f"{each}; {100 * part:.2g} % of the width of the bounds, {what}")


def _guess(plan: Plan) -> str:
    match plan.domain:
        case Categories():
            return "that all labels are equally frequent"
        case Choices():
            return "that half of the users hold each label"
        case Hashed():
            return "that nobody holds a word"
        case Ball():
            return "the centre"
    return "the middle of the bounds"


def _published(plan: Plan) -> str:
    """What the published formulas make of the same target, at their best."""
    if plan.accountant == "paper":
        return "this is its own formula"
    if plan.rounds > 1:
        return "its formulas are for one round: they have no such guarantee over all rounds that could be compared"
    # The published constants jump at epsilon = 1, so above it the formula just below 1 may ask for less noise.
    targets = {plan.epsilon, min(plan.epsilon, math.nextafter(1.0, 0.0))}
    theirs, refusal = [], "there is nothing to compare"
    for epsilon in targets:
        try:
            theirs.append(published_plan(plan, epsilon))
        except ShufflesumError as error:
            refusal = str(error).split(",")[0]
    if not theirs:
        return f"offers nothing here: {refusal}"
    best = min(theirs, key=lambda other: other.expected_error.total)
    times = best.expected_error.total / plan.expected_error.total
    return f"{best.mechanism.describe(best.domain)}: {times:.3g} times our squared error"
