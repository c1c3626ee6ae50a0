"""What running roles send, draw and open under noise by servers, against an enumeration that shares no code with them.

Uploads come from the package's randomizer and tables of weights from its plans; what follows from them is enumerated.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.oracles import positions as oracle
from tests.plan_builders import with_guarantee
from tests.stat_tests import FALSE_ALARM, chi_square

import shufflesum as ss
from shufflesum import protocol
from shufflesum.cells import BLANK
from shufflesum.encodings import Positions
from shufflesum.mechanisms import NoisyTable
from shufflesum.privacy import NoiseDistribution
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.randomness import random_uints
from shufflesum.reports import Counts
from shufflesum.testing import SeededSource


@dataclass(frozen=True)
class Case:
    """A domain, what its users may hold, and the tightest guarantee at which everything can be enumerated."""

    asked: dict[str, Any]
    held: tuple[Any, ...]
    epsilon: float = 2.0
    delta: float = 0.05

    def plan(self, **options: Any) -> ss.Plan:
        """The plan for a few users."""
        options = {"users": 50, "noise_by": "servers", "mechanism": "noisy-counts", **self.asked, **options}
        return ss.plan(epsilon=self.epsilon, delta=self.delta, **options)


ABC = ("a", "b", "c")
CASES = {
    "two labels": Case({"domain": ss.Categories(ABC[:2])}, ABC[:2]),
    "three labels": Case({"domain": ss.Categories(ABC)}, ABC),
    "chosen labels": Case({"domain": ss.MultiChoice(ABC, max_choices=1)}, ([], *([x] for x in ABC))),
    "all labels may be chosen": Case(
        {"domain": ss.MultiChoice(ABC, max_choices=3)},
        tuple(list(x) for size in range(4) for x in itertools.combinations(ABC, size)),
        epsilon=3.0,
    ),
    "a survey": Case(
        {"domain": ss.Survey({"q": ["a", "b"], "r": ABC}, marginals="one-way", tables=[(0,), (1,)])},
        tuple({"q": q, "r": r} for q in ABC[:2] for r in ABC),
        5.0,
        0.2,
    ),
    "chosen answers": Case(
        {
            "domain": ss.Survey(
                {"q": ss.Question(ABC[:2], multiple=True, optional=True)},
                marginals="one-way",
                tables=[(0,), (1,), (2,)],
            )
        },
        tuple({"q": chosen} for chosen in (None, [], ["a"], ["b"], ["a", "b"])),
        3.0,
    ),
    "words": Case({"domain": ss.OpenVocabulary(width=2, depth=2)}, tuple(f"word {number}" for number in range(24))),
    "binary": Case({"shape": 1, "mechanism": NoisyTable.Options((2, 2))}, (0.0, 0.3, 0.8, 1.0)),
    "ternary": Case({"shape": 1, "mechanism": NoisyTable.Options((3,))}, (0.0, 0.3, 0.8, 1.0)),
    "mixed radices": Case({"shape": 1, "mechanism": NoisyTable.Options((4, 2))}, (0.0, 0.3, 0.5, 0.8, 1.0), 6.0, 0.2),
    "two numbers": Case(
        {"shape": 2, "mechanism": NoisyTable.Options((3,))},
        tuple(itertools.product((0.0, 0.5, 1.0), repeat=2)),
        epsilon=3.0,
        delta=0.1,
    ),
    "binary in groups": Case(
        {"domain": ss.GroupBy(ABC[:2], 1), "mechanism": NoisyTable.Options((2,))},
        tuple(itertools.product(ABC[:2], ([0.0], [1.0]))),
        epsilon=3.0,
        delta=0.1,
    ),
    "ternary in groups": Case(
        {"domain": ss.GroupBy(ABC[:2], 1), "mechanism": NoisyTable.Options((3,))},
        tuple(itertools.product(ABC[:2], ([0.0], [0.5], [1.0]))),
        epsilon=7.0,
        delta=0.2,
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """Each of the cases."""
    return CASES[request.param]


def table_of(plan: ss.Plan) -> NoisyTable:
    """The plan's mechanism."""
    assert isinstance(plan.mechanism, NoisyTable)
    return plan.mechanism


def positions_of(plan: ss.Plan) -> Positions:
    """The plan's positions."""
    assert plan.positions is not None
    return plan.positions


def rows_of(plan: ss.Plan, held: Sequence[Any]) -> Any:
    """Users who hold these, as the plan's domain takes them."""
    if isinstance(plan.domain, ss.GroupBy):
        return plan.domain.rows(tuple(map(list, zip(*held, strict=True))))
    if isinstance(plan.domain, ss.Arrays):
        return np.array(held, dtype=np.float64).reshape(len(held), -1)
    return plan.domain.rows(held)


def uploads(plan: ss.Plan, held: Sequence[Any], times: int = 8) -> list[tuple[Any, oracle.Upload]]:
    """What users who hold this are seen to send, as cells of each position; those rounded at random several times."""
    positions = positions_of(plan)
    ends = np.cumsum(positions.reports)[:-1]
    found: dict[tuple[str, oracle.Upload], Any] = {}
    randomizer = ss.Randomizer(plan, source=SeededSource(3))
    for value in held:
        for _ in range(times):
            sent = randomizer.randomize(rows_of(plan, [value])).cells
            upload = []
            for number, cells in enumerate(np.split(sent, ends)):
                first, end = positions.first[number : number + 2]
                assert all(first <= cell < end or (cell == BLANK and positions.blank[number]) for cell in cells)
                upload.append(tuple(sorted(oracle.BLANK if c == BLANK else int(c - first) for c in cells)))
            found[repr(value), tuple(upload)] = value
    return [(value, upload) for (_, upload), value in found.items()]


def enumerated(plan: ss.Plan, noise: Sequence[NoiseDistribution] | None = None) -> tuple[oracle.Position, ...]:
    """The plan's positions for the enumeration, with the plan's own weights or others."""
    positions = positions_of(plan)
    drawn = table_of(plan).noise if noise is None else noise
    return tuple(
        oracle.Position((drawn[kind].weights,) * int(size), bool(blank), int(reports))
        for size, blank, kind, reports in zip(
            positions.sizes, positions.blank, positions.noise_class, positions.reports, strict=True
        )
    )


class Profiles:
    """What the analyzer opens of one user, against another: positions are independent, so theirs are multiplied."""

    def __init__(self, positions: Sequence[oracle.Position]) -> None:
        self._positions = positions
        self._law = cache(lambda position, reports: oracle.opened([position], [(reports,)]))
        self._pair = cache(lambda *given: oracle.pair_of(self._law(given[0], given[1]), self._law(given[0], given[2])))
        self._product = cache(lambda changes: oracle.product([self._pair(*change) for change in changes]))

    def of(self, one: oracle.Upload, other: oracle.Upload) -> oracle.Pair:
        """The first user against the second; positions where they send the same say nothing."""
        changes = [change for change in zip(self._positions, one, other, strict=True) if change[1] != change[2]]
        return self._product(tuple(sorted(changes, key=repr)))


def test_what_is_claimed_holds_for_what_the_analyzer_opens(case: Case) -> None:
    plan = case.plan()
    profiles = Profiles(enumerated(plan))
    sent = {upload for _, upload in uploads(plan, case.held)}
    pairs = [profiles.of(*pair) for pair in itertools.permutations(sent, 2)]
    for epsilon in (0.0, plan.epsilon / 2, plan.epsilon, 1.5 * plan.epsilon):
        worst = max(pair.delta(Fraction(math.exp(epsilon))) for pair in {id(pair): pair for pair in pairs}.values())
        bounds = plan.privacy.delta(epsilon)
        slack = Fraction(1, 10**14)
        assert Fraction(bounds.lower) * (1 - slack) <= worst <= Fraction(bounds.upper) * (1 + slack)
        if epsilon == plan.epsilon:
            assert worst <= Fraction(plan.delta)
            assert bounds.upper <= float(worst) * 1.02


def test_a_user_changes_as_many_cells_of_each_class_as_is_said(case: Case) -> None:
    plan = case.plan()
    positions = positions_of(plan)
    layout = enumerated(plan)
    most = np.zeros(len(positions.changed), dtype=np.int64)
    for (_, one), (_, other) in itertools.combinations(uploads(plan, case.held), 2):
        before, after = (np.array(oracle.counts(layout, [upload])) for upload in (one, other))
        assert np.abs(before - after).max(initial=0) <= 1
        changed = np.bincount(positions.class_of_cells, before != after, len(positions.changed))
        assert (changed <= positions.changed).all()
        most = np.maximum(most, changed.astype(np.int64))
    assert most.tolist() == list(positions.changed)


@pytest.mark.long
def test_less_noise_than_planned_fails(case: Case) -> None:
    # the sabotaged twin: the noise of a plan for a user who changes one cell less, or two percent less of it
    plan = case.plan()
    less = [NoiseDistribution(n.shape, n.scale * 0.95, n.half_length) for n in table_of(plan).noise]
    sent = {upload for _, upload in uploads(plan, case.held)}
    weight = Fraction(math.exp(plan.epsilon))
    profiles = Profiles(enumerated(plan, less))
    assert max(profiles.of(*pair).delta(weight) for pair in itertools.permutations(sent, 2)) > plan.delta


# ---- the shuffler in memory ------------------------------------------------------------------------------------------

SHUFFLES = 2500
SHORT = NoiseDistribution(1.0, 1.0, 1)


def short(case: Case, **options: Any) -> ss.Plan:
    """A plan that claims nothing, with so little noise that all orders of all reports can be listed."""
    plan = case.plan(**options)
    mechanism = replace(table_of(plan), noise=(SHORT,) * len(table_of(plan).noise))
    return with_guarantee(ss.Plan(plan.domain, mechanism, plan.guarantee), accountant="none")


def shuffled(plan: ss.Plan, held: Sequence[Any], seed: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """What a shuffler hands on of these users, again and again: the reports of each position, in order."""
    source = SeededSource(seed)
    positions = positions_of(plan)
    reports = ss.Randomizer(plan, source=source).randomize(rows_of(plan, held))
    for _ in range(SHUFFLES):
        sent = protocol.shuffle(reports, plan=plan, source=source)
        assert sent.by_position is not None
        parts = np.split(sent.cells, np.cumsum(sent.by_position)[:-1])
        yield tuple(
            tuple(oracle.BLANK if cell == BLANK else int(cell - first) for cell in part)
            for first, part in zip(positions.first, parts, strict=False)
        )


def agreement(plan: ss.Plan, held: Sequence[Any], seed: int = 1) -> float:
    """How likely orders as far off as those seen are, if every position has its own permutation of what is enumerated.

    Positions are independent given what users hold, so the law of all orders is a product.
    """
    sent = [next(upload for value, upload in uploads(plan, [one], times=1)) for one in held]
    laws = [oracle.ordered(at, [(user[number],) for user in sent]) for number, at in enumerate(enumerated(plan))]
    chances: dict[Any, float] = {}
    for orders in itertools.product(*(law.items() for law in laws)):
        total = math.prod(sum(law.values()) for law in laws)
        chances[tuple(order for order, _ in orders)] = float(Fraction(math.prod(ways for _, ways in orders), total))
    seen = Counter(shuffled(plan, held, seed))
    if set(seen) - set(chances):
        return 0.0
    often = [view for view, chance in chances.items() if chance * SHUFFLES >= 5]
    observed = np.array([seen[view] for view in often], dtype=np.float64)
    expected = np.array([chances[view] for view in often])
    rest = 1 - expected.sum()
    if rest * SHUFFLES < 5:  # too little to be a cell of its own
        return chi_square(observed, expected / expected.sum())
    return chi_square([*observed, SHUFFLES - observed.sum()], [*expected, rest])


IN_ORDER = {
    "labels": (CASES["two labels"], ("a", "b")),
    "chosen labels": (Case({"domain": ss.MultiChoice(ABC[:2], max_choices=2)}, ()), (["a", "b"], [])),
}


@pytest.mark.long
@pytest.mark.parametrize("name", IN_ORDER)
def test_the_shuffler_hands_on_what_is_enumerated(name: str) -> None:
    case, held = IN_ORDER[name]
    assert agreement(short(case), held) > FALSE_ALARM


def _linked(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = protocol._shuffle
    at_first: list[int] = []

    def same(items: Any, source: Any) -> None:
        if not at_first:
            at_first.append(int(random_uints(source, 1, np.uint32)[0]))
            honest(items, SeededSource(at_first[0]))
        else:
            honest(items, SeededSource(at_first.pop()))

    monkeypatch.setattr(protocol, "_shuffle", same)


def _unpadded(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = protocol.added_reports
    monkeypatch.setattr(protocol, "added_reports", lambda *given: [part[part != BLANK] for part in honest(*given)])


def _unpermuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_shuffle", lambda items, source: None)


def _permuted_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = protocol._shuffle
    monkeypatch.setattr(protocol, "_shuffle", lambda items, source: honest(items[: len(items) // 2], source))


def _other_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        NoisyTable, "draw", lambda self, encoding, source: np.ones(self.cells(encoding), dtype=np.int64)
    )


def _noise_once(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = NoisyTable.draw

    def same(self: NoisyTable, encoding: Any, source: Any) -> Any:
        return np.repeat(honest(self, encoding, source)[:1], self.cells(encoding))

    monkeypatch.setattr(NoisyTable, "draw", same)


@pytest.mark.long
@pytest.mark.parametrize("sabotage", [_linked, _unpadded, _unpermuted, _permuted_as_a_whole, _other_noise, _noise_once])
def test_a_sabotaged_shuffler_is_noticed(sabotage: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    case, held = IN_ORDER["chosen labels"]
    assert agreement(short(case), held) < FALSE_ALARM


# ---- the analyzer in memory ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("case", [CASES["three labels"], CASES["chosen labels"]], ids=["a position", "three"])
def test_the_analyzers_table_is_that_of_the_shuffler_and_a_draw_of_its_own(case: Case) -> None:
    held = case.held[:2]
    plan = short(case)
    reports = ss.Randomizer(plan).randomize(rows_of(plan, held))
    sent = protocol.shuffle(reports, plan=plan)
    once = np.bincount(sent.cells[sent.cells != BLANK], minlength=plan.cells)
    seen = np.zeros((SHUFFLES, plan.cells), dtype=np.int64)
    source = SeededSource(5)
    for number in range(SHUFFLES):
        counts = Counts(plan, source=source)
        counts.add(sent)
        seen[number] = counts.table - once
    joint = Counter(map(tuple, seen.tolist()))
    outcomes = list(itertools.product(range(3), repeat=plan.cells))
    assert set(joint) <= set(outcomes)
    for drawn, agrees in ((SHORT, True), (NoiseDistribution(1.0, 0.8, 1), False)):  # the second is the wrong twin
        chances = [math.prod(drawn.weights[cell] / 2**128 for cell in outcome) for outcome in outcomes]
        assert (chi_square([joint[outcome] for outcome in outcomes], chances) > FALSE_ALARM) is agrees


# ---- planned noise ---------------------------------------------------------------------------------------------------

VARIANCES = {
    "a label": (ss.Categories(50), {0.5: 31.83, 1.0: 7.835, 2.0: 1.841, 4.0: 0.362}),
    "two of many labels": (ss.MultiChoice(10, max_choices=2), {0.5: 127.8, 1.0: 31.83, 2.0: 7.835, 4.0: 1.841}),
    "any of ten labels": (ss.MultiChoice(10, max_choices=10), {0.5: 590.5, 1.0: 159.0, 2.0: 42.93, 4.0: 11.54}),
    "ten of a bag": (ss.MultiChoice(100, max_choices=10), {0.5: 1265, 1.0: 345.8, 2.0: 95.70, 4.0: 27.09}),
}
"""The least variance of a cell's noise at delta = 1e-6."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "epsilon"), [(name, epsilon) for name, (_, row) in VARIANCES.items() for epsilon in row]
)
def test_plans_have_the_least_noise(name: str, epsilon: float) -> None:
    domain, row = VARIANCES[name]
    plan = ss.plan(domain=domain, users=1000, epsilon=epsilon, delta=1e-6, noise_by="shuffler")
    (noise,) = table_of(plan).noise
    assert noise.variance == pytest.approx(row[epsilon], rel=0.005)
    twice = ss.plan(domain=domain, users=1000, epsilon=epsilon, delta=1e-6, noise_by="servers")
    assert twice.expected_error.noise == pytest.approx(2 * plan.expected_error.noise)


@pytest.mark.long
@pytest.mark.parametrize("digits", [1, 3])
@pytest.mark.parametrize("coordinates", [5, 10, 100, 1000])
def test_ternary_digits_bring_no_more_noise_than_a_curator(coordinates: int, digits: int) -> None:
    plan = ss.plan(
        shape=coordinates,
        users=50_000,
        epsilon=1.0,
        delta=1e-6,
        noise_by="shuffler",
        mechanism=NoisyTable.Options((3,) * digits),
        max_dummies=10**9,
    )
    analytic = coordinates**2 * gaussian_noise(plan.epsilon, plan.delta) ** 2 / plan.users**2
    assert plan.expected_error.noise <= 1.003 * analytic
