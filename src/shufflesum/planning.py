"""The planner: number of reports, levels and noise for the least predicted error at the privacy asked for.

Every choice it returns is certified. To find where to look it uses a quick approximation (the sum of all privacy
losses as a normal variable), then it climbs with certified noise probabilities only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum.accuracy import coordinate_error
from shufflesum.contract import (
    MAX_CELLS,
    MAX_LEVELS,
    MAX_ROUNDS,
    MAX_USERS,
    Accountant,
    Guarantee,
    Plan,
    Sampling,
)
from shufflesum.domain import Domain, Structure
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.replace import MOST_COMPOSITIONS, MOST_LEVELS, guess_noise_probability, published

__all__ = ["UninformativePlanWarning", "alternatives", "plan", "plan_for_error"]


class UninformativePlanWarning(UserWarning):
    """The predicted error is larger than that of guessing the middle of the bounds."""


def plan(
    *,
    users: int,
    shape: int | Sequence[int] | Structure,
    epsilon: float,
    delta: float,
    bounds: tuple[ArrayLike, ArrayLike] = (0.0, 1.0),
    reports: int | None = None,
    max_reports: int | None = None,
    levels: int | None = None,
    sampling: Sampling | None = None,
    accountant: Accountant = "exact",
    honest_fraction: float = 1.0,
    rounds: int = 1,
    spread: float | None = None,
) -> Plan:
    """A plan for collecting arrays of `shape` from at least `users` users under (epsilon, delta).

    What is left open (`reports` up to `max_reports`, `levels`) is chosen for the least predicted worst-case error of
    the mean, or for data whose users differ by a `spread` that is publicly known: their standard deviation in every
    coordinate. `accountant="paper"` uses the published formulas as they stand. Bounds are public: choose them from what
    the values can be, never from the data.
    """
    check_size("users", users, 1, MAX_USERS)
    check_size("rounds", rounds, 1, MAX_ROUNDS)
    domain = Domain.of(shape, bounds)
    check_choice("accountant", accountant, ("exact", "paper"))
    guarantee = Guarantee(epsilon, delta, accountant)
    for name, count in (("reports", reports), ("max_reports", max_reports)):
        if count is not None:
            check_size(name, count, 1, domain.dimension if name == "reports" else MAX_CELLS)
    if reports is not None and max_reports is not None and reports > max_reports:
        raise ParameterError(f"reports is {reports}, above max_reports = {max_reports}; change one of them")
    most = min(MOST_LEVELS if accountant == "exact" else MAX_LEVELS, MAX_CELLS // domain.dimension - 2)
    if most < 1:
        raise ParameterError(f"dimension {domain.dimension} is too large for the report format (2**32 cells); lower it")
    if levels is not None:
        check_size("levels", levels, 1, most)
    if sampling is not None:
        check_choice("sampling", sampling, ("stratified", "uniform"))
    base = Plan(
        users=users,
        domain=domain,
        reports=1,
        levels=1,
        noise_probability=1.0,
        sampling=sampling or "stratified",
        guarantee=guarantee,
        honest_fraction=honest_fraction,
        rounds=rounds,
    )
    if spread is not None:
        base.error_at_spread(spread)  # refuses what is none
    if accountant == "paper":
        chosen = _published(base, reports or 1, levels, sampling)
    else:
        composable = max(1, MOST_COMPOSITIONS // base.rounds)
        cap = min(max_reports or domain.dimension, domain.dimension, composable)
        grid = [levels] if levels else None
        chosen = _Search(base, [reports] if reports else _halvings(cap), grid, spread).best()
    _warn_if_uninformative(chosen)
    return chosen


def plan_for_error(
    target_error: float,
    *,
    shape: int | Sequence[int] | Structure,
    delta: float,
    users: int | None = None,
    epsilon: float | None = None,
    reports: int | None = None,
    levels: int | None = None,
    spread: float | None = None,
    **arguments: Any,
) -> Plan:
    """The plan with the smallest number of users, or the smallest epsilon, whichever is left out, for an error.

    `target_error` is the predicted squared error of the mean, summed over coordinates, in the user's units. The answer
    is within half a percent of the smallest. With a `spread` it is that error at this spread. The other arguments are
    those of `plan`.
    """
    check_number("target_error", target_error)
    if not 0 < target_error < math.inf:
        raise ParameterError(f"target_error is {target_error}; it must be positive and finite")
    if (users is None) == (epsilon is None):
        raise ParameterError("a target error asks for the smallest users or epsilon: leave out exactly one of the two")

    if users is not None and arguments.get("accountant") == "paper":
        raise ParameterError(
            "the smallest epsilon cannot be looked for with accountant='paper', whose formula jumps at epsilon = 1 and "
            "ends at 6; give epsilon and leave out users, or use accountant='exact'"
        )

    def certified(value: float, near: Plan | None) -> Plan | None:
        """The plan at this many users, or this epsilon; with the reports and levels of a plan near it, if given."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UninformativePlanWarning)
                return plan(
                    shape=shape,
                    delta=delta,
                    users=math.ceil(value) if users is None else users,
                    epsilon=value if epsilon is None else epsilon,
                    reports=near.reports if near else reports,
                    levels=near.levels if near else levels,
                    spread=spread,
                    **arguments,
                )
        except PrivacyError:
            return None

    def excess(found: Plan | None) -> float:
        """The logarithm of error over target, which falls in users and in epsilon."""
        return 50.0 if found is None else math.log(_error(found, spread) / target_error)

    # The error is nearly a power law: straight lines between logarithms home in on the target from both sides.
    least, value, most = (1.0, 1e4, 1e10) if users is None else (1e-4, 1.0, 32.0)
    below: tuple[float, float] | None = None
    above: tuple[float, float, Plan] | None = None
    near: Plan | None = None
    while True:
        found = certified(value, near)
        if found is not None and excess(found) <= 0:
            above = (value, excess(found), found)
        else:
            below = (value, excess(found))
        if above and (value <= least or (below and _adjacent(below[0], above[0], whole=users is None))):
            _warn_if_uninformative(above[2])
            return above[2]
        if below and value >= most:
            raise PrivacyError(
                f"a squared error of {target_error} is out of reach with up to "
                + (f"{most:.0e} users; raise epsilon" if users is None else f"epsilon = {most:g}; raise users")
                + ", delta or the target error"
            )
        if below and above:
            near = above[2] if above[0] / below[0] < 1.5 else None
            share = min(max(below[1] / (below[1] - above[1]), 0.1), 0.9)
            value = below[0] * (above[0] / below[0]) ** share
        else:
            value = min(
                max(value * math.exp(max(-3.0, min(3.0, excess(found) + math.copysign(0.05, excess(found))))), least),
                most,
            )


def _adjacent(low: float, high: float, *, whole: bool) -> bool:
    return high / low < 1.005 or (whole and math.ceil(high) - math.ceil(low) <= 1)


def alternatives(chosen: Plan) -> list[Plan]:
    """The same collection with d, d/2, d/4, ... reports per user, each at its own levels and certified noise."""
    search = _Search(chosen, _halvings(chosen.dimension), None)
    return [search.best_with(reports) for reports in search.reports]


def _warn_if_uninformative(chosen: Plan) -> None:
    if chosen.worse_than_guessing:
        warnings.warn(
            "with this plan the estimate can be worse than guessing the middle of the bounds; "
            "more users, a larger epsilon or fewer coordinates would help",
            UninformativePlanWarning,
            stacklevel=3,
        )


def _published(base: Plan, reports: int, levels: int | None, sampling: Sampling | None) -> Plan:
    """The paper's own choice: levels by its formula, uniform sampling for several reports."""
    sampling = sampling or ("uniform" if reports > 1 else "stratified")
    levels = levels or published.published_levels(
        users=base.honest_users,
        dimension=base.dimension,
        coordinates=reports,
        epsilon=base.epsilon,
        delta=base.delta,
    )
    plan = replace(base, reports=reports, levels=levels, sampling=sampling)
    noise_probability = plan.privacy.published_noise_probability(base.epsilon, base.delta)
    if noise_probability == 1:
        raise PrivacyError("the published noise probability is 1: reports would carry nothing; raise users or epsilon")
    return replace(plan, noise_probability=noise_probability)


@dataclass
class _Search:
    """Climbs over (reports, levels) to the least predicted error, certifying each point it visits once."""

    base: Plan
    reports: list[int]
    levels: list[int] | None
    spread: float | None = None
    _visited: dict[tuple[int, int], Plan] = field(default_factory=dict)

    def best_with(self, reports: int) -> Plan:
        """The certified plan with this many reports, at the levels that the guess prefers."""
        grid = self.levels or _level_grid(self.base.dimension)
        return self._certified(reports, min(grid, key=lambda levels: self._guessed_error(reports, levels)))

    def best(self) -> Plan:
        """The certified plan with the least predicted error that the climb finds."""
        grid = self.levels or _level_grid(self.base.dimension)
        start = min(product(self.reports, grid), key=lambda point: self._guessed_error(*point))
        # Single-coordinate blocks with one level have a tighter bound of their own, which the guess does not know.
        candidates = [start, *((t, 1) for t in self.reports[:1] if 1 in grid)]
        best = min((self._certified(*point) for point in candidates), key=self._error)
        improved = True
        while improved:
            improved = False
            for point in self._neighbours(best):
                rival = self._certified(*point)
                if self._error(rival) < self._error(best):
                    best, improved = rival, True
        if not math.isfinite(self._error(best)):
            raise PrivacyError(
                f"no noise probability below 1 is certified for epsilon = {best.epsilon}, delta = {best.delta} with "
                f"{best.honest_users} honest users and {best.reports} reports each; "
                "raise users or epsilon, or lower reports"
            )
        return best

    def _neighbours(self, plan: Plan) -> list[tuple[int, int]]:
        place = self.reports.index(plan.reports)
        others = [t for t in self.reports[max(0, place - 1) : place + 2] if t != plan.reports]
        points = [(t, plan.levels) for t in others]
        if self.levels is None:
            step = max(1, plan.levels // 16)
            near = {plan.levels - step, plan.levels - 1, plan.levels + 1, plan.levels + step}
            most = min(MOST_LEVELS, MAX_CELLS // plan.dimension - 2)
            points += [(plan.reports, k) for k in sorted(near) if 1 <= k <= most]
        return points

    def _certified(self, reports: int, levels: int) -> Plan:
        if (reports, levels) not in self._visited:
            plan = replace(self.base, reports=reports, levels=levels)
            gamma = plan.privacy.smallest_noise_probability(plan.epsilon, plan.delta)
            self._visited[reports, levels] = replace(plan, noise_probability=gamma)
        return self._visited[reports, levels]

    def _guessed_error(self, reports: int, levels: int) -> float:
        base = self.base
        users_per_loss = base.honest_users / ((levels + 1) * reports * base.rounds)
        gamma = guess_noise_probability(users_per_loss, base.epsilon, base.delta)
        probability = min(1.0, reports / base.dimension)
        width = math.sqrt(float(np.mean(base.domain.width**2)))
        apart = None if self.spread is None else min(self.spread / width, 0.5)
        return coordinate_error(base.users, probability, levels, gamma, apart).total

    def _error(self, plan: Plan) -> float:
        return _error(plan, self.spread)


def _error(plan: Plan, spread: float | None) -> float:
    return (plan.expected_error if spread is None else plan.error_at_spread(spread)).total


def _halvings(cap: int) -> list[int]:
    """cap, cap/2, cap/4, ..., 1: the error is flat enough in the number of reports."""
    counts = [cap]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


def _level_grid(dimension: int) -> list[int]:
    most = min(MOST_LEVELS, MAX_CELLS // dimension - 2)
    return sorted({k for k in (round(1.25**i) for i in range(31)) if k <= most} | set(range(1, min(8, most) + 1)))
