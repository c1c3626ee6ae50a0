"""What each server sees of noise that servers draw, by enumeration of tiny tables: all data, all neighbours.

The enumeration shares no code with the package. That the package does what is enumerated here is tested beside
the mechanism.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from tests.oracles import noise_distribution
from tests.oracles import positions as oracle
from tests.oracles.positions import BLANK, Domain, Position

SHORT, STEEP, FLAT = (1, 2, 1), (1, 4, 14, 4, 1), (2, 3, 3, 3, 2)
WEIGHTS = [Fraction(1), Fraction(3, 2), Fraction(4), Fraction(20)]

DOMAINS = {
    "categories": (oracle.categories(STEEP, 3), 2, 3),
    "one function": (oracle.vocabulary(STEEP, [(0, 1, 1)], 2), 2, 3),
    "two functions": (oracle.vocabulary(SHORT, [(0, 1, 0), (1, 0, 0)], 2), 4, 2),
    "choices": (oracle.choices(STEEP, 2, 1), 2, 3),
    "all choices": (oracle.choices(SHORT, 3, 3), 3, 2),
    "a bag": (oracle.bag(FLAT, 2, 1), 2, 3),
    "a larger bag": (oracle.bag(SHORT, 3, 2), 3, 2),
    "binary": (oracle.numbers([SHORT, STEEP], [2, 2], 1), 2, 3),
    "ternary": (oracle.numbers([STEEP], [3], 1), 2, 3),
    "ternary and binary": (oracle.numbers([STEEP, SHORT], [3, 2], 1), 3, 2),
    "two ternary digits": (oracle.numbers([SHORT, SHORT], [3, 3], 1), 4, 1),
    "quaternary": (oracle.numbers([SHORT], [4], 1), 2, 3),
    "two coordinates": (oracle.numbers([SHORT], [3], 2), 4, 2),
    "binary in groups": (oracle.grouped([SHORT], [2], 1, 2, SHORT), 4, 2),
    "ternary in groups": (oracle.grouped([SHORT], [3], 1, 2, SHORT), 4, 1),
}
"""Domain, how many cells a user changes at most, and how many users there are in all."""


def laws(domain: Domain, view: Callable[..., oracle.Law], **options: Any) -> Callable[..., oracle.Law]:
    """The law of each data set, once."""
    found: dict[Any, oracle.Law] = {}

    def law_of(data: tuple[oracle.Upload, ...]) -> oracle.Law:
        key = tuple(sorted(data))
        if key not in found:
            found[key] = view(domain.positions, data, **options)
        return found[key]

    return law_of


def malicious(domain: Domain) -> list[oracle.Upload]:
    """Some of everything that malicious users may send: contradictions, no cells, blanks everywhere."""
    return list(itertools.islice(domain.anything, 0, None, max(1, sum(1 for _ in domain.anything) // 12)))


@pytest.mark.parametrize("name", DOMAINS)
def test_what_the_analyzer_opens_says_no_more_than_the_noisy_table(name: str) -> None:
    domain, _, most = DOMAINS[name]
    for users in range(1, most + 1):
        view, table = laws(domain, oracle.opened), laws(domain, oracle.noisy)
        for one, other in oracle.neighbours(domain, users, malicious(domain)):
            seen = oracle.levels(WEIGHTS, view(one), view(other))
            assert seen == oracle.levels(WEIGHTS, table(one), table(other)), (one, other)


@pytest.mark.parametrize("name", DOMAINS)
def test_the_worst_neighbours_change_as_many_cells_as_is_said(name: str) -> None:
    domain, changed, most = DOMAINS[name]
    worst = [Fraction(0)] * len(WEIGHTS)
    most_changed = 0
    table = laws(domain, oracle.noisy)
    for one, other in oracle.neighbours(domain, most):
        found = oracle.levels(WEIGHTS, table(one), table(other))
        worst = [max(pair) for pair in zip(worst, found, strict=True)]
        before, after = (oracle.counts(domain.positions, data) for data in (one, other))
        assert all(abs(x - y) <= 1 for x, y in zip(before, after, strict=True))
        most_changed = max(most_changed, sum(x != y for x, y in zip(before, after, strict=True)))
    assert most_changed == changed
    if len({position.tables[0] for position in domain.positions}) == 1:
        certified = [
            noise_distribution.delta([domain.positions[0].tables[0]] * changed, (1,) * changed, w) for w in WEIGHTS
        ]
        assert worst == certified
    # neither the number of users nor their data matters
    alone = [
        oracle.levels(WEIGHTS, oracle.noisy(domain.positions, one), oracle.noisy(domain.positions, other))
        for one, other in oracle.neighbours(domain, 1)
    ]
    assert worst == [max(found) for found in zip(*alone, strict=True)]


@pytest.mark.parametrize("name", [n for n, (domain, *_) in DOMAINS.items() if domain.positions[0].blank])
def test_without_padding_the_number_of_blanks_gives_everything_away(name: str) -> None:
    # the sabotaged twin of what is opened: dummies, but no blanks among them
    domain, _, most = DOMAINS[name]
    for users in range(1, most + 1):
        view = laws(domain, oracle.opened, padding=False)
        worst = [Fraction(0)] * len(WEIGHTS)
        for one, other in oracle.neighbours(domain, users):
            blanks = [[user[0].count(BLANK) for user in data] for data in (one, other)]
            found = oracle.levels(WEIGHTS, view(one), view(other))
            if sum(blanks[0]) != sum(blanks[1]):
                assert set(found) == {1}
            worst = [max(pair) for pair in zip(worst, found, strict=True)]
        assert set(worst) == {1}


@pytest.mark.parametrize("short", [1, 2])
def test_padding_to_less_than_the_largest_number_gives_something_away(short: int) -> None:
    # the sabotaged twin: blanks up to a total that is sometimes exceeded, when none are added
    domain = oracle.numbers([STEEP], [3], 1)
    (position,) = domain.positions

    def view(positions: Sequence[Position], users: Sequence[oracle.Upload]) -> oracle.Law:
        def seen(draw: tuple[int, ...]) -> Any:
            blanks = max(0, position.most - short - sum(draw))
            reports = [r for ((r,),) in users] + oracle.dummies(position, draw, padding=False) + [BLANK] * blanks
            return tuple(sorted(reports))

        return oracle.law(oracle.all_tables(positions), seen)

    found = [
        (oracle.levels(WEIGHTS, view(domain.positions, one), view(domain.positions, other)),
         oracle.levels(WEIGHTS, oracle.noisy(domain.positions, one), oracle.noisy(domain.positions, other)))
        for one, other in oracle.neighbours(domain, 2)
    ]  # fmt: skip
    assert any(seen[-1] > table[-1] for seen, table in found)


@pytest.mark.parametrize("blank", [False, True])
def test_one_permutation_for_all_positions_links_what_a_user_sends(blank: bool) -> None:
    # the sabotaged twin: which reports are beside each other says more than the noisy table
    without = oracle.vocabulary(SHORT, [(0, 1, 0, 1), (1, 0, 0, 1)], 2)
    domain = oracle.numbers([SHORT, SHORT], [3, 3], 1) if blank else without
    view = laws(domain, oracle.opened, linked=True)
    table = laws(domain, oracle.noisy)
    beyond = 0
    for one, other in oracle.neighbours(domain, 2):
        linked, certified = (oracle.levels(WEIGHTS, law(one), law(other)) for law in (view, table))
        assert all(x >= y for x, y in zip(linked, certified, strict=True))
        beyond += any(x > y for x, y in zip(linked, certified, strict=True))
    assert beyond
    worst_linked = max(oracle.levels(WEIGHTS, view(x), view(y))[0] for x, y in oracle.neighbours(domain, 2))
    worst_table = max(oracle.levels(WEIGHTS, table(x), table(y))[0] for x, y in oracle.neighbours(domain, 2))
    assert worst_linked > worst_table


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("users", [1, 2])
def test_the_order_of_what_is_opened_says_nothing_further(blank: bool, users: int) -> None:
    # with all permutations gone through, not only their result
    domain = oracle.bag((1, 2), 2, 1) if blank else oracle.categories(SHORT, 2)
    (position,) = domain.positions
    for one, other in oracle.neighbours(domain, users):
        found = oracle.levels(WEIGHTS, oracle.ordered(position, one), oracle.ordered(position, other))
        assert found == oracle.levels(
            WEIGHTS, oracle.opened(domain.positions, one), oracle.opened(domain.positions, other)
        )


def test_dummies_at_the_end_of_a_list_are_known() -> None:
    # the sabotaged twin: users' reports come first
    domain = oracle.categories(SHORT, 2)
    (position,) = domain.positions

    def view(users: Sequence[oracle.Upload]) -> oracle.Law:
        return oracle.law(
            oracle.all_tables(domain.positions),
            lambda draw: (tuple(sorted(r for ((r,),) in users)), tuple(oracle.dummies(position, draw))),
        )

    assert oracle.levels(WEIGHTS, view([((0,),)]), view([((1,),)])) == [1] * len(WEIGHTS)


# ---- what the shuffler's operator sees -------------------------------------------------------------------------------

SERVED = {
    "categories": oracle.categories(SHORT, 2),
    "choices": oracle.choices(STEEP, 2, 2),
    "ternary": oracle.numbers([SHORT], [3], 1),
    "groups": oracle.grouped([SHORT], [2], 1, 2, SHORT),
}


def operator(domain: Domain, users: Sequence[oracle.Upload], *, analyzer_draws: bool = True) -> oracle.Law:
    """What the shuffler drew, and what is published."""
    tables = oracle.all_tables(domain.positions)
    true = oracle.counts(domain.positions, users)
    second = tables if analyzer_draws else []

    def view(draws: tuple[int, ...]) -> Any:
        own, others = draws[: len(tables)], draws[len(tables) :] or (0,) * len(tables)
        return own, oracle.plus(true, own, others)

    return oracle.law([*tables, *second], view)


@pytest.mark.parametrize("name", SERVED)
def test_the_operator_of_the_shuffler_learns_what_the_analyzers_noise_leaves(name: str) -> None:
    domain = SERVED[name]
    for one, other in oracle.neighbours(domain, 1):
        seen = oracle.levels(WEIGHTS, operator(domain, one), operator(domain, other))
        assert seen == oracle.levels(
            WEIGHTS, oracle.noisy(domain.positions, one), oracle.noisy(domain.positions, other)
        )


def test_noise_of_the_shuffler_alone_hides_nothing_from_its_operator() -> None:
    # the sabotaged twin, and what a plan says of noise_by="shuffler"
    domain = SERVED["categories"]
    for one, other in oracle.neighbours(domain, 2):
        seen = (operator(domain, data, analyzer_draws=False) for data in (one, other))
        assert oracle.levels(WEIGHTS, *seen) == [1] * len(WEIGHTS)


def test_the_public_learns_less_than_either_server() -> None:
    domain = SERVED["choices"]
    tables = oracle.all_tables(domain.positions)

    def published(users: Sequence[oracle.Upload]) -> oracle.Law:
        true = oracle.counts(domain.positions, users)
        return oracle.law([*tables, *tables], lambda d: oracle.plus(true, d[: len(tables)], d[len(tables) :]))

    for one, other in oracle.neighbours(domain, 1):
        public = oracle.levels(WEIGHTS, published(one), published(other))
        server = oracle.levels(WEIGHTS, operator(domain, one), operator(domain, other))
        assert all(x <= y for x, y in zip(public, server, strict=True))


def test_an_exact_number_of_blanks_beside_the_result_voids_it() -> None:
    # the sabotaged twin: an analyzer that shows it, in a metric, a log line or a file; the operator takes off its own
    domain = SERVED["ternary"]
    tables = oracle.all_tables(domain.positions)

    def seen(users: Sequence[oracle.Upload]) -> oracle.Law:
        true = oracle.counts(domain.positions, users)
        blanks = sum(r == BLANK for ((r,),) in users)
        return oracle.law([*tables, *tables], lambda d: (d[:2], oracle.plus(true, d[:2], d[2:]), blanks))

    assert oracle.levels(WEIGHTS, seen([((BLANK,),)]), seen([((0,),)])) == [1] * len(WEIGHTS)


# ---- one draw for one set of reports ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["categories", "ternary"])
def test_two_draws_over_the_same_reports_are_two_rounds(name: str) -> None:
    domain = SERVED[name]
    positions = domain.positions
    tables = oracle.all_tables(positions)

    def twice(users: Sequence[oracle.Upload]) -> oracle.Law:
        return oracle.law(
            [*tables, *tables],
            lambda d: (
                oracle.batch(positions, users, d[: len(tables)]),
                oracle.batch(positions, users, d[len(tables) :]),
            ),
        )

    for one, other in oracle.neighbours(domain, 1):
        again = oracle.levels(WEIGHTS, twice(one), twice(other))
        pairs = [oracle.pair_of(oracle.noisy(positions, x), oracle.noisy(positions, y)) for x, y in [(one, other)]]
        pairs.append(oracle.pair_of(oracle.noisy(positions, other), oracle.noisy(positions, one)))
        assert again == [max(oracle.product([pair, pair]).delta(w) for pair in pairs) for w in WEIGHTS]
        once = oracle.levels(WEIGHTS, oracle.noisy(positions, one), oracle.noisy(positions, other))
        assert all(x > y for x, y in zip(again, once, strict=True))


@pytest.mark.parametrize("leaves", ["the victim", "somebody else"])
def test_the_same_draw_over_another_set_shows_the_difference(leaves: str) -> None:
    # the sabotaged twin: a round that is released again with a user less
    domain = SERVED["categories"]
    positions, tables = domain.positions, oracle.all_tables(domain.positions)

    def both(users: tuple[oracle.Upload, ...]) -> oracle.Law:
        fewer = users[1:] if leaves == "the victim" else users[:-1]
        return oracle.law(tables, lambda d: (oracle.batch(positions, users, d), oracle.batch(positions, fewer, d)))

    one, other = (((0,),), ((1,),)), (((1,),), ((1,),))
    found = oracle.levels(WEIGHTS, both(one), both(other))
    alone = oracle.levels(WEIGHTS, oracle.noisy(positions, one), oracle.noisy(positions, other))
    # somebody else's report that disappears shows itself, not the victim's
    assert found == ([1] * len(WEIGHTS) if leaves == "the victim" else alone)


def test_a_report_that_is_counted_twice_doubles_the_shift() -> None:
    steep = tuple(4 ** (4 - abs(4 - k)) for k in range(9))  # discrete Laplace, a factor of 4 a step
    domain = oracle.categories(steep, 2)
    once = oracle.levels(WEIGHTS, *(oracle.noisy(domain.positions, [((cell,),)]) for cell in (0, 1)))
    copied = oracle.levels(WEIGHTS, *(oracle.opened(domain.positions, [((cell,),)] * 2) for cell in (0, 1)))
    assert once[-1] < Fraction(1, 100)
    assert copied[-1] > 10 * once[-1]


# ---- tables other than the certified one -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "drawn",
    [
        pytest.param((1, 4, 14, 4, 0), id="one end missing"),
        pytest.param((2, 3, 14, 4, 1), id="an asymmetric one"),
        pytest.param((1, 1, 4, 8, 4, 1, 1), id="a longer one with heavier ends"),
        pytest.param((5, 14, 5), id="a shorter one"),
        pytest.param((0, 0, 1, 0, 0), id="none"),
        pytest.param((1, 0, 4, 0, 14, 0, 4, 0, 1), id="a doubled one"),
    ],
)
def test_noise_of_another_table_is_another_guarantee(drawn: tuple[int, ...]) -> None:
    certified, twin = oracle.categories(STEEP, 2), oracle.categories(drawn, 2)
    bound = oracle.levels(WEIGHTS, *(oracle.noisy(certified.positions, [((cell,),)]) for cell in (0, 1)))
    found = oracle.levels(WEIGHTS, *(oracle.opened(twin.positions, [((cell,),)]) for cell in (0, 1)))
    assert any(x > y for x, y in zip(found, bound, strict=True))


def test_one_draw_for_two_cells_hides_nothing() -> None:
    # the sabotaged twin: the same number is added to both cells
    domain = oracle.categories(STEEP, 2)

    def view(users: Sequence[oracle.Upload]) -> oracle.Law:
        true = oracle.counts(domain.positions, users)
        return oracle.law([STEEP], lambda d: oracle.plus(true, (*d, *d)))

    assert oracle.levels(WEIGHTS, view([((0,),)]), view([((1,),)])) == [1] * len(WEIGHTS)


def test_a_user_between_two_levels_is_no_worse_than_one_at_a_level() -> None:
    # rounding at random mixes the uploads of two levels
    domain = oracle.numbers([SHORT], [3], 1)
    low, middle, high = (oracle.opened(domain.positions, [upload]) for upload in domain.honest)
    total = sum(low.values())

    def mixed(part: int) -> oracle.Law:
        """`part` quarters of the middle level, the rest of the lowest."""
        parts = [*[low] * (4 - part), *[middle] * part]
        return {view: sum(law.get(view, 0) for law in parts) for view in {view for law in parts for view in law}}

    assert sum(mixed(1).values()) == 4 * total
    worst = oracle.levels(WEIGHTS, low, high)
    for part in range(5):
        found = oracle.levels(WEIGHTS, mixed(part), high)
        assert all(x <= y for x, y in zip(found, worst, strict=True))


def test_rounds_that_depend_on_earlier_ones_are_a_product_at_most() -> None:
    # what is asked for in the second round follows from the first noisy table: all strategies of it
    domain = SERVED["categories"]
    positions, tables = domain.positions, oracle.all_tables(domain.positions)
    pair = oracle.pair_of(*(oracle.noisy(positions, [((cell,),)]) for cell in (0, 1)))
    bound = [oracle.product([pair, pair]).delta(w) for w in WEIGHTS]
    outcomes = sorted({*oracle.noisy(positions, [((0,),)]), *oracle.noisy(positions, [((1,),)])})  # type: ignore[type-var]
    for asked in itertools.islice(itertools.product((False, True), repeat=len(outcomes)), 0, None, 61):
        second = dict(zip(outcomes, asked, strict=True))

        def both(cell: int, second: Any = second) -> oracle.Law:
            def view(draw: tuple[int, ...]) -> Any:
                first = oracle.plus(oracle.counts(positions, [((cell,),)]), draw[:2])
                again = [((1 - cell,),)] if second[first] else [((1,),)]  # the data of the second round
                return first, oracle.plus(oracle.counts(positions, again), draw[2:])

            return oracle.law([*tables, *tables], view)

        found = oracle.levels(WEIGHTS, both(0), both(1))
        assert all(x <= y for x, y in zip(found, bound, strict=True))
