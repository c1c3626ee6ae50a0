"""A plan's privacy on one page, for people who answer for it but do not read proofs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from shufflesum._rounding import upwards
from shufflesum.domain import Ball, Box, Categories, Choices, Domain, Groups, Hashed
from shufflesum.errors import PlanError
from shufflesum.plans import Plan, check_plan

__all__ = [
    "assumed",
    "bounds_in_words",
    "collected",
    "dishonest",
    "guaranteed",
    "guessing",
    "if_they_collude",
    "of_each",
    "reveals",
    "statement",
]

_LISTED = 20  # of more labels only so many are named
_LONGEST = 60  # characters of a name
_LARGEST = 700.0  # the largest epsilon whose exponential is a number here


def statement(plan: Plan) -> str:
    """Plain text in Markdown: who sees what, what is guaranteed for whom, on which assumptions, and what is left."""
    if plan.accountant == "none":
        raise PlanError(
            "no-guarantee", "this plan has no privacy guarantee (accountant 'none'); there is nothing to state"
        )
    check_plan(plan)
    rounds = _rounds(plan)
    return f"""# Privacy statement

{textwrap.fill(f"Plan {plan.id[:16]}: {collected(plan.domain)}, from at least {plan.users:,} users, in {rounds}.{bounds_in_words(plan.domain)}", 120)}

## Who sees what

{_device(plan)}
{_others(plan)}

## What is guaranteed

{guaranteed(plan)}

## What taking part can reveal at most

{reveals(plan)}

## What is assumed

{assumed(plan)}

## If the shuffler and the analyzer collude

{if_they_collude(plan)}

## If users do not keep to the protocol

{textwrap.fill(f"At most, {dishonest(plan)}. That is a matter of accuracy, not of other users' privacy.", 120)}
"""


def guaranteed(plan: Plan) -> str:
    """What holds for whom, as a paragraph of Markdown."""
    epsilon, delta, factor = plan.epsilon, plan.delta, _factor(plan)
    return f"""(epsilon, delta) = (**{upwards(epsilon)}**, **{upwards(delta)}**) differential privacy for **one user, that is one row of data**, over
{_rounds(plan)}: whether a user's row is what it is or anything else, no outcome becomes more likely by more than a factor of
{upwards(factor) if epsilon <= _LARGEST else "e^" + upwards(epsilon)}, plus {upwards(delta)}. People who own several rows have less: the guarantee is per row unless rows are combined
first. That somebody took part, and how many did, is not hidden.{_large_delta(plan)}"""


def reveals(plan: Plan) -> str:
    """What an attacker learns at most, as a list of Markdown."""
    delta, factor = plan.delta, _factor(plan)
    return f"""{textwrap.fill("- " + guessing(plan), 124, subsequent_indent="  ")}
- A test that wrongly accuses 1% of users finds at most {_percent(0.01 * factor + delta)} of those it is after."""


def guessing(plan: Plan) -> str:
    """What the guarantee means, in one sentence."""
    delta, factor = plan.delta, _factor(plan)
    return (
        "Whoever has narrowed a user's row down to two equally likely ones, and sees all that the analyzer sees, guesses right with "
        f"probability at most {_percent((factor + delta) / (1 + factor))} (50% is blind guessing)."
    )


def assumed(plan: Plan) -> str:
    """What the guarantee rests on, as a list of Markdown."""
    honest = (
        "All users are counted on to follow the protocol."
        if plan.honest_fraction == 1
        else f"The guarantee counts on {plan.honest_users:,} users following the protocol."
    )
    trusted = (
        "The process that holds the data hands on nothing but its results."
        if plan.one_process
        else "The shuffler mixes and does not work together with the analyzer."
    )
    return f"""- {trusted} Batches do not overlap. {honest}
- Every user counts once in each round, and each device draws fresh, secret randomness.{_coin(plan)}
- {_public(plan.domain)} and plan were chosen without looking at the data, but for what an earlier plan released and paid for.
- {_accountant(plan)}"""


def _rounds(plan: Plan) -> str:
    return "one round" if plan.rounds == 1 else f"up to {plan.rounds:,} rounds"


def _factor(plan: Plan) -> float:
    return math.exp(min(plan.epsilon, _LARGEST))


def collected(domain: Domain) -> str:
    """What is estimated, in words; of many labels the first ones are named."""
    named = "" if isinstance(domain, Ball | Box) or domain.column is None else f", from column {domain.column!r}"
    match domain:
        case Categories() if domain.bins is not None:
            return f"how many users' numbers lie in each of {_listed(domain.names, 'bins')}{named}"
        case Categories():
            return f"how many users hold each of {_listed(domain.names, 'labels')}, one each{named}"
        case Choices():
            return f"how many users hold each of {_listed(domain.names, 'labels')}, up to {domain.most} each{named}"
        case Groups():
            return f"users, mean and sum of {_numbers(domain.box.shape, domain.box.dimension)} in each of {_listed(domain.names, 'groups')}{named}"
        case Hashed():
            functions, buckets = domain.layout
            return (
                f"how many users hold any word that is asked for afterwards, one each, by {functions:,} hash functions "
                f"with {buckets:,} buckets each{named}"
            )
    within = ""
    if isinstance(domain, Ball):
        measured = "" if domain.center is None else ", measured from a public centre"
        within = f", of a Euclidean norm of at most {upwards(domain.radius, 6)}{measured}"
    return f"the mean and sum of {_numbers(domain.shape, domain.dimension)}{within}"


def _numbers(shape: tuple[int, ...], dimension: int) -> str:
    if dimension == 1:
        return "one number a user"
    many = f"{dimension:,} numbers a user"
    return many if shape == (dimension,) else f"arrays of {' by '.join(f'{side:,}' for side in shape)} ({many})"


def bounds_in_words(domain: Domain) -> str:
    """The public bounds of arrays, and the columns they come from; of many the first ones are named."""
    if not isinstance(domain, Box | Groups):
        return ""
    box = domain.box if isinstance(domain, Groups) else domain
    what = "coefficient of the span" if box.structure.mixes else "number"
    columns = "" if box.columns is None else f", in {_listed(box.columns, 'columns')}"
    lower, upper = box.lower.tolist(), box.upper.tolist()
    if box.bounds.uniform:
        return f" Every {what} lies between {_exact(lower[0])} and {_exact(upper[0])}{columns}."
    each = [f"{_exact(low)} to {_exact(high)}" for low, high in zip(lower, upper, strict=True)]
    return f" Bounds of each {what}: {of_each(box, each)}."


def of_each(box: Box, texts: Sequence[str]) -> str:
    """Something of each coordinate, with its name; of many the first ones."""
    names = [_short(box.columns[i]) if box.columns else box.structure.describe(i) for i in range(len(texts))[:_LISTED]]
    return _and_more([f"{name}: {text}" for name, text in zip(names, texts, strict=False)], len(texts), "; ")


def _listed(names: Sequence[str], what: str) -> str:
    return f"{len(names):,} {what} ({_and_more([_short(name) for name in names[:_LISTED]], len(names), ', ')})"


def _and_more(listed: Sequence[str], all_of_them: int, between: str) -> str:
    """Never a list that looks whole and is not."""
    left = all_of_them - len(listed)
    return between.join(listed) + (f" and {left:,} more" if left else "")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}... ({len(name):,} characters)"


def _exact(value: float) -> str:
    """A bound as it is, to the last digit."""
    return repr(value).removesuffix(".0")


def _public(domain: Domain) -> str:
    match domain:
        case Categories() | Choices():
            return "Labels"
        case Groups():
            return "Groups, bounds"
        case Hashed():
            return "Hash functions"
        case Ball():
            return "Radius, centre"
    return "Bounds"


def _coin(plan: Plan) -> str:
    """Where rounding itself protects: a device that rounds to the nearest bit has no privacy at all."""
    if not isinstance(plan.domain, Ball):
        return ""
    text = (
        "- The coin that rounds is the privacy: devices must draw it freshly and secretly, for each bit anew. A coin that is "
        "fixed, shared or left out voids the guarantee."
    )
    return "\n" + textwrap.fill(text, 120, subsequent_indent="  ")


def dishonest(plan: Plan) -> str:
    """By how much users who send what they like can move what is estimated, in words."""
    few = max(1, plan.users // 100)
    what = "an entry of the mean" if isinstance(plan.domain, Ball) else "a mean"
    if isinstance(plan.domain, Box) and not plan.domain.bounds.uniform:
        what = "the mean with the widest bounds"
    one, some = upwards(plan.influence(1)), upwards(plan.influence(few))
    if isinstance(plan.domain, Groups):
        what = f"the mean of a group (one of {len(plan.domain.labels):,} equally large ones)"
    elif not isinstance(plan.domain, Ball | Box):
        what = "a count of a word" if isinstance(plan.domain, Hashed) else "the count of a label"
        one, some = (_users(plan.users * plan.influence(users)) for users in (1, few))
    if plan.one_process:
        return f"one row moves {what} by {one}; nobody sends reports of their own"
    return f"one user who sends what they like moves {what} by {one}, and 1 % of the users ({few:,}) by {some}"


def _users(count: float) -> str:
    whole = math.ceil(count * (1 - 1e-9))  # what is whole but for rounding stays so
    return f"{whole:,} user{'' if whole == 1 else 's'}"


def _device(plan: Plan) -> str:
    if plan.one_process:
        text = (
            "- **One process** holds the data of all users and does what users, shuffler and analyzer would do; it is "
            f"trusted with the data. As if each user sent {plan.mechanism.describe(plan.domain)}."
        )
        return textwrap.fill(text, 120, subsequent_indent="  ")
    text = (
        f"- **A user's device** holds the data. In each round it sends {plan.mechanism.describe(plan.domain)}. That makes "
        f"{plan.reports:,} reports ({plan.bytes_per_user['raw']:,} bytes), as many from everybody, each a message of its own."
    )
    return textwrap.fill(text, 120, subsequent_indent="  ")


def _others(plan: Plan) -> str:
    if plan.one_process:
        return "- **Everybody it shares its results with** sees what has the noise in it already, and is not trusted."
    text = (
        "- **The shuffler** receives the reports, mixes those of all users, and forgets who sent what. It releases nothing "
        f"below {plan.users:,} users."
    )
    if plan.local_epsilon is None:
        text += " It must not read them: they come to it sealed, and only the analyzer can open them."
    analyzer = (
        "- **The analyzer**, and everybody it shares its results with, sees the mixed reports only, and is not trusted."
    )
    return f"{textwrap.fill(text, 120, subsequent_indent='  ')}\n{analyzer}"


def _large_delta(plan: Plan) -> str:
    if plan.delta * plan.users < 1:
        return ""
    return (
        f" **This delta is no less than one in {plan.users:,} users: it would allow that one of them is laid open whole.** "
        "It should be far below."
    )


def _percent(probability: float) -> str:
    return f"{upwards(100 * min(1.0, probability))}%"


def _accountant(plan: Plan) -> str:
    if plan.accountant == "paper":
        return "The guarantee rests on the published formula, and on a user's reports not being linked to each other."
    return "The guarantee is computed by a certified accountant: every numerical error is counted against us."


def if_they_collude(plan: Plan) -> str:
    """What is left to a user if shuffler and analyzer work together."""
    if plan.one_process:
        return "They are one process, which holds the data and is trusted with it."
    if plan.local_epsilon is None or math.isinf(plan.local_epsilon):
        return "Nothing is left: whoever can link reports to their sender reads the sender's data."
    each = upwards(plan.local_epsilon / (plan.reports * plan.rounds))
    weight = (
        "A figure that large is next to no protection: the shuffler matters."
        if plan.local_epsilon > 10
        else "That is a weaker, but real, protection."
    )
    return (
        f"Each report alone still protects its user: epsilon {each} a report, and {upwards(plan.local_epsilon)} for all "
        f"reports of a user together, with delta 0. {weight}"
    )
