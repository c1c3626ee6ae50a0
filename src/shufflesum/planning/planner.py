"""The planner crosses the encodings a domain offers with the mechanisms that accept them; its plans are certified."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypedDict, get_args

from shufflesum._checks import check_choice, check_size, shown
from shufflesum.cautions import ArraysAreBetterWarning, UninformativePlanWarning, warn
from shufflesum.cells import MOST_CELLS
from shufflesum.domains import Arrays, BoundsLike, Categories, Domain, Structure
from shufflesum.encodings import Levels
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import MECHANISMS, Candidate, Mechanism, NoiseBy, Search
from shufflesum.plans import Plan, check_assumed_std, encodes, encoding_for
from shufflesum.privacy import Accountant, Guarantee

Shape: TypeAlias = int | Sequence[int] | Structure
"""The shape of one user's array, or a structure with fewer coordinates than entries."""

DomainLike: TypeAlias = Domain | Sequence[str | int | bool]
"""What users hold; a list of labels stands for `Categories` of them."""

MechanismChoice: TypeAlias = Any
"""The name of a family of mechanisms, such as "noisy-counts", or a mechanism's `Options`."""


class PlanOptions(TypedDict, total=False):
    """What a caller of `plan` may fix or leave open; the same wherever plans are made."""

    bounds: BoundsLike | None
    columns: Sequence[str] | None
    mechanism: MechanismChoice | None
    max_reports: int | None
    accountant: Accountant
    honest_fraction: float
    rounds: int
    assumed_std: float | None
    noise_by: NoiseBy


def plan(
    *,
    users: int,
    epsilon: float,
    delta: float,
    domain: DomainLike | None = None,
    shape: Shape | None = None,
    bounds: BoundsLike | None = None,
    columns: Sequence[str] | None = None,
    mechanism: MechanismChoice | None = None,
    max_reports: int | None = None,
    accountant: Accountant = "exact",
    honest_fraction: float = 1.0,
    rounds: int = 1,
    assumed_std: float | None = None,
    noise_by: NoiseBy = "users",
) -> Plan:
    """A plan for collecting what `domain` describes from at least `users` users under (epsilon, delta).

    `domain` is `Categories`, `MultiChoice`, `GroupBy`, `OpenVocabulary`, `L2Ball` or `Arrays`; for arrays `shape` and
    `bounds` are enough. Bounds are public: choose them from what the values can be, never from the data. Give a pair
    for all, one for each coordinate, ([lo, ...], [hi, ...]), or one for each column, {"age": (0, 120), ...}; they are
    0 to 1 by default. `columns` names the entries of a vector; tables must then have exactly these columns.

    Of the plans under which a user sends at most `max_reports` reports, it is the one with the fewest whose predicted
    error is within 5 % of the least: for the worst data, or for data with an `assumed_std` that is publicly known, the
    users' standard deviation in every coordinate. `mechanism="noisy-counts"` (the truth, and dummy reports as noise) is
    as accurate as a trusted curator, but leaves users no protection if shuffler and analyzer collude;
    `mechanism="randomized-response"` (the paper's) sends less and leaves them some. A mechanism's own settings are
    given as its options: `NoisyCounts.Options(digits=3)`, `RandomizedResponse.Options(coordinates=2, levels=7)`.
    `accountant="paper"` uses the published formulas as they stand. `noise_by="curator"` is for one process that holds
    all rows: nothing can be sent under such a plan.
    """
    check_choice("accountant", accountant, ("exact", "paper"))
    check_choice("noise_by", noise_by, get_args(NoiseBy))
    guarantee = Guarantee(epsilon, delta, users, honest_fraction, rounds, accountant)
    asked = domain_of(domain, shape, bounds, columns)
    if assumed_std is not None:
        check_assumed_std(assumed_std)
        if not any(isinstance(one, Levels) and one.scale is not None for one in asked.encodings()):
            raise ParameterError(
                "impossible-combination", f"assumed_std means nothing for {type(asked).__name__}; leave it out"
            )
    if max_reports is not None:
        check_size("max_reports", max_reports, 1, MOST_CELLS)
    search = Search(guarantee, noise_by, max_reports, assumed_std)
    found = list(_candidates(asked, search, mechanism))
    chosen = _chosen(found, lambda one: _error(one, search), _tolerance(asked, max_reports))
    planned = Plan(asked.completed(chosen.encoding), chosen.mechanism, guarantee)
    _warn(planned)
    return planned


def _candidates(domain: Domain, search: Search, mechanism: MechanismChoice | None) -> Iterator[Candidate]:
    """What every mechanism offers that takes one of the domain's encodings and was not ruled out."""
    wanted, options = _wanted(mechanism, search.guarantee.accountant)
    kinds = [kind for kind in MECHANISMS.values() if encodes(domain, kind) and wanted in (None, kind.family)]
    if not kinds:
        carried = {kind.family: None for kind in MECHANISMS.values() if encodes(domain, kind)}
        raise ParameterError(
            "impossible-combination",
            f"mechanism {wanted!r} does not carry {type(domain).__name__}; leave mechanism out, or choose "
            + " or ".join(map(repr, carried)),
        )
    least = math.inf
    for kind in kinds:
        asked = replace(search, only=len(kinds) == 1, rival=least)
        for found in kind.candidates(encoding_for(domain, kind), asked, options):
            least = min(least, _error(found, search))
            yield found


def _wanted(mechanism: MechanismChoice | None, accountant: Accountant) -> tuple[str | None, Any]:
    """The family that is meant, if any, and the mechanism's options."""
    families = tuple(dict.fromkeys(kind.family for kind in MECHANISMS.values()))
    family = getattr(mechanism, "family", mechanism)
    if family is not None:
        check_choice("mechanism", family, families)
    if accountant == "paper":
        if family not in (None, "randomized-response"):
            raise ParameterError(
                "conflicting-arguments",
                f"accountant='paper' means mechanism 'randomized-response', not {family!r}; leave one of them out",
            )
        family = "randomized-response"
    return family, None if isinstance(mechanism, str) else mechanism


def _error(candidate: Candidate, search: Search) -> float:
    return candidate.mechanism.comparison_error(candidate.encoding, search.guarantee.users, search.assumed_std)


def _tolerance(domain: Domain, max_reports: int | None) -> float:
    """Who caps reports says themselves how many are not too many."""
    return domain.planning_tolerance if max_reports is None else Domain.planning_tolerance


def _chosen(found: Sequence[Candidate], error: Callable[[Candidate], float], tolerance: float) -> Candidate:
    """The fewest reports within so much of the least error."""
    if not found:
        raise PrivacyError(
            "privacy-out-of-reach", "no mechanism can be certified with so few reports; raise max_reports or users"
        )
    least = min(map(error, found))
    good = [one for one in found if error(one) <= (1 + tolerance) * least]
    return min(good, key=lambda one: (one.mechanism.reports(one.encoding), error(one)))


def domain_of(
    domain: DomainLike | None, shape: Shape | None, bounds: BoundsLike | None, columns: Sequence[str] | None
) -> Domain:
    """What a caller of `plan` says that users hold."""
    if domain is None:
        if shape is None and columns is None:
            raise ParameterError(
                "missing-argument", "give domain=, such as Categories([...]), or the shape= of each user's array"
            )
        given = (len(columns) if shape is None else shape) if columns is not None else shape
        if isinstance(given, Domain):
            raise ParameterError("wrong-type", f"shape is {type(given).__name__}, a domain; pass it as domain=")
        return Arrays(() if given is None else given, (0.0, 1.0) if bounds is None else bounds, columns)
    if isinstance(domain, list | tuple):
        domain = Categories(domain)
    if not isinstance(domain, Domain):
        raise ParameterError(
            "wrong-type", f"domain is {shown(domain)}; give a domain such as Categories([...]), or shape= for arrays"
        )
    if shape is not None:
        raise ParameterError("conflicting-arguments", "domain and shape exclude each other; leave one of them out")
    return domain.with_numbers(bounds, columns)


def predicted_error(plan: Plan, assumed_std: float | None) -> float:
    """The squared error that a plan is chosen by."""
    return (plan.expected_error if assumed_std is None else plan.error_at_std(assumed_std)).total


def alternatives(chosen: Plan) -> list[Plan]:
    """What the same collection would cost otherwise, each at its certified noise, by reports sent."""
    guarantee = replace(chosen.guarantee, accountant="exact")
    search = Search(guarantee, chosen.noise_by, only=False)
    found = [
        Plan(chosen.domain.completed(one.encoding), one.mechanism, guarantee)
        for kind in MECHANISMS.values()
        if encodes(chosen.domain, kind)
        for one in kind.alternatives(encoding_for(chosen.domain, kind), search)
    ]
    return sorted(found, key=lambda one: one.reports)


def published_plan(plan: Plan, epsilon: float) -> Plan:
    """What the published formula makes of one round of the same collection, with one coordinate from each user."""
    guarantee = replace(plan.guarantee, epsilon=epsilon, rounds=1, accountant="paper")
    kind: type[Mechanism] = MECHANISMS["randomized-response"]
    (found,) = kind.candidates(encoding_for(plan.domain, kind), Search(guarantee))
    return Plan(plan.domain, found.mechanism, guarantee)


def warn_if_uninformative(chosen: Plan) -> None:
    """Say where guessing would do better."""
    if chosen.worse_than_guessing:
        warn(
            f"with this plan the estimate can be worse than guessing {chosen.domain.trivial_guess}; "
            "more users, a larger epsilon or fewer coordinates would help",
            UninformativePlanWarning,
        )


def _warn(planned: Plan) -> None:
    better = planned.domain.better_domain(planned)
    if better is not None:
        warn(better, ArraysAreBetterWarning)
    warn_if_uninformative(planned)
