"""The planner: from users, domain and privacy to a certified plan, or from an error to what it needs.

It crosses the encodings that a domain offers with the mechanisms that accept them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypedDict, Unpack, get_args

import numpy as np

from shufflesum._checks import check_choice, check_number, check_size, shown
from shufflesum._format import Z_95
from shufflesum._search import bracket
from shufflesum.cautions import (
    ArraysAreBetterWarning,
    ShufflesumWarning,
    UninformativePlanWarning,
    UsersDrawNoiseWarning,
    warn,
)
from shufflesum.cells import MOST_CELLS
from shufflesum.domains import Arrays, BoundsLike, Categories, Domain, Structure
from shufflesum.domains.bounds import DEFAULT_BOUNDS
from shufflesum.encodings import Levels
from shufflesum.errors import ParameterError, PrivacyError, ShufflesumError
from shufflesum.mechanisms import MECHANISMS
from shufflesum.mechanisms.mechanism import MAX_DUMMIES, Candidate, Mechanism, NoiseBy, Search
from shufflesum.plans import Plan, encodes, encoding_for
from shufflesum.privacy import Accountant, Guarantee

Shape: TypeAlias = int | Sequence[int] | Structure
"""The shape of one user's array, or a structure with fewer coordinates than entries."""

DomainLike: TypeAlias = Domain | Sequence[str | int | bool]
"""What users hold; a list of labels stands for `Categories` of them."""

DEFAULT_NOISE_BY: NoiseBy = "users"
"""Who draws the noise of what is sent, unless a caller says so."""

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
    noise_by: NoiseBy | None
    max_dummies: int


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
    noise_by: NoiseBy | None = None,
    max_dummies: int = MAX_DUMMIES,
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
    `accountant="paper"` uses the published formulas as they stand. `noise_by` says who draws the noise: "users" (the
    default here), the "shuffler" once for all, shuffler and analyzer each by itself ("servers"), or "curator", one
    process that holds all rows: nothing can be sent under such a plan, and numbers and vectors are summed exactly
    ("noisy-sums"). A shuffler that draws noise adds at most `max_dummies` reports to a batch, on average; a plan for
    more is refused, or the users draw the noise unasked.
    """
    check_choice("accountant", accountant, ("exact", "paper"))
    unasked = noise_by is None
    noise_by = DEFAULT_NOISE_BY if noise_by is None else noise_by
    check_choice("noise_by", noise_by, get_args(NoiseBy))
    check_size("max_dummies", max_dummies, 0, MOST_CELLS)
    if noise_by != "users" and honest_fraction != 1:
        if not unasked:
            raise ParameterError(
                "impossible-combination",
                f"honest_fraction is {honest_fraction}, but with noise_by={noise_by!r} it means nothing: the guarantee "
                "counts on no user; leave it out, or plan with noise_by='users'",
            )
        noise_by = "users"
    guarantee = Guarantee(epsilon, delta, users, honest_fraction, rounds, accountant)
    asked = domain_of(domain, shape, bounds, columns)
    if assumed_std is not None:
        check_number("assumed_std", assumed_std, least=0, below=math.inf)
        if not any(isinstance(one, Levels) and one.scale is not None for one in asked.encodings()):
            raise ParameterError(
                "impossible-combination", f"assumed_std means nothing for {type(asked).__name__}; leave it out"
            )
    if max_reports is not None:
        check_size("max_reports", max_reports, 1, MOST_CELLS)
    search = Search(guarantee, noise_by, max_reports, assumed_std, max_dummies=max_dummies)
    try:
        found = list(_candidates(asked, search, mechanism))
    except ShufflesumError as error:
        if not unasked or noise_by == "users":
            raise
        warn(f"users draw the noise: {error}", UsersDrawNoiseWarning)
        found = list(_candidates(asked, replace(search, noise_by="users"), mechanism))
    chosen = _chosen(found, _tolerance(asked, max_reports))
    planned = Plan(asked.completed(chosen.encoding), chosen.mechanism, guarantee)
    _warn(planned)
    return planned


def plan_in_process(**asked: Any) -> Plan:
    """The `plan` for one process that holds all rows: it draws the noise, if a mechanism that is allowed lets it."""
    if asked.get("noise_by") is None:
        domain = domain_of(asked.get("domain"), asked.get("shape"), asked.get("bounds"), asked.get("columns"))
        wanted, _ = _wanted(asked.get("mechanism"), asked.get("accountant", "exact"))
        able = any("curator" in kind.noise_options for kind in _kinds(domain, wanted))
        asked["noise_by"] = "curator" if able else "users"
    return plan(**asked)


def _candidates(domain: Domain, search: Search, mechanism: MechanismChoice | None) -> Iterator[tuple[float, Candidate]]:
    """What every mechanism offers that takes one of the domain's encodings and was not ruled out, with its error."""
    wanted, options = _wanted(mechanism, search.guarantee.accountant)
    kinds = _kinds(domain, wanted)
    if not kinds:
        carried = {kind.family: None for kind in _kinds(domain, None)}
        raise ParameterError(
            "impossible-combination",
            f"mechanism {wanted!r} does not carry {type(domain).__name__}; leave mechanism out, or choose "
            + " or ".join(map(repr, carried)),
        )
    able = [kind for kind in kinds if search.noise_by in kind.noise_options]
    if not able:
        possible = " or ".join(
            repr(each) for each in get_args(NoiseBy) if any(each in kind.noise_options for kind in kinds)
        )
        named = "its mechanisms" if wanted is None else f"mechanism {wanted!r}"
        raise ParameterError(
            "impossible-combination",
            f"noise_by is {search.noise_by!r}, but for {type(domain).__name__} the noise of {named} can only be drawn "
            f"by {possible}; choose that, or another mechanism",
        )
    kinds = able
    least = math.inf
    for kind in kinds:
        asked = replace(search, only=len(kinds) == 1, rival=least)
        for found in kind.candidates(encoding_for(domain, kind), asked, options):
            error = found.mechanism.comparison_error(found.encoding, search.guarantee.users, search.assumed_std)
            least = min(least, error)
            yield error, found


def _kinds(domain: Domain, family: str | None) -> list[type[Mechanism]]:
    """The mechanisms of a family, or of all, that take one of the domain's encodings."""
    return [kind for kind in MECHANISMS.values() if encodes(domain, kind) and family in (None, kind.family)]


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


def _tolerance(domain: Domain, max_reports: int | None) -> float:
    """Who caps reports says themselves how many are not too many."""
    return domain.planning_tolerance if max_reports is None else Domain.planning_tolerance


def _chosen(found: Sequence[tuple[float, Candidate]], tolerance: float) -> Candidate:
    """The fewest reports within so much of the least error."""
    if not found:
        raise PrivacyError(
            "privacy-out-of-reach", "no mechanism can be certified with so few reports; raise max_reports or users"
        )
    most = (1 + tolerance) * min(error for error, _ in found)
    good = [(one.mechanism.reports(one.encoding), error, one) for error, one in found if error <= most]
    return min(good, key=lambda known: known[:2])[2]


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
        return Arrays(() if given is None else given, DEFAULT_BOUNDS if bounds is None else bounds, columns)
    if isinstance(domain, list | tuple):
        domain = Categories(domain)
    if not isinstance(domain, Domain):
        raise ParameterError(
            "wrong-type", f"domain is {shown(domain)}; give a domain such as Categories([...]), or shape= for arrays"
        )
    if shape is not None:
        raise ParameterError("conflicting-arguments", "domain and shape exclude each other; leave one of them out")
    return domain.with_numbers(bounds, columns)


def with_noise_by(chosen: Plan, noise_by: NoiseBy) -> Plan | None:
    """The same question with somebody else drawing the noise; None where no mechanism can."""
    guarantee = replace(chosen.guarantee, honest_fraction=1.0) if noise_by != "users" else chosen.guarantee
    search = Search(guarantee, noise_by, max_dummies=MOST_CELLS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShufflesumWarning)
            found = list(_candidates(chosen.domain, search, None))
            one = _chosen(found, _tolerance(chosen.domain, None))
            return Plan(chosen.domain.completed(one.encoding), one.mechanism, guarantee)
    except ShufflesumError:
        return None


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
        if encodes(chosen.domain, kind) and chosen.noise_by in kind.noise_options
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


# ---- Plans from the error: the smallest number of users, or the smallest epsilon, that reaches it.

_NAMED = 5


def plan_for_error(
    target_error: float | None = None,
    *,
    margin: float | Mapping[str, float] | None = None,
    delta: float,
    domain: Domain | None = None,
    shape: Shape | None = None,
    users: int | None = None,
    epsilon: float | None = None,
    **choices: Unpack[PlanOptions],
) -> Plan:
    """The plan with the smallest number of users, or the smallest epsilon, whichever is left out, for an error.

    `margin` is what each mean may be off on either side at 95 %, predicted for the worst data, in its own unit, or each
    label's share: one for all, or {"age": 0.5, "income": 300}. `target_error` is instead the squared error of the mean,
    summed over coordinates, in the user's units; with an `assumed_std` it is that error at this assumed_std. The
    answer is within half a percent of the smallest. The other arguments are those of `plan`.
    """
    if (target_error is None) == (margin is None):
        raise ParameterError(
            "conflicting-arguments", "give either margin, of each mean, or target_error, squared and summed"
        )
    asked: Domain | None = None
    if target_error is None:
        assert margin is not None
        if choices.get("assumed_std") is not None:
            raise ParameterError("conflicting-arguments", "assumed_std goes with target_error, not with margin")
        asked = domain_of(domain, shape, choices.get("bounds"), choices.get("columns"))
        target_error = _squared_and_summed(margin, asked)
    check_number("target_error", target_error, above=0, below=math.inf)
    if (users is None) == (epsilon is None):
        raise ParameterError(
            "conflicting-arguments",
            "a target error asks for the smallest users or epsilon: leave out exactly one of the two",
        )
    if users is not None and choices.get("accountant") == "paper":
        raise ParameterError(
            "impossible-combination",
            "the smallest epsilon cannot be looked for with accountant='paper', whose formula jumps at epsilon = 1 and "
            "ends at 6; give epsilon and leave out users, or use accountant='exact'",
        )
    assumed_std = choices.get("assumed_std")
    least, guess, most = (1.0, 1e4, 1e10) if users is None else (1e-4, 1.0, 32.0)
    found: dict[float, Plan] = {}

    def error(value: float) -> float:
        """The least predicted error with so many users, or at this epsilon; far above the target if none is."""
        # Near a plan of numbers that is known, its coordinates and levels will do, and spare the search for them.
        near = min(found, key=lambda known: abs(math.log(known / value)), default=math.inf)
        close = 2 / 3 < near / value < 3 / 2
        options = found[near].mechanism.options() if close and found[near].domain.numbers is not None else None
        fixed: Any = {} if options is None else {"mechanism": options}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UninformativePlanWarning)
                warnings.simplefilter("ignore", ArraysAreBetterWarning)
                found[value] = plan(
                    domain=domain,
                    shape=shape,
                    delta=delta,
                    users=math.ceil(max(value, least)) if users is None else users,
                    epsilon=max(value, least) if epsilon is None else epsilon,
                    **{**choices, **fixed},
                )
        except PrivacyError:
            return 1e20 * target_error
        return predicted_error(found[value], assumed_std)

    _, enough = bracket(error, target_error, guess=guess, highest=most, tolerance=0.005, first_factor=4.0)
    if enough == math.inf:
        least_error = min((predicted_error(known, assumed_std) for known in found.values()), default=math.inf)
        wanted = _in_the_words_asked(asked, margin, target_error, least_error)
        with_up_to, knob = (
            (f"{most:.0e} users", "epsilon") if users is None else (f"epsilon = {most:g} for {users:,} users", "users")
        )
        raise PrivacyError(
            "error-out-of-reach",
            f"{wanted} is out of reach with up to {with_up_to}; accept a larger error, or raise {knob} or delta"
            + ("" if asked is None else ", or narrow what is asked: fewer numbers, closer bounds, fewer labels"),
        )
    warn_if_uninformative(found[enough])
    return found[enough]


def _squared_and_summed(margin: float | Mapping[str, float], domain: Domain) -> float:
    """The largest target at which every margin is kept; all errors are the same part of their widths."""
    numbers = domain.numbers
    if isinstance(margin, Mapping):
        columns = None if numbers is None else numbers.columns
        if columns is None or set(margin) != set(columns):
            named = "have no names" if columns is None else f"are {str(list(columns))[:200]}"
            raise ParameterError(
                "unknown-column",
                f"margin is given for {str(list(margin))[:200]}, but the numbers {named}; give one for "
                "each of them, by the same names, or one for all",
            )
        each = [margin[name] for name in columns]
    else:
        each = [margin]
    for error in each:
        check_number("margin", error, above=0, below=math.inf)
    if numbers is None:
        return (each[0] / Z_95) ** 2 * domain.dimension
    part = float(np.min(np.array(each) / numbers.width)) / Z_95
    return float(part**2 * np.sum(numbers.width**2) * domain.dimension / numbers.dimension)


def _in_the_words_asked(
    domain: Domain | None, margin: float | Mapping[str, float] | None, target: float, least: float
) -> str:
    """The error that was asked for, and the least that was found, both as whoever asked put it."""
    if domain is None or margin is None:
        return f"a squared error of {target:.4g}{_at_best(least)}"
    times = math.sqrt(least / target)  # all errors are the same part of their widths, and at the target one just fits
    numbers = domain.numbers
    if isinstance(margin, Mapping):
        assert numbers is not None  # `_squared_and_summed` saw to it
        widths = dict(zip(numbers.columns, numbers.width.tolist(), strict=True))
        part = times * min(margin[name] / width for name, width in widths.items())
        missed = [name for name, width in widths.items() if part * width > margin[name]]
        each = [f"{margin[name]:g} of {name}{_at_best(part * widths[name], '± ')}" for name in missed[:_NAMED]]
        return f"a margin of ± {', ± '.join(each)}{', ...' if len(missed) > _NAMED else ''}"
    whose = domain.entry_noun
    return f"a margin of ± {margin:g} of {whose}{_at_best(times * margin, '± ')}"


def _at_best(error: float, sign: str = "") -> str:
    return f" (at best {sign}{error:.3g})" if math.isfinite(error) else ""
