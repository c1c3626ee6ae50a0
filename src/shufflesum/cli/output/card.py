"""A plan for a person: who sends what, what is guaranteed, what error to expect."""

from __future__ import annotations

import math
import textwrap

from rich.markup import escape

from shufflesum._format import counted, upwards
from shufflesum.cli.output.printed import fallback
from shufflesum.encodings import Levels
from shufflesum.errors import ShufflesumError
from shufflesum.planning import published_plan
from shufflesum.plans import Plan
from shufflesum.statement import malicious

_WIDTH = 88
_WHICH = (
    "Take noisy-counts for accuracy close to a trusted curator's. Take randomized-response where a device may send "
    "only few reports (--max-reports), or where something must be left if shuffler and analyzer collude."
)


def card(plan: Plan, assumed_std: float | None = None) -> str:
    """The plan for a person."""
    rounds = "" if plan.rounds == 1 else f", over {plan.rounds:,} rounds"
    honest = "" if plan.honest_fraction == 1 else f", {plan.honest_users:,} of them honest"
    guarantee = f"epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} for one user{rounds}"
    wording = plan.domain.wording
    levels = [each for each in plan.domain.encodings() if isinstance(each, Levels)]  # for randomized response
    lines = {
        "collects": [] if wording.short else _wrapped(wording.collected()),
        "bounds": _wrapped(wording.bounds()),
        "users": [f"at least {plan.users:,}{honest}; nothing is released below"],
        "each sends": [*_wrapped(plan.mechanism.describe(plan.encoding)), sent(plan)],
        "guarantee": [f"{guarantee} ({plan.accountant} accountant)"],
        "error": _error(plan),
        "malicious": _wrapped(f"at most, {malicious(plan)}"),
        "the paper": _wrapped(_published(plan)) if any(each.scale is not None for each in levels) else [],
        "collusion": [f"if shuffler and analyzer collude: {fallback(plan)}"],
        "mechanism": _wrapped(f"{plan.mechanism.family}. {_WHICH}") if levels else [],
    }
    if not wording.short:
        lines["each sends"] += _wrapped(_noise(plan))
    if assumed_std is not None:
        expected = plan.error_at_std(assumed_std)
        lines["error"].append(
            f"where users differ by {assumed_std:g}: {math.sqrt(expected.total / plan.dimension):.3g} per coordinate, "
            f"{expected.total:.4g} squared"
        )
    for warning in plan.warnings:
        lines["guarantee"] += _wrapped(str(warning))
    if (better := plan.domain.better_domain(plan)) is not None:
        lines["error"] += _wrapped(better)
    if plan.worse_than_guessing:
        lines["error"].append(f"so guessing {plan.domain.trivial_guess} can do better: see the note")
    text = [f"[bold]Plan {plan.id[:16]}[/bold]"]
    for label, (first, *more) in ((label, said) for label, said in lines.items() if said):
        text += [f"  {label:<12} {first}", *(f"{'':15}{line}" for line in more)]
    return "\n".join(text)


def sent(plan: Plan) -> str:
    """How much leaves a device."""
    if plan.noise_by == "curator":
        return "one process holds all data and draws all noise: nothing is sent"
    blanks = f", about {plan.blanks:,.0f} of them blank" if plan.blanks else ""
    size = plan.bytes_per_user
    reports = f"{counted(plan.reports, 'report')} per user and round{blanks}"
    return f"{reports}: {size['raw']:,} bytes ({size['sealed']:,} sealed)"


def _wrapped(text: str) -> list[str]:
    return [escape(line) for line in textwrap.wrap(text, _WIDTH)]


def _noise(plan: Plan) -> str:
    """How many dummy reports there are, also where one process draws them for everybody."""
    noise = plan.mechanism.dummy_reports(plan.encoding)
    if noise is None:
        return ""
    whose = "a user would send in a deployment" if plan.noise_by == "curator" else "of a user"
    return f"dummy reports {whose}: {noise:{',.0f' if noise >= 100 else '.3g'}} on average"


def _error(plan: Plan) -> list[str]:
    """What to expect, in the words of what is estimated, and against a curator whom everybody trusts."""
    curator = f"{upwards(plan.times_curator)} times that of a curator whom everybody trusts"
    numbers = plan.domain.numbers
    if numbers is not None and not numbers.bounds.uniform:  # one error of numbers in several units says nothing
        curator += ", each number in widths of its bounds"
    return [line for said in (*plan.domain.wording.errors(plan), curator) for line in _wrapped(said)]


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
    return f"{best.mechanism.describe(best.encoding)}: {times:.3g} times our squared error"
