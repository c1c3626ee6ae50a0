"""Which counts deviate from the plan by more than chance allows, at an error that is shared out among all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shufflesum.audit.evidence import deviation
from shufflesum.mechanisms import ExpectedCounts

__all__ = ["Judged", "Tested", "judged"]


@dataclass(frozen=True, slots=True)
class Tested:
    """One kind of finding: how many counts were compared with the plan, and how many events are in them."""

    kind: str
    counts: int
    events: int


class Judged(NamedTuple):
    """What was found, and what was looked at."""

    findings: tuple[str, ...]
    tested: tuple[Tested, ...]


def judged(kinds: Sequence[tuple[str, Sequence[ExpectedCounts]]], chance_of_error: float) -> Judged:
    """The worst count of each kind that lies too far out.

    Kinds share the chance of error evenly, and so do both sides of each count within a kind: where all counts follow
    the plan, Chernoff's bound and the union bound make any finding at all less likely than that.
    """
    found, tested = [], dict[str, Tested]()
    present = [(kind, counts) for kind, counts in kinds if counts]
    for kind, counts in present:
        size = sum(each.observed.size for each in counts)
        worst, text = math.log(2 * size * len(present) / chance_of_error), None
        for name, observed, trials, chances in counts:
            deviations = deviation(observed, trials, chances)
            place = np.unravel_index(int(np.argmax(deviations)), deviations.shape)
            if deviations[place] > worst:
                expected = f"{trials * chances[place]:,.0f} of {trials:,}"
                text = f"{name.format(*place)} {observed[place]:,} times; the plan expects {expected}"
                worst = deviations[place]
        found += [text] if text else []
        before = tested.get(kind, Tested(kind, 0, 0))
        events = sum(each.observed.size * each.trials for each in counts)
        tested[kind] = Tested(kind, before.counts + size, before.events + events)
    return Judged(tuple(found), tuple(tested.values()))
