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
from decimal import Decimal
from typing import Unpack

import msgspec

from shufflesum._checks import OnlyOnce, check_number, check_size
from shufflesum._format import downwards
from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.budget_file import BudgetFile, Content, Entry, EntryChange, Limits, PlanCost, percent
from shufflesum.cautions import EnteredAgainWarning, warn
from shufflesum.compositions import compose, costs_of, filter_for
from shufflesum.domains import Domain
from shufflesum.errors import FileError, PrivacyError, Problem, ReportsError, ShufflesumError
from shufflesum.planning import PlanOptions, Shape
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan, check_plan
from shufflesum.privacy.engine.filters import PrivacyCost, check_guarantee, total

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
    spent = 0.0 if within is None else total(content.costs).privacy_loss / within.loss_limit
    return content.epsilon * math.sqrt(max(0.0, 1.0 - spent))


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
