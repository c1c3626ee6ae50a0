"""The worst that somebody can do who chooses mechanisms in view of all outcomes so far, by going through all choices.

A mechanism answers with the truth or its opposite at a loss of so many steps, or lays everything open with some chance;
its worlds are mirror images. Or it is any list of outcomes with their chances. All that matters of a history is the sum
of losses and what was used up, so the best next choice is found backwards. Shares no code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

Choice = tuple[int, float]  # steps of loss, and the probability mass with infinite loss
Used = tuple[int, ...]
Law = Sequence[tuple[float, float]]  # of each outcome, its chance in one world and in the other


def worst_delta(choices: Sequence[Choice], step: float, epsilon: float, allowed: Callable[[Used], bool]) -> float:
    """The largest sum of (P - e^epsilon Q)+ over all ways to choose, as long as what is used up is allowed."""
    weight = math.exp(epsilon)

    @cache
    def value(loss: int, used: Used) -> float:
        ratio = math.exp(loss * step)  # P where Q is 1
        best = max(ratio - weight, 0.0)
        for number, (steps, open_chance) in enumerate(choices):
            after = tuple(count + (place == number) for place, count in enumerate(used))
            if not allowed(after):
                continue
            truth = 1.0 / (1.0 + math.exp(-steps * step))
            hidden = 1.0 - open_chance
            found = ratio * open_chance
            found += hidden * (1.0 - truth) * value(loss + steps, after)
            found += hidden * truth * value(loss - steps, after)
            best = max(best, found)
        return best

    return value(0, tuple(0 for _ in choices))


def worst_delta_of_laws(mechanisms: Sequence[Law], epsilon: float, allowed: Callable[[Used], bool], most: int) -> float:
    """The same for mechanisms that are given by their outcomes' chances in both worlds, and at most so many runs."""
    weight = math.exp(epsilon)
    merged = []
    for law in mechanisms:  # outcomes of the same ratio tell the same
        sums: dict[float, float] = {}
        for p, q in law:
            loss = round(math.log(p / q), 9) if p and q else math.inf if p else -math.inf
            sums[loss] = sums.get(loss, 0.0) + (p if q == 0.0 else q)
        merged.append(sums)

    @cache
    def value(loss: float, used: Used) -> float:
        ratio = math.exp(loss)
        best = max(ratio - weight, 0.0)
        for number, sums in enumerate(merged):
            after = tuple(count + (place == number) for place, count in enumerate(used))
            if sum(after) > most or not allowed(after):
                continue
            finite = (q * value(round(loss + more, 9), after) for more, q in sums.items() if math.isfinite(more))
            best = max(best, ratio * sums.get(math.inf, 0.0) + math.fsum(finite))
        return best

    return value(0.0, tuple(0 for _ in mechanisms))


def fixed_delta(choices: Sequence[Choice], step: float, epsilon: float, used: Used) -> float:
    """The same for just so many of each, whatever the outcomes."""
    laws = {0: (1.0, 1.0)}
    open_mass, weight = 0.0, math.exp(epsilon)
    for (steps, open_chance), count in zip(choices, used, strict=True):
        truth = 1.0 / (1.0 + math.exp(-steps * step))
        for _ in range(count):
            open_mass += open_chance * (1.0 - open_mass)
            after: dict[int, tuple[float, float]] = {}
            for loss, (p, q) in laws.items():
                for moved, up, down in ((steps, truth, 1.0 - truth), (-steps, 1.0 - truth, truth)):
                    more = after.get(loss + moved, (0.0, 0.0))
                    kept = 1.0 - open_chance
                    after[loss + moved] = more[0] + kept * p * up, more[1] + kept * q * down
            laws = after
    return open_mass + sum(max(p - weight * q, 0.0) for p, q in laws.values())
