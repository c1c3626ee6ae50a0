"""What the planner may try under `add` with slots: as few as carry the noise, each at its smallest certified chance."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from dataclasses import replace

from shufflesum.domain import Categories, Hashed
from shufflesum.domain.hashed import KEY_BYTES, MOST_BUCKETS
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms.add_slots.error import TELLING_FUNCTIONS
from shufflesum.mechanisms.add_slots.mechanism import MOST_SLOTS, AddSlots
from shufflesum.privacy import Guarantee
from shufflesum.privacy.slots import noise_per_cell_guess, rough_noise_per_cell, smallest_chance

__all__ = ["categories_choice", "hashed_choices"]

_FULL = 0.97  # of the slots noise may fill so many, so that a guess need not be exact
_FUNCTIONS = 64  # unless cells would be too many
_MOST_CELLS = 1 << 25  # that an analyzer's table should have unasked, 256 MiB, unless buckets are millions
_SLOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # that are tried for open vocabularies


def categories_choice(domain: Categories, guarantee: Guarantee) -> AddSlots:
    """The fewest slots, at the smallest chance that is certified for the guarantee."""
    return _certified(domain.cells, guarantee)


def hashed_choices(domain: Hashed, guarantee: Guarantee) -> Iterator[tuple[Hashed, AddSlots]]:
    """Buckets and functions that are not fixed yet, chosen: as many buckets as so many slots carry noise for."""
    key = domain.key or secrets.token_bytes(KEY_BYTES)
    noise = noise_per_cell_guess(guarantee.epsilon, guarantee.delta, guarantee.rounds)
    found = set()
    for slots in _SLOTS:
        buckets = domain.buckets or max(2, min(MOST_BUCKETS, int(_FULL * slots * guarantee.honest_users / noise)))
        if buckets in found:
            return
        found.add(buckets)
        functions = domain.functions or max(TELLING_FUNCTIONS, min(_FUNCTIONS, _MOST_CELLS // buckets))
        yield replace(domain, buckets=buckets, functions=functions, key=key), _certified(buckets, guarantee)


def _certified(cells: int, guarantee: Guarantee) -> AddSlots:
    """As many slots as the noise of so many cells needs, at their smallest chance."""
    honest, asked = guarantee.honest_users, (guarantee.epsilon, guarantee.delta, guarantee.rounds)
    slots = MOST_SLOTS + 1
    if rough_noise_per_cell(*asked) * cells / honest < 2.0 * MOST_SLOTS:  # else there is nothing to look for
        guess = noise_per_cell_guess(*asked) * cells / honest
        slots = max(1, math.ceil(min(guess / _FULL, slots)))
    while slots <= MOST_SLOTS:
        chance = smallest_chance(
            honest_users=honest,
            slots=slots,
            cells=cells,
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            rounds=guarantee.rounds,
        )
        if chance < 1:
            return AddSlots(slots, chance)
        slots += math.ceil(0.02 * slots)
    raise PrivacyError(
        "privacy-out-of-reach",
        f"{honest} honest users would need more than {MOST_SLOTS} noise reports each for {cells} labels; raise users, "
        "epsilon or delta, or take fewer labels",
    )
