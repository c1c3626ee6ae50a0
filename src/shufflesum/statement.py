"""What people are told of a plan: its privacy on one page, for who answers for it without reading proofs; and its card."""

from __future__ import annotations

import math
import textwrap

from shufflesum._format import counted, margin, plain, upwards
from shufflesum.domains.wording import squared
from shufflesum.encodings import Levels
from shufflesum.errors import PlanError, ShufflesumError
from shufflesum.planning import published_plan, with_noise_by
from shufflesum.plans import Plan, check_plan

_LARGEST = 700.0  # the largest epsilon whose exponential is a number here


def statement(plan: Plan, *, in_process: bool = False) -> str:
    """Plain text in Markdown: who sees what, what is guaranteed for whom, on which assumptions, and what is left.

    `in_process`: one process held all data and played all roles, though users could send reports under this plan.
    """
    if plan.accountant == "none":
        raise PlanError(
            "no-guarantee", "this plan has no privacy guarantee (accountant 'none'); there is nothing to state"
        )
    check_plan(plan)
    wording = plan.domain.wording
    fewest = "planned for" if plan.smallest_batch < plan.users else "from at least"
    question = f"{wording.collected()}, {fewest} {counted(plan.users, 'user')}, in {_rounds(plan)}. {wording.bounds()}"
    return f"""# Privacy statement

{textwrap.fill(f"Plan {plan.id[:16]}: {question}", 120)}

## Who sees what

{_roles(plan, in_process)}

## What is guaranteed

{guaranteed(plan)}

## What taking part can reveal at most

{reveals(plan, in_process=in_process)}

## What is assumed

{assumed(plan, in_process=in_process)}
{_beyond(plan, in_process)}"""


def _beyond(plan: Plan, in_process: bool) -> str:
    """What is left where somebody does not do their part; in one process there is nobody else."""
    if in_process or plan.noise_by == "curator":
        return ""
    moved = f"At most, {malicious(plan)}. That is a matter of accuracy, not of other users' privacy."
    return f"""
## If the shuffler and the analyzer collude

{if_they_collude(plan)}

## If users do not keep to the protocol

{textwrap.fill(moved, 120)}
"""


def guaranteed(plan: Plan) -> str:
    """What holds for whom, as a paragraph of Markdown."""
    epsilon, delta, factor = plan.epsilon, plan.delta, _factor(plan)
    return f"""(epsilon, delta) = (**{upwards(epsilon)}**, **{upwards(delta)}**) differential privacy for **one user, that is one row of data**, over
{_rounds(plan)}: whether a user's row is what it is or anything else, no outcome becomes more likely by more than a factor of
{upwards(factor) if epsilon <= _LARGEST else "e^" + upwards(epsilon)}, plus {upwards(delta)}. People who own several rows have less: the guarantee is per row unless rows are combined
first. That somebody took part, and how many did, is not hidden.{_large_delta(plan)}"""


def reveals(plan: Plan, *, in_process: bool = False) -> str:
    """What an attacker learns at most, as a list of Markdown."""
    delta, factor = plan.delta, _factor(plan)
    return f"""{textwrap.fill("- " + guessing(plan, in_process=in_process), 124, subsequent_indent="  ")}
- An attack tuned to 1 % false alarms detects at most {_percent(0.01 * factor + delta)} of true cases."""


def guessing(plan: Plan, *, in_process: bool = False) -> str:
    """What the guarantee means, in one sentence."""
    delta, factor = plan.delta, _factor(plan)
    seen = "the results" if in_process or plan.noise_by == "curator" else "all that the analyzer sees"
    return (
        "Whoever has narrowed a user's row down to two equally likely ones, and sees "
        f"{seen}, guesses right with probability at most {_percent((factor + delta) / (1 + factor))} (50 % is blind guessing)."
    )


def assumed(plan: Plan, *, in_process: bool = False) -> str:
    """What the guarantee rests on, as a list of Markdown."""
    in_process = in_process or plan.noise_by == "curator"
    honest = (
        "All users are counted on to follow the protocol."
        if plan.honest_fraction == 1
        else f"The guarantee counts on {counted(plan.honest_users, 'user')} following the protocol."
    )
    if not in_process and plan.positions is not None:
        both = "Both servers draw" if plan.noise_by == "servers" else "The shuffler draws"
        return f"""{textwrap.fill(f"- The guarantee holds against {_AGAINST[plan.noise_by]}, if {_CONDITION[plan.noise_by]}.", 120, subsequent_indent="  ")}
- {both} fresh, secret noise once for each exact set of reports; a report handed over twice is refused.
- Every user counts once in each round. Nothing is asked of the other users: one honest user is protected among any others.
- Reports carry the truth. They are sealed for the analyzer, and deleted after release together with the round's key.{_further(plan)}
- {plan.domain.wording.public} and plan were chosen without looking at the data, but for what an earlier plan released and paid for.
- {_accountant(plan)}"""
    if in_process:
        trusted = "The process that holds the data hands on nothing but its results."
        fresh = "Every user counts once in each round, and the process draws fresh, secret randomness."
    else:
        trusted = f"The shuffler mixes and does not work together with the analyzer. Batches do not overlap. {honest}"
        fresh = "Every user counts once in each round, and each device draws fresh, secret randomness."
    return f"""- {trusted}
- {fresh}{_further(plan)}
- {plan.domain.wording.public} and plan were chosen without looking at the data, but for what an earlier plan released and paid for.
- {_accountant(plan)}"""


def _rounds(plan: Plan) -> str:
    return "one round" if plan.rounds == 1 else f"up to {plan.rounds:,} rounds"


def _factor(plan: Plan) -> float:
    return math.exp(min(plan.epsilon, _LARGEST))


def _further(plan: Plan) -> str:
    """What the guarantee rests on in this domain, beyond what all rest on."""
    return "".join(
        "\n" + textwrap.fill(f"- {each}", 120, subsequent_indent="  ") for each in plan.domain.wording.assumptions()
    )


def malicious(plan: Plan) -> str:
    """By how much users who send what they like can move what is estimated, in words."""
    few, wording = max(1, plan.users // 100), plan.domain.wording
    what, one, some = wording.moved(plan), wording.shift(plan, 1), wording.shift(plan, few)
    return f"one user who sends what they like moves {what} by {one}, and 1 % of the users ({few:,}) by {some}"


def _roles(plan: Plan, in_process: bool) -> str:
    """Who holds, sends and sees what, as a list of Markdown."""
    if in_process or plan.noise_by == "curator":
        roles = [
            "**One process** holds the data of all users and draws the noise; it is trusted with the data.",
            "**Everybody it shares its results with** sees what has the noise in it already, and is not trusted.",
        ]
    elif plan.positions is not None:
        own = (
            " It adds a draw of its own to each count before anything leaves it." if plan.noise_by == "servers" else ""
        )
        roles = [
            f"**A user's device** holds the data. In each round it sends {plan.mechanism.describe(plan.encoding)}. That "
            f"makes {counted(plan.reports, 'report')} ({plan.bytes_per_user['raw']:,} bytes), as many from everybody, each a "
            "sealed message of its own.",
            "**The shuffler** receives the reports, which it cannot read, adds dummy reports as noise, mixes those of all "
            "users position by position, and forgets who sent what.",
            f"**The analyzer** opens the mixed reports and counts them.{own} Everybody it shares its results with sees noisy "
            "counts only.",
        ]
    else:
        sealed = " It must not read them: they come to it sealed, and only the analyzer can open them."
        roles = [
            f"**A user's device** holds the data. In each round it sends {plan.mechanism.describe(plan.encoding)}. That "
            f"makes {counted(plan.reports, 'report')} ({plan.bytes_per_user['raw']:,} bytes), as many from everybody, each a "
            "message of its own.",
            "**The shuffler** receives the reports, mixes those of all users, and forgets who sent what. It releases "
            f"nothing below {counted(plan.users, 'user')}.{sealed if plan.local_epsilon is None else ''}",
            "**The analyzer**, and everybody it shares its results with, sees the mixed reports only, and is not trusted.",
        ]
    return "\n".join(textwrap.fill(f"- {role}", 120, subsequent_indent="  ") for role in roles)


def _large_delta(plan: Plan) -> str:
    if plan.delta * plan.users < 1:
        return ""
    return (
        f" **This delta is no less than one in {counted(plan.users, 'user')}: it would allow that the data of one of them is published whole.** "
        "It should be far below."
    )


def _percent(probability: float) -> str:
    return f"{upwards(100 * min(1.0, probability))} %"


def _accountant(plan: Plan) -> str:
    if plan.accountant == "paper":
        return "The guarantee rests on the published formula, and on a user's reports not being linked to each other."
    return "The guarantee is computed by a certified accountant: rounding errors can only make the stated epsilon and delta larger than the true ones."


def if_they_collude(plan: Plan) -> str:
    """What is left to a user if shuffler and analyzer work together."""
    if plan.noise_by == "curator":
        return "They are one process, which holds the data and is trusted with it."
    if plan.local_epsilon is None or math.isinf(plan.local_epsilon):
        return "No protection is left: whoever can link reports to their sender reads the sender's data."
    each = upwards(plan.local_epsilon / (plan.reports * plan.rounds))
    weight = (
        "A figure that large is next to no protection: the shuffler matters."
        if plan.local_epsilon > 10
        else "That is a weaker, but real, protection."
    )
    return (
        f"Each report alone still protects its user: epsilon {each} per report, and {upwards(plan.local_epsilon)} for all "
        f"reports of a user together, with delta 0. {weight}"
    )


# ---- The card: what error to expect, how many users, what is guaranteed, what is sent; and all the rest.

_WIDTH = 88
_WHICH = (
    "Take noisy-counts for accuracy close to a trusted curator's. Take randomized-response where a device may send "
    "only few reports (--max-reports), or where something must be left if shuffler and analyzer collude."
)


def card(plan: Plan, assumed_std: float | None = None, *, details: bool = False) -> str:
    """The plan for a person, as plain text: four facts and what weakens them; with `details` all that follows."""
    rounds = "" if plan.rounds == 1 else f", over {plan.rounds:,} rounds"
    honest = "" if plan.honest_fraction == 1 else f", {plan.honest_users:,} of them honest"
    guarantee = f"epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} for one user{rounds}"
    lines = {
        "error": _error(plan, assumed_std),
        "users": [
            f"at least {plan.users:,}{honest}; nothing is released below"
            if plan.smallest_batch == plan.users
            else f"planned for {plan.users:,}; any batch may be released"
        ],
        "guarantee": [guarantee, *_wrapped(*map(str, plan.warnings))],
        "each sends": [_sent(plan)],
    }
    if details:
        lines |= _details(plan)
    text = [f"Plan {plan.id[:16]}"]
    for label, (first, *more) in ((label, said) for label, said in lines.items() if said):
        text += [f"  {label:<12} {first}", *(f"{'':15}{line}" for line in more)]
    return "\n".join(text)


def _sent(plan: Plan) -> str:
    """How much leaves a device."""
    if plan.noise_by == "curator":
        return "nothing: one process holds all data and draws the noise"
    size = plan.bytes_per_user
    return f"{counted(plan.reports, 'report')} per round: {size['raw']:,} bytes ({size['sealed']:,} sealed)"


def _error(plan: Plan, assumed_std: float | None) -> list[str]:
    """What to expect at 95 %, and where guessing would do better."""
    margins = plan.domain.wording.margins(plan)
    said = _wrapped(*(f"± {wide} in {what}" for what, wide in margins.items()))
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
        "in detail": _wrapped(f"squared error, all together: {squared(plan)}", *wording.error_details(plan)),
        "curator": _wrapped(f"the squared error is {curator}"),
        "accountant": [plan.accountant],
        "reports": [] if in_process else _wrapped(plan.mechanism.describe(plan.encoding), *_kinds(plan)),
        "noise": [] if in_process else noise_table(plan),
        "malicious": [] if in_process else _wrapped(f"at most, {malicious(plan)}"),
        "collusion": [] if in_process else [f"if shuffler and analyzer collude: {fallback(plan)}"],
        "the paper": _wrapped(_published(plan)) if comparable else [],
        "mechanism": _wrapped(f"{plan.mechanism.family}. {'' if in_process or not levels else _WHICH}".strip()),
    }


_AGAINST = {
    "users": "the analyzer and everybody who sees results",
    "shuffler": "the analyzer, everybody who sees results and all other users, but not the shuffler's operator",
    "servers": "everybody: other users, and the operator of either server",
    "curator": "everybody who sees results",
}
_CONDITION = {
    "users": "as many users as planned are honest, and the shuffler mixes and does not work together with the analyzer",
    "shuffler": "the shuffler draws its noise, mixes, and does not work together with the analyzer",
    "servers": "the servers do not work together, and the other one draws its noise and does its part",
    "curator": "the one process keeps the data to itself",
}
_SEALED, _OPENED = 9_000, 16_000  # dummy reports a second and core


def noise_table(plan: Plan) -> list[str]:
    """What each choice of who draws the noise would mean for this question: a small table, this plan's row marked."""
    rows = [("drawn by", "times curator", "bytes", "added reports", "core minutes")]
    for noise_by in ("users", "shuffler", "servers"):
        other = plan if noise_by == plan.noise_by else with_noise_by(plan, noise_by)
        if other is None:
            continue
        added = other.added_reports
        minutes = added * (1 / _SEALED + 1 / _OPENED) / 60
        mark = "*" if other is plan else ""
        rows.append(
            (
                f"{noise_by}{mark}",
                upwards(other.times_curator),
                f"{other.bytes_per_user['sealed']:,}",
                f"{added:,.0f}",
                plain(minutes, 2) if added else "0",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    said = f"{plan.noise_by}*: holds against {_AGAINST[plan.noise_by]}, if {_CONDITION[plan.noise_by]}"
    return [*lines, *_wrapped(said, "that somebody took part is not hidden")]


def _kinds(plan: Plan) -> list[str]:
    """How many reports say nothing, on average."""
    said = {"blank": plan.blanks or None, "dummy": plan.mechanism.dummy_reports(plan.encoding)}
    kinds = [f"{plain(many)} {kind}" for kind, many in said.items() if many is not None]
    return [f"on average {' and '.join(kinds)}"] if kinds else []


def _wrapped(*texts: str) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, _WIDTH)]


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


def fallback(plan: Plan) -> str:
    """What is left of the guarantee without a shuffler."""
    return "no protection" if plan.local_epsilon is None else f"epsilon {upwards(plan.local_epsilon)}"
