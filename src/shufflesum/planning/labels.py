"""Plans for labels, choices, groups and open vocabularies: every mechanism that can carry them, certified."""

from __future__ import annotations

from collections.abc import Iterator

from shufflesum.domain import Categories, Choices, Groups, Hashed
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import Replace
from shufflesum.mechanisms.add.moves import AddMoves
from shufflesum.mechanisms.add_slots.moves import categories_choice, hashed_choices
from shufflesum.mechanisms.replace.labels import most_frequent_error
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.privacy.replace import Setting

__all__ = ["AS_GOOD_WORDS", "label_plans", "worst_error"]

AS_GOOD_WORDS = 0.55
"""Of an open vocabulary so much more squared error than the least counts as good: a quarter in counts.

More buckets make words collide less and less, but each costs every user as much noise as the one before.
"""


def worst_error(plan: Plan) -> float:
    """What plans for labels are compared by: for one label each, the error of the label that is estimated worst.

    Noise as further reports is the same for all labels; under `replace` the frequent ones have most.
    """
    match plan.domain, plan.mechanism:
        case Categories(), Replace():
            return most_frequent_error(plan.cells, plan.mechanism.noise_probability, plan.users)
        case Categories(), _:
            return plan.expected_error.total / plan.dimension
    return plan.expected_error.total


def label_plans(
    domain: Categories | Choices | Groups | Hashed,
    guarantee: Guarantee,
    kinds: list[str],
    max_reports: int | None,
    digits: int | None,
    one_process: bool,
) -> list[Plan]:
    """All certified candidates with at most `max_reports` reports of a user; an error says why there is none."""
    found, most = [], max_reports
    fewest: int | None = None
    for candidate in _candidates(domain, guarantee, kinds, digits, one_process):
        if most is None or candidate.reports <= most:
            found.append(candidate)
        fewest = min(fewest or candidate.reports, candidate.reports)
    if found:
        return found
    if fewest is None:
        raise ParameterError(
            "impossible-combination",
            f"mechanism {kinds[0]!r} cannot carry {type(domain).__name__}; leave mechanism out, or plan with 'add'",
        )
    raise PrivacyError(
        "privacy-out-of-reach",
        f"max_reports is {max_reports}, but at least {fewest} reports of a user are needed; raise max_reports, users "
        "or epsilon, or take fewer labels",
    )


def _candidates(
    domain: Categories | Choices | Groups | Hashed,
    guarantee: Guarantee,
    kinds: list[str],
    digits: int | None,
    one_process: bool,
) -> Iterator[Plan]:
    if "add" in kinds:
        match domain:
            case Categories():
                yield Plan(domain, categories_choice(domain, guarantee), guarantee)
            case Hashed():
                for chosen, mechanism in hashed_choices(domain, guarantee):
                    yield Plan(chosen, mechanism, guarantee)
            case _:
                for each in AddMoves(domain, guarantee, digits, one_process).starts():
                    yield Plan(domain, each, guarantee)
    if "replace" in kinds and isinstance(domain, Categories):
        yield from _replaced(domain, guarantee, alone=kinds == ["replace"])


def _replaced(domain: Categories, guarantee: Guarantee, *, alone: bool) -> Iterator[Plan]:
    """Randomized response over all labels; nothing where it is out of reach and another mechanism may serve."""
    try:
        setting = Setting(
            guarantee.users,
            domain.cells - 1,
            rounds=guarantee.rounds,
            dimension=1,
            honest_fraction=guarantee.honest_fraction,
        )
        gamma = setting.smallest_noise_probability(guarantee.epsilon, guarantee.delta)
    except (ParameterError, PrivacyError):
        if alone:
            raise
        return
    if gamma < 1:
        yield Plan(domain, Replace(1, domain.cells - 1, gamma), guarantee)
    elif alone:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"a single report among {domain.cells} labels would have to be noise alone for {guarantee.users} users; "
            "raise users or epsilon, take fewer labels, or plan with mechanism 'add'",
        )
