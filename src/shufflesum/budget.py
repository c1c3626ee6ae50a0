"""A budget for one population: every plan is entered before it is run, and refused when it would exceed the budget.

Plans may be chosen in view of earlier results: the sums of their costs are a privacy filter (docs/privacy.md, 21). A
list of plans that is fixed in advance may be composed exactly instead, and then nothing else can be entered.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple, Unpack

import msgspec

from shufflesum._checks import OnlyOnce, check_number, check_size
from shufflesum._format import Shown, downwards, upwards
from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.cautions import EnteredAgainWarning, warn
from shufflesum.domains import Domain
from shufflesum.errors import FileError, PlanError, PrivacyError, Problem, ReportsError, ShufflesumError
from shufflesum.ledger import Change, Ledger, Records
from shufflesum.planning import PlanOptions, Shape
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan, check_plan
from shufflesum.privacy.engine.composition import ComposedUpper, compose_dominating
from shufflesum.privacy.engine.filters import (
    BasicFilter,
    GaussianFilter,
    PrivacyCost,
    PrivacyFilter,
    RenyiFilter,
    check_guarantee,
    privacy_filters,
    total,
)
from shufflesum.privacy.engine.pld import PrivacyLossDistribution

_OWN_DELTA = Decimal("0.1")  # of the budget's, for a plan that is asked for, unless told otherwise
_STEP, _STEPS = 0.93, 63  # of the search for the largest epsilon that fits


class Budget(OnlyOnce):
    """(epsilon, delta) for everything that is ever asked of one population; in a file, or in this process alone.

    `begin` is for whoever draws anything about these people, `enter` for what will be begun later, such as a task. Both
    return once the entry is on the disk: whatever happens afterwards, it is spent. A file that is missing or damaged
    refuses everything. It must not be deleted, nor an older copy put in its place: an open budget refuses such a file,
    one that is opened afterwards cannot notice.
    """

    def __init__(
        self, epsilon: float, delta: float, *, plans: Sequence[Plan] = (), clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """With `plans`, fixed in advance and composed exactly, the budget is for just these and closed."""
        check_number("epsilon", epsilon)
        check_number("delta", delta)
        check_guarantee(epsilon, delta)
        for plan in plans:
            check_plan(plan)
        entries = _listed(epsilon, delta, plans, clock) if plans else ()
        self._start(Content(float(epsilon), float(delta), bool(plans), None, entries), None, clock)

    def _start(self, content: Content, file: BudgetFile | None, clock: Clock) -> None:
        self.path = None if file is None else file.path
        self._content, self._file, self._clock = content, file, clock
        self._mine, self._process = threading.Lock(), os.getpid()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        epsilon: float,
        delta: float,
        *,
        plans: Sequence[Plan] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> Budget:
        """Make the file of a budget; one that exists is refused."""
        budget, file = cls(epsilon, delta, plans=plans, clock=clock), BudgetFile(path)
        file.create(budget._content)
        budget._start(budget._content, file, clock)
        return budget

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> Budget:
        """The budget of a file."""
        budget, file = cls.__new__(cls), BudgetFile(path)
        budget._start(file.read(), file, clock)
        return budget

    def __str__(self) -> str:
        """What is spent, and by which plans: the same as `shufflesum budget show` prints."""
        return str(self._now())

    @property
    def epsilon(self) -> float:
        """Of everything together."""
        return self._content.epsilon

    @property
    def delta(self) -> float:
        """Of everything together."""
        return self._content.delta

    @property
    def closed(self) -> bool:
        """Whether its plans were fixed in advance, so that no other can be entered."""
        return self._now().closed

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All plans that were entered, by anybody, in order."""
        return self._now().entries

    @property
    def spent(self) -> float:
        """The part that is spent, from 0 to 1; all of it where the plans were fixed in advance."""
        return self._now().spent

    @property
    def state(self) -> str:
        """What is spent, in words; of plans that were fixed in advance, how many of their rounds were begun."""
        return self._now().state

    @property
    def parts(self) -> tuple[tuple[float, float], ...]:
        """Of each entry, the parts of both limits that it spent: of privacy loss, and of delta.

        Zeros where plans were fixed in advance: those have no parts, and all of the budget is for their list.
        """
        return self._now().parts

    def fits(self, plan: Plan) -> bool:
        """Whether a plan could be entered now; nothing is spent."""
        check_plan(plan)
        content = self._now()
        cost = _cost(content, plan)
        return cost is not None and content.admits(cost)

    def begin(self, plan: Plan, *, collection: str | None = None, run: str | None = None, rounds: int = 1) -> Entry:
        """Begin rounds of a plan: of an entry that has as many left, or else of the plan entered anew, all its rounds.

        The latter warns, where only some are taken. A `run` of the same name is found again, and costs nothing: it must
        draw nothing twice. `rounds` is how many it counts itself: all of the plan's for a shuffler's store.
        """
        check_plan(plan)
        check_size("rounds", rounds, 1, plan.rounds)
        named, again = () if run is None else (run,), False

        def change(content: Content, cost: PlanCost | None) -> EntryChange | Entry:
            nonlocal again
            places = self._places(content, plan, collection)
            for place in places:
                if run in content.entries[place].runs:
                    return content.entries[place]
            for place in places:
                entry = content.entries[place]
                if entry.begun + rounds <= entry.rounds:
                    begun, runs = entry.begun + rounds, (*entry.runs, *named)
                    return content.changed(place, collection=collection, begun=begun, runs=runs)
            again = bool(places)
            return self._entered(content, plan, collection, rounds, named, cost)

        entry = self._change(plan, change)
        if again and rounds < plan.rounds:  # who takes all at once means to
            warn(
                f"{self._name}: too few of the {plan.rounds} rounds of plan {plan.id[:12]} are left, so it was entered "
                f"again for {self.price(entry)} % of the budget; plan for more rounds if there are to be more",
                EnteredAgainWarning,
            )
        return entry

    def price(self, entry: Entry) -> str:
        """What an entry costs, all its rounds together, in per cent of the budget: for people, and never too little."""
        within = self._now().filter
        return percent(1.0 if within is None else within.part_of([entry.cost]))

    def enter(self, plan: Plan, collection: str) -> Entry:
        """Enter a plan for a collection, such as a task, before any of its rounds; once, however often it is asked.

        Another plan of the same name is refused. Whoever then draws for the collection says so with `begin`.
        """

        check_plan(plan)

        def change(content: Content, cost: PlanCost | None) -> EntryChange | Entry:
            for place in self._places(content, plan, collection):
                if content.entries[place].collection == collection:
                    return content.entries[place]
                return content.changed(place, collection=collection)
            return self._entered(content, plan, collection, 0, (), cost)

        return self._change(plan, change)

    def _places(self, content: Content, plan: Plan, collection: str | None) -> list[int]:
        """The entries of a plan for a collection, and then those that a list fixed in advance keeps for anybody."""
        own, free = list[int](), list[int]()
        for place, entry in enumerate(content.entries):
            if collection is not None and entry.collection == collection and entry.plan != plan.id:
                raise ReportsError(
                    "plan-mismatch",
                    f"{self._name}: collection {collection!r} was entered with plan {entry.plan[:12]}, not with "
                    f"{plan.id[:12]}; give another name",
                )
            if (entry.plan, entry.collection) == (plan.id, collection):
                own.append(place)
            elif (entry.plan, entry.collection, entry.begun) == (plan.id, None, 0):
                free.append(place)
        return own + free

    def ask(
        self,
        *,
        users: int,
        domain: Domain | None = None,
        shape: Shape | None = None,
        delta: float | None = None,
        **options: Unpack[PlanOptions],
    ) -> Plan:
        """The plan with the largest epsilon, within some per cent, that could still be entered; nothing is spent.

        It can be larger than the budget's own: at the larger delta of that, it guarantees more.
        """
        content = self._now()
        # in decimals: a tenth of 1e-5 is 1e-6, and not a number a little above it
        own = float(_OWN_DELTA * Decimal(repr(content.delta))) if delta is None else delta
        if content.closed:
            raise self._refusal("budget-closed", "it is for plans that were fixed in advance")
        first, found = _first(content), list[Plan]()
        why: ShufflesumError | None = None

        def fits(step: int) -> bool | None:
            nonlocal why
            try:
                plan = make_plan(
                    users=users, domain=domain, shape=shape, epsilon=first * _STEP**step, delta=own, **options
                )
                cost = _cost(content, plan)
            except PrivacyError as error:
                why = error
                return None
            if cost is None or not content.admits(cost):
                return False
            found.append(plan)
            return True

        if first > 0:
            _search(fits)
        if found:
            return max(found, key=lambda plan: plan.epsilon)
        if why is not None and not content.entries:
            raise why
        refusal = self._refusal("budget-spent", f"no plan for {users} users with delta {own:g} fits any more")
        raise refusal from why

    def _entered(
        self,
        content: Content,
        plan: Plan,
        collection: str | None,
        begun: int,
        runs: tuple[str, ...],
        cost: PlanCost | None,
    ) -> EntryChange:
        if cost is None:
            raise self._refusal(
                "budget-closed",
                f"it is for plans that were fixed in advance, and plan {plan.id[:12]} is none of them, or all its "
                "rounds were begun",
            )
        if not content.admits(cost):
            raise self._refusal(
                "budget-spent", f"plan {plan.id[:12]} (epsilon {plan.epsilon:g}, delta {plan.delta:g}) does not fit"
            )
        entry = _entry(plan, cost.cost, self._clock)
        entry = msgspec.structs.replace(entry, collection=collection, begun=begun, runs=runs)
        return EntryChange(len(content.entries), entry, Limits.of(cost.within))

    def _refusal(self, problem: Problem, what: str) -> PrivacyError:
        left = downwards(100 * max(0.0, 1 - self.spent))
        return PrivacyError(
            problem,
            f"{self._name}: {what}; {left} % is left of epsilon {self.epsilon:g}, delta "
            f"{self.delta:g}: ask for less (shufflesum budget ask says what), or stop here",
        )

    @property
    def _name(self) -> str:
        return "this budget" if self.path is None else str(self.path)

    def _now(self) -> Content:
        """What the file says now; refused unless it continues what this process read or wrote last."""
        return self._content if self._file is None else self._file.read()

    def _change(self, plan: Plan, change: Callable[[Content, PlanCost | None], EntryChange | Entry]) -> Entry:
        """Read, change and write as one step that no other process or thread comes between.

        What takes long, the charge of a plan that is new, is computed before; entries stay, so any other has one.
        """
        while True:
            cost = _cost(self._now(), plan)
            with self._alone() as (content, write):
                if cost is not None and content.filter not in (None, cost.within):
                    continue  # another plan was the first, and chose other limits
                changed = change(content, cost)
                if isinstance(changed, Entry):
                    return changed  # as it was
                write(changed)
            return changed.entry

    @contextmanager
    def _alone(self) -> Iterator[tuple[Content, Callable[[EntryChange], None]]]:
        """What it says, and where a change is written, which is on the disk after the block."""
        if self._file is not None:
            with self._file.change() as (content, ledger):
                yield content, lambda changed: ledger.append(msgspec.to_builtins(changed))
            return
        if os.getpid() != self._process:
            raise FileError(
                "in-use", "this budget is in another process, which forked this one: make a file, with Budget.create"
            )

        def write(changed: EntryChange) -> None:
            self._content = self._content.after(changed)

        with self._mine:
            yield self._content, write


def _cost(content: Content, plan: Plan) -> PlanCost | None:
    """What a plan costs; the first one chooses the filter. None where plans were fixed in advance."""
    if content.closed:
        return None
    within = content.filter
    if within is not None:
        for entry in content.entries:
            if entry.plan == plan.id:
                return PlanCost(within, entry.cost)
    costs = costs_of(plan)
    chosen = filter_for(content.epsilon, content.delta, costs) if within is None else within
    return PlanCost(chosen, costs(chosen))


def _first(content: Content) -> float:
    """The epsilon that a search begins with: were all noise Gaussian, about all that is left; 0 where nothing is."""
    within = content.filter
    if within is None:
        return content.epsilon
    spent = total(content.costs).privacy_loss / within.loss_limit
    return content.epsilon * within.epsilon_of(max(0.0, 1.0 - spent))


def _search(fits: Callable[[int], bool | None]) -> None:
    """Try steps, each of less epsilon than the one before it, until the first that fits is found.

    Those before it are too dear. None is where there is no plan: so much further that epsilon is too small for one, or
    so far before that it is too large.
    """
    dear, step = -1, 0
    while dear < step and (found := fits(step)) is False:
        dear, step = step, min(2 * step + 1, _STEPS)
    fitting = bool(found)
    while fitting and -_STEPS < dear < step <= 0 and fits(dear):
        dear, step = 2 * dear - 1, dear
    while step - dear > 1:
        middle = (dear + step) // 2
        found = fits(middle)
        fitting |= bool(found)
        dear, step = (dear, middle) if found or (found is None and not fitting) else (middle, step)


def _entry(plan: Plan, cost: PrivacyCost, clock: Clock) -> Entry:
    """A plan of which no round was begun, for anybody."""
    now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    guarantee = plan.epsilon, plan.delta, plan.users, plan.rounds
    return Entry(plan.id, *guarantee, 0, (), None, cost.privacy_loss, cost.delta, now)


def _listed(epsilon: float, delta: float, plans: Sequence[Plan], clock: Clock) -> tuple[Entry, ...]:
    """Entries of plans that are composed exactly; refused where they exceed the budget."""
    found = compose(plans).delta(epsilon)
    if not found <= delta:
        have = f"these {len(plans)} plans together have" if len(plans) > 1 else "this plan has"
        raise PrivacyError(
            "budget-spent",
            f"{have} delta {found:.3g} at epsilon {epsilon:g}, above {delta:g}; plan with more noise, or for a larger "
            "budget",
        )
    return tuple(_entry(plan, PrivacyCost(0.0, 0.0), clock) for plan in plans)


# ---- What is written down of a budget: its guarantee, and then every change of an entry, in a ledger.

_FORMAT = "shufflesum-budget-5"
_ADVICE = "as long as nobody knows what was spent, nothing can be: take all of the budget for spent"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan that was entered: what it is, what it costs, and how many of its rounds were begun.

    `collection` names what it was entered for, such as a task; it is None for whoever runs the plan. `runs` names those
    that began rounds and may go on with them: a folder of reports, a shuffler's store.
    """

    plan: str
    epsilon: float
    delta: float
    users: int
    rounds: int
    begun: int
    runs: tuple[str, ...]
    collection: str | None
    loss_cost: float
    delta_cost: float
    entered: str

    @property
    def cost(self) -> PrivacyCost:
        """What it costs."""
        return PrivacyCost(self.loss_cost, self.delta_cost)

    def describe(self) -> tuple[str, ...]:
        """Day, plan, what for, epsilon, delta and rounds, for people."""
        what = self.entered[:10], self.plan[:8], (self.collection or "run")[:13]
        return *what, upwards(self.epsilon), upwards(self.delta), f"{self.begun} of {self.rounds}"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of delta is for what may be revealed, and which privacy filter measures losses.

    That is Renyi where there is an order, basic composition where all of delta is for what may be revealed, else
    Gaussian.
    """

    delta_share: float
    order: float | None  # of the moments

    @staticmethod
    def of(within: PrivacyFilter) -> Limits:
        """The limits of a filter."""
        return Limits(within.delta_share, within.order if isinstance(within, RenyiFilter) else None)


class PlanCost(NamedTuple):
    """What a plan costs, and under which filter."""

    within: PrivacyFilter
    cost: PrivacyCost


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a budget. `closed`: its plans were fixed in advance, and composed exactly.

    Else the first plan that is entered chooses the limits for all, since no result is known then.
    """

    epsilon: float
    delta: float
    closed: bool
    limits: Limits | None
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        """What is spent, and by which plans."""
        limit = f"epsilon {upwards(self.epsilon)}, delta {upwards(self.delta)}"
        limits = () if self.closed else ("privacy loss", "delta spent")
        heads = ("", "day", "plan", "for", "epsilon", "delta", "rounds begun", *limits)
        rows = [
            [str(number), *entry.describe(), *(f"{percent(part)} %" for part in parts[: len(limits)])]
            for number, (entry, parts) in enumerate(zip(self.entries, self.parts, strict=True), start=1)
        ]
        return Shown(f"{limit} for everything that is asked; {self.state}", (), (heads, rows) if rows else None).text()

    @property
    def filter(self) -> PrivacyFilter | None:
        """What sums of costs are compared with, from the first plan on."""
        if self.limits is None:
            return None
        share, order = self.limits.delta_share, self.limits.order
        if order is not None:
            return RenyiFilter(self.epsilon, self.delta, share, order)
        if share == 1.0:
            return BasicFilter(self.epsilon, self.delta)
        return GaussianFilter(self.epsilon, self.delta, share)

    @property
    def costs(self) -> list[PrivacyCost]:
        """What all entries cost."""
        return [entry.cost for entry in self.entries]

    @property
    def parts(self) -> tuple[tuple[float, float], ...]:
        """Of each entry, the parts of both limits that it spent; zeros where plans were fixed in advance."""
        if (within := self.filter) is None:
            return ((0.0, 0.0),) * len(self.entries)
        return tuple(
            (entry.loss_cost / within.loss_limit, entry.delta_cost / within.delta_limit) for entry in self.entries
        )

    @property
    def spent(self) -> float:
        """The part that is spent, from 0 to 1; all of it where the plans were fixed in advance."""
        if self.closed:
            return 1.0
        return 0.0 if (within := self.filter) is None else within.part_of(self.costs)

    @property
    def state(self) -> str:
        """What is spent, in words; of plans that were fixed in advance, how many of their rounds were begun."""
        if not self.closed:
            return f"{percent(self.spent)} % spent"
        begun, rounds = (sum(getattr(entry, name) for entry in self.entries) for name in ("begun", "rounds"))
        return f"all for plans fixed in advance, and closed: {begun} of {rounds} rounds begun"

    def admits(self, added: PlanCost) -> bool:
        """Whether so much more may be spent."""
        return added.within.admits([*self.costs, added.cost])

    def changed(self, place: int, **changes: Any) -> EntryChange:
        """One entry changed."""
        return EntryChange(place, msgspec.structs.replace(self.entries[place], **changes), self.limits)

    def after(self, *changes: EntryChange) -> Content:
        """The budget after changes of its entries."""
        entries, limits = list(self.entries), self.limits
        for change in changes:
            if not 0 <= change.place <= len(entries):
                raise ValueError(f"there is no entry {change.place} to be changed")
            entries[change.place : change.place + 1] = [change.entry]
            limits = change.limits
        return msgspec.structs.replace(self, entries=tuple(entries), limits=limits)


class EntryChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry that is new, or as it is from now on, and the limits since then."""

    place: int
    entry: Entry
    limits: Limits | None


def percent(part: float) -> str:
    """In per cent, for people, and never too little."""
    return upwards(100 * part) if part else "0"


class BudgetFile:
    """The ledger of a budget. An older copy in its place is refused, as long as this is open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._ledger = Ledger(path, _FORMAT, "budget", _ADVICE)
        self.path = self._ledger.path

    def create(self, content: Content) -> None:
        """Make the file; one that exists is refused."""
        self._ledger.create(msgspec.to_builtins(content))

    def read(self) -> Content:
        """What it says, if nothing about it is in doubt."""
        return self._content(self._ledger.read())

    @contextmanager
    def change(self) -> Iterator[tuple[Content, Change]]:
        """What it says, while nobody else changes it, and where changes are written."""
        if not self._ledger.exists():
            self._refuse_missing()
        with self._ledger.change() as change:
            yield self._content(change.records), change

    def _refuse_missing(self) -> None:
        raise FileError("unreadable", f"{self.path}: does not exist; make one with shufflesum budget create")

    def _content(self, records: Records) -> Content:
        if not records and not self._ledger.exists():
            self._refuse_missing()
        try:
            if not records:
                raise ValueError("it says of no epsilon and delta")
            changes = msgspec.convert(records[1:], list[EntryChange])
            content = msgspec.convert(records[0], Content).after(*changes)
            check_guarantee(content.epsilon, content.delta)
            _ = content.filter  # refuses limits that are none
            if (content.limits is None) != (content.closed or not content.entries):
                raise ValueError("limits are there from the first plan on, unless plans were fixed in advance")
            if not all(
                len(set(entry.runs)) == len(entry.runs) <= entry.begun <= entry.rounds
                and entry.loss_cost >= 0
                and entry.delta_cost >= 0
                for entry in content.entries
            ):
                raise ValueError("an entry is impossible")
        except (ValueError, ShufflesumError) as error:
            raise FileError("damaged", f"{self.path}: is no budget that can be used ({error}); {_ADVICE}") from error
        return content


# ---- Several plans on the same users, together.
#
# The list is fixed before the first; what users hold may depend on results. Each plan is dominated by one PLD whatever
# its data and bounds, so that all of them are by the composition of these (docs/privacy.md, 6.1). Which plans there
# are, and their noise, must not depend on results: for that there is a budget.

_INTERVAL = 2.0**-24  # all grids are this times a power of two


def dominating_pld(plan: Plan) -> PrivacyLossDistribution:
    """A symmetric PLD that dominates all rounds of a plan, by the certified accountant."""
    _refuse_uncertified(plan)
    return plan.privacy.pld(_INTERVAL)


def _refuse_uncertified(plan: Plan) -> None:
    """Refuse a plan that only published formulas, or nobody, vouches for."""
    if plan.accountant != "exact":
        raise PlanError(
            "not-certified",
            f"a plan of accountant {plan.accountant!r} cannot be composed with others: only certified bounds can; make "
            "a plan with accountant 'exact'",
        )


def costs_of(plan: Plan) -> Callable[[PrivacyFilter], PrivacyCost]:
    """What all rounds of a plan cost under any filter: each by itself, since others may come between them."""
    _refuse_uncertified(plan)
    gaussian = plan.privacy.dominating_gaussian(plan.delta)
    if gaussian is not None:
        return lambda within: within.gaussian_cost(*gaussian, plan.rounds)
    pld = dominating_pld(replace(plan, guarantee=replace(plan.guarantee, rounds=1)))
    return lambda within: within.cost(pld, plan.rounds)


def filter_for(epsilon: float, delta: float, costs: Callable[[PrivacyFilter], PrivacyCost]) -> PrivacyFilter:
    """The filter that admits most plans like this one: for a budget that nothing was entered in, with no result yet.

    What is left after these counts as the part of such a plan's epsilon that still fits: that is more where costs grow
    with its square than where epsilons are added up.
    """

    def admitted(within: PrivacyFilter) -> float:
        plans = within.times([costs(within)])
        return math.floor(plans) + within.epsilon_of(plans - math.floor(plans))

    return max(privacy_filters(epsilon, delta), key=admitted)


def compose(plans: Sequence[Plan]) -> ComposedUpper:
    """What all rounds of all these plans together guarantee, read at any epsilon or delta."""
    return compose_dominating([dominating_pld(plan) for plan in plans])
