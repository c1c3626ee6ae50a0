"""The worst that somebody can do who chooses mechanisms in view of all outcomes so far, by going through all choices.

A mechanism answers with the truth or its opposite at a loss of so many steps, or lays everything open with some chance;
its worlds are mirror images. All that matters of a history is the sum of losses and what was used up, so the best next
choice is found backwards. Shares no code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

Choice = tuple[int, float]  # steps of loss, and the chance that everything is laid open
Used = tuple[int, ...]


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
