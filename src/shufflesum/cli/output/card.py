"""A plan for a person: what error to expect, how many users, what is guaranteed, what is sent; and all the rest."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable

from rich.markup import escape

from shufflesum._format import counted, margin, plain, upwards
from shufflesum.cli.output.printed import fallback
from shufflesum.domains.wording import squared
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


def card(plan: Plan, assumed_std: float | None = None, *, details: bool = False) -> str:
    """The plan for a person: four facts and what weakens them; with `details` all that follows from it."""
    rounds = "" if plan.rounds == 1 else f", over {plan.rounds:,} rounds"
    honest = "" if plan.honest_fraction == 1 else f", {plan.honest_users:,} of them honest"
    guarantee = f"epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} for one user{rounds}"
    lines = {
        "error": _error(plan, assumed_std),
        "users": [f"at least {plan.users:,}{honest}; nothing is released below"],
        "guarantee": [guarantee, *(line for warning in plan.warnings for line in _wrapped(str(warning)))],
        "each sends": [sent(plan)],
    }
    if details:
        lines |= _details(plan)
    text = [f"[bold]Plan {plan.id[:16]}[/bold]"]
    for label, (first, *more) in ((label, said) for label, said in lines.items() if said):
        text += [f"  {label:<12} {first}", *(f"{'':15}{line}" for line in more)]
    return "\n".join(text)


def sent(plan: Plan) -> str:
    """How much leaves a device."""
    if plan.noise_by == "curator":
        return "nothing: one process holds all data and draws the noise"
    size = plan.bytes_per_user
    return f"{counted(plan.reports, 'report')} per round: {size['raw']:,} bytes ({size['sealed']:,} sealed)"


def _error(plan: Plan, assumed_std: float | None) -> list[str]:
    """What to expect at 95 %, and where guessing would do better."""
    margins = plan.domain.wording.margins(plan)
    said = _wrapped_all(f"± {wide} in {what}" for what, wide in margins.items())
    said[-1] += " (95 %, worst data)"
    if assumed_std is not None:
        each = math.sqrt(plan.error_at_std(assumed_std).total / plan.dimension)
        said.append(f"where users differ by {plain(assumed_std)}: ± {margin(each)} per coordinate")
    if (better := plan.domain.better_domain(plan)) is not None:
        said += _wrapped(better)
    if plan.worse_than_guessing:
        said.append(f"so guessing {plan.domain.trivial_guess} can do better: see the note")
    return said


def _details(plan: Plan) -> dict[str, list[str]]:
    """All the rest; of one process nothing that only holds for devices and a shuffler."""
    wording, in_process = plan.domain.wording, plan.noise_by == "curator"
    levels = [each for each in plan.domain.encodings() if isinstance(each, Levels)]  # for randomized response
    comparable = any(each.scale is not None for each in levels)
    curator = f"{upwards(plan.times_curator)} times that of a curator whom everybody trusts"
    numbers = plan.domain.numbers
    if numbers is not None and not numbers.bounds.uniform:  # one error of numbers in several units says nothing
        curator += ", each number in widths of its bounds"
    return {
        "collects": _wrapped(wording.collected()),
        "bounds": _wrapped(wording.bounds()),
        "in detail": _wrapped_all([f"squared error, all together: {squared(plan)}", *wording.error_details(plan)]),
        "curator": _wrapped(f"the squared error is {curator}"),
        "accountant": [plan.accountant],
        "reports": [] if in_process else _wrapped_all([plan.mechanism.describe(plan.encoding), *_kinds(plan)]),
        "malicious": [] if in_process else _wrapped(f"at most, {malicious(plan)}"),
        "collusion": [] if in_process else [f"if shuffler and analyzer collude: {fallback(plan)}"],
        "the paper": _wrapped(_published(plan)) if comparable else [],
        "mechanism": _wrapped(f"{plan.mechanism.family}. {'' if in_process or not levels else _WHICH}".strip()),
    }


def _kinds(plan: Plan) -> list[str]:
    """How many reports say nothing, on average."""
    said = {"blank": plan.blanks or None, "dummy": plan.mechanism.dummy_reports(plan.encoding)}
    kinds = [f"{plain(many)} {kind}" for kind, many in said.items() if many is not None]
    return [f"on average {' and '.join(kinds)}"] if kinds else []


def _wrapped(text: str) -> list[str]:
    return [escape(line) for line in textwrap.wrap(text, _WIDTH)]


def _wrapped_all(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in _wrapped(text)]


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
    times = best.error_in_widths.total / plan.error_in_widths.total
    return f"{best.mechanism.describe(best.encoding)}: {plain(times)} times our squared error"
