"""The browser client's reports follow the laws of the protocol: a million draws in Node for each mechanism.

The laws are written down here, by enumeration, from docs/wire.md; the client knows nothing of them. Each test raises a
false alarm once in a million runs, and each has a twin, the law of a slightly wrong client, that the same draws must
refute (it would be missed about as rarely).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.browser.node import Node, needs_node
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.cells import BLANK

pytestmark = needs_node

Law = Mapping[str, float]


def fits(seen: Mapping[str, int], law: Law) -> float:
    """The p-value of these counts; what the law does not know is impossible, rare outcomes are taken together."""
    if any(law.get(key, 0.0) == 0.0 for key in seen):
        return 0.0
    total = sum(seen.values())
    common = [key for key, chance in law.items() if chance * total >= 10]
    counts, chances = [seen.get(key, 0) for key in common], [law[key] for key in common]
    rest = 1 - math.fsum(chances)
    if rest * total >= 10:
        counts, chances = [*counts, total - sum(counts)], [*chances, rest]
    scale = math.fsum(chances)
    return chi_square(counts, [chance / scale for chance in chances])


def check(seen: Mapping[str, int], law: Law, wrong: Law) -> None:
    assert fits(seen, law) > FALSE_ALARM
    assert fits(seen, wrong) < FALSE_ALARM


def key(cells: Iterable[int]) -> str:
    return ",".join(map(str, sorted(cells)))


def together(outcomes: Iterable[tuple[Iterable[int], float]]) -> Law:
    law: dict[str, float] = {}
    for cells, chance in outcomes:
        law[key(cells)] = law.get(key(cells), 0.0) + chance
    return law


def box(dimension: int, low: float = 0.0, high: float = 1.0) -> dict[str, Any]:
    structure = {"kind": "dense", "shape": [dimension]}
    return {"kind": "arrays", "structure": structure, "bounds": [low, high]}


# replace


def value_law(x: float, levels: int, noise: float) -> list[float]:
    place = x * levels
    below = min(math.floor(place), levels - 1)
    own = [0.0] * (levels + 1)
    own[below], own[below + 1] = 1 - (place - below), place - below
    return [(1 - noise) * chance + noise / (levels + 1) for chance in own]


def stratified_law(values: list[float], levels: int, noise: float) -> Law:
    """One coordinate of {0, 1} and one of {2, 3, 4}, each with its own law."""
    laws = [value_law(x, levels, noise) for x in values]
    first, second = (
        [
            (place * (levels + 1) + value, laws[place][value] / len(block))
            for place in block
            for value in range(levels + 1)
        ]
        for block in ((0, 1), (2, 3, 4))
    )
    return together(((a, b), p * q) for (a, p), (b, q) in itertools.product(first, second))


def test_replace_with_one_coordinate_of_each_block(node: Node) -> None:
    values, levels, noise = [0.1, 0.5, 0.75, 0.0, 1.0], 3, 0.25
    mechanism = {"kind": "randomized-response", "coordinates": 2, "levels": levels, "sampling": "stratified"}
    plan = {"domain": box(5), "mechanism": mechanism | {"noise_probability": noise}}
    seen = node.ask("law", plan=plan, held=values, users=500_000)  # two reports each
    check(seen, stratified_law(values, levels, noise), stratified_law(values, levels, noise * 1.06))


def uniform_law(values: list[float], levels: int, noise: float, chances: list[float]) -> Law:
    laws = [value_law(x, levels, noise) for x in values]
    pairs = list(itertools.combinations(range(len(values)), 2))
    outcomes = (
        ((a * (levels + 1) + u, b * (levels + 1) + v), chance * laws[a][u] * laws[b][v])
        for (a, b), chance in zip(pairs, chances, strict=True)
        for u, v in itertools.product(range(levels + 1), repeat=2)
    )
    return together(outcomes)


def test_replace_with_a_uniform_subset_of_coordinates(node: Node) -> None:
    values, levels, noise = [0.2, 0.9, 0.4], 1, 0.5
    mechanism = {"kind": "randomized-response", "coordinates": 2, "levels": levels, "sampling": "uniform"}
    plan = {"domain": box(3), "mechanism": mechanism | {"noise_probability": noise}}
    seen = node.ask("law", plan=plan, held=values, users=200_000)
    third = 1 / 3
    right = uniform_law(values, levels, noise, [third] * 3)
    check(seen, right, uniform_law(values, levels, noise, [third * 1.03, third, third * 0.97]))


def test_replace_of_labels(node: Node) -> None:
    noise, labels = 0.3, ["a", "b", "c", "d", "e"]
    domain = {"kind": "categories", "labels": labels[:4], "other": True}
    mechanism = {
        "kind": "randomized-response",
        "coordinates": 1,
        "levels": 4,
        "noise_probability": noise,
        "sampling": "stratified",
    }
    seen = node.ask("law", plan={"domain": domain, "mechanism": mechanism}, held="c", users=300_000)
    laws = [{str(i): (1 - g) * (i == 2) + g / 5 for i in range(5)} for g in (noise, noise * 1.06)]
    check(seen, *laws)


# add


def binomials(trials: list[int], chances: list[float]) -> Iterable[tuple[tuple[int, ...], float]]:
    """All counts of independent binomials, with their chances."""
    laws = [
        [(k, math.comb(n, k) * p**k * (1 - p) ** (n - k)) for k in range(n + 1)]
        for n, p in zip(trials, chances, strict=True)
    ]
    for found in itertools.product(*laws):
        yield tuple(k for k, _ in found), math.prod(chance for _, chance in found)


def added_law(own: list[tuple[list[int], float]], noisy: list[tuple[int, int, float]], reports: int, cap: int) -> Law:
    """Own cells and noise of (cell, trials, chance), given that the noise is within the cap; blanks for the rest."""
    cells = [cell for cell, _, _ in noisy]
    noise = list(binomials([trials for _, trials, _ in noisy], [chance for _, _, chance in noisy]))
    within = math.fsum(chance for counts, chance in noise if sum(counts) <= cap)

    def sent(true: list[int], counts: tuple[int, ...]) -> list[int]:
        made = true + [cell for cell, count in zip(cells, counts, strict=True) for _ in range(count)]
        return made + [BLANK] * (reports - len(made))

    return together(
        (sent(true, counts), p * q / within) for true, p in own for counts, q in noise if sum(counts) <= cap
    )


def test_add_on_a_box(node: Node) -> None:
    """Two digits of 0.4: 1.2 on a scale to 3, so 1 with chance 0.8 and 2 with chance 0.2."""
    trials, chances, cap = [3, 2], [0.1875, 0.25], 3
    mechanism = {"kind": "noisy-counts", "digits": 2, "trials": trials, "probabilities": chances, "cap": cap}
    seen = node.ask("law", plan={"domain": box(1), "mechanism": mechanism}, held=[0.4], users=400_000)
    own = [([0], 0.8), ([1], 0.2)]
    noisy = [(0, 3, 0.1875), (1, 2, 0.25)]
    check(seen, added_law(own, noisy, 5, cap), added_law(own, [noisy[0], (1, 2, 0.26)], 5, cap))
    assert fits(seen, added_law(own, noisy, 5, 5)) < FALSE_ALARM  # as if the cap were not kept
    assert fits(seen, added_law([([0], 0.815), ([1], 0.185)], noisy, 5, cap)) < FALSE_ALARM


def test_add_of_choices(node: Node) -> None:
    """Of three labels two may be chosen: of all three, any two are."""
    domain = {"kind": "multi-choice", "labels": 3, "max_choices": 2}
    mechanism = {"kind": "noisy-counts", "digits": 1, "trials": [2], "probabilities": [0.2], "cap": 3}
    seen = node.ask("law", plan={"domain": domain, "mechanism": mechanism}, held=[0, 1, 2], users=150_000)
    own = [([0, 1], 1 / 3), ([0, 2], 1 / 3), ([1, 2], 1 / 3)]
    noisy = [(cell, 2, 0.2) for cell in range(3)]
    check(seen, added_law(own, noisy, 5, 3), added_law([([0, 1], 0.36), ([0, 2], 0.32), ([1, 2], 0.32)], noisy, 5, 3))


def test_add_of_groups(node: Node) -> None:
    """A digit of 1 in the second of two groups, and its count."""
    domain = {"kind": "group-by", "labels": ["x", "y"], "values": box(1)}
    mechanism = {"kind": "noisy-counts", "digits": 1, "trials": [2, 1], "probabilities": [0.2, 0.3], "cap": 4}
    plan = {"domain": domain, "mechanism": mechanism}
    seen = node.ask("law", plan=plan, held={"label": "y", "values": [1]}, users=150_000)
    noisy = [(0, 2, 0.2), (2, 2, 0.2), (1, 1, 0.3), (3, 1, 0.3)]
    wrong = [(0, 2, 0.2), (2, 2, 0.21), (1, 1, 0.3), (3, 1, 0.3)]
    check(seen, added_law([([2, 3], 1.0)], noisy, 6, 4), added_law([([2, 3], 1.0)], wrong, 6, 4))


# add-slots


def slot_law(cells: int, chance: float) -> Law:
    return {str(cell): chance / cells for cell in range(cells)} | {str(BLANK): 1 - chance}


def test_slots_of_labels(node: Node) -> None:
    domain, chance = {"kind": "categories", "labels": 7, "other": False}, 0.4
    mechanism = {"kind": "noisy-slots", "slots": 5, "chance": chance}
    own, slots = node.ask("places", plan={"domain": domain, "mechanism": mechanism}, held=3, users=200_000)
    assert own == {"3": 200_000}
    check(slots, slot_law(7, chance), slot_law(7, chance * 1.03))  # a million slots
    tilted = {
        cell: p * (1.05 if cell == "0" else 0.95 if cell == "6" else 1.0) for cell, p in slot_law(7, chance).items()
    }
    assert fits(slots, tilted) < FALSE_ALARM


def test_words_choose_a_function_and_fill_slots(node: Node) -> None:
    domain = {"kind": "open-vocabulary", "depth": 8, "width": 16, "key": "00" * 16}
    mechanism = {"kind": "noisy-slots", "slots": 20, "chance": 0.5}
    own, slots = node.ask("places", plan={"domain": domain, "mechanism": mechanism}, held="apple", users=20_000)
    functions = Counter({cell // 16: count for cell, count in ((int(c), n) for c, n in own.items())})
    assert len(own) == len(functions) == 8  # one bucket of each
    assert chi_square([functions[s] for s in range(8)], [1 / 8] * 8) > FALSE_ALARM
    assert chi_square([functions[s] for s in range(8)], [0.16, 0.09, *[1 / 8] * 6]) < FALSE_ALARM
    check(slots, slot_law(128, 0.5), slot_law(128, 0.53))


# replace-bits


@pytest.mark.parametrize("amplitude", [0.25, 1.0])
def test_bits_of_the_ball(amplitude: float, node: Node) -> None:
    """Four coordinates, each with its own chance of a one, 250,000 times: a million draws."""
    domain = {"kind": "l2-ball", "shape": [4], "clipping_norm": 1.0, "center": None, "seed": "0f" * 16}
    mechanism = {"kind": "one-bit", "bits": 250_000, "amplitude": amplitude, "tau": 2.0}
    plan, held = {"domain": domain, "mechanism": mechanism}, [0.3, -0.2, 0.1, 0.4]
    levels = node.ask("levels", plan=plan, held=held)
    first, others = node.ask("places", plan=plan, held=held, users=1)
    counts = Counter(first) + Counter(others)

    def law(a: float) -> Law:
        ones = [(1 + a * level / 2**15) / 2 for level in levels]
        return {str(2 * c + bit): (p if bit else 1 - p) / 4 for c, p in enumerate(ones) for bit in (0, 1)}

    check(counts, law(amplitude), law(amplitude * 0.8))


# the draws themselves


def test_numbers_below_a_bound_have_no_modulo_bias(node: Node) -> None:
    """Of 2^32 words, a remainder by 3 x 2^30 would be in the first third half the time."""
    seen = node.ask("below", bound=3 * 2**30, parts=3, draws=300_000)
    assert chi_square(seen, [1 / 3] * 3) > FALSE_ALARM
    assert chi_square(seen, [1 / 2, 1 / 4, 1 / 4]) < FALSE_ALARM


@pytest.mark.parametrize("chance", [2.0**-53, 1 / 3, 1 - 2.0**-53, 0.0, 1.0])
def test_coins(chance: float, node: Node) -> None:
    tails, heads = node.ask("coin", chance=chance, draws=300_000)
    if chance == 1 / 3:
        assert chi_square([tails, heads], [1 - chance, chance]) > FALSE_ALARM
        assert chi_square([tails, heads], [1 - chance * 1.02, chance * 1.02]) < FALSE_ALARM
    else:  # the others are seen with chance 4e-11
        assert heads == (300_000 if chance > 0.5 else 0)


@pytest.mark.parametrize("placed", [4, 2])
def test_all_orders_are_equally_likely(placed: int, node: Node) -> None:
    seen = node.ask("orders", size=4, placed=placed, draws=100_000)
    orders = [",".join(map(str, order)) for order in itertools.permutations(range(4), placed)]
    even = {order: 1 / len(orders) for order in orders}
    # as where each place is swapped with any, the mistake people make
    naive: Counter[str] = Counter()
    for draws in itertools.product(range(4), repeat=placed):
        items = list(range(4))
        for place, drawn in enumerate(draws):
            items[place], items[drawn] = items[drawn], items[place]
        naive[",".join(map(str, items[:placed]))] += 1
    check(seen, even, {order: naive[order] / 4**placed for order in orders})
