"""Settings of the mechanism `noisy-counts` that are small enough for tests/oracles/noisy_counts.py."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypedDict

from tests.oracles.noisy_counts import Table

__all__ = ["MIXED", "TINY", "Mixed", "Setting", "setting"]


class Setting(TypedDict):
    """What every function of the oracle takes; trials are those of one user."""

    users: int
    dimension: int
    trials: tuple[int, ...]
    probabilities: tuple[Fraction, ...]


def setting(users: int, dimension: int, trials: tuple[int, ...], *probabilities: str) -> Setting:
    """Write one down in a line."""
    chances = tuple(Fraction(probability) for probability in probabilities)
    return Setting(users=users, dimension=dimension, trials=trials, probabilities=chances)


@dataclass(frozen=True, slots=True)
class Mixed:
    """The worst change of the table at `weight` moves some cells up and some down."""

    setting: Setting
    weight: Fraction
    move: Table
    worst: Fraction
    one_direction: Fraction


MIXED = [
    # 4.4 % above the product in one direction
    Mixed(
        setting=setting(3, 2, (1,), "7/16"),
        weight=Fraction(15, 8),
        move=(1, -1),
        worst=Fraction(61310789, 2**27),
        one_direction=Fraction(58699809, 2**27),
    ),
    # 1.6 %, digits with different noise
    Mixed(
        setting=setting(2, 1, (3, 2), "5/16", "7/16"),
        weight=Fraction(11, 8),
        move=(-1, 1),
        worst=Fraction(458077342375, 2**40),
        one_direction=Fraction(902105843909, 2**41),
    ),
    # 0.4 %, three cells
    Mixed(
        setting=setting(2, 3, (2,), "7/16"),
        weight=Fraction(13, 8),
        move=(1, -1, -1),
        worst=Fraction(1180738401361289, 2**51),
        one_direction=Fraction(1176411784871241, 2**51),
    ),
    # 0.4 %, no probability near one half
    Mixed(
        setting=setting(2, 1, (3, 3), "5/16", "1/4"),
        weight=Fraction(1),
        move=(1, -1),
        worst=Fraction(8292778801, 2**34),
        one_direction=Fraction(8256021181, 2**34),
    ),
]

TINY = [
    setting(1, 1, (1,), "1/2"),
    setting(3, 1, (4,), "1/2"),
    setting(2, 1, (8,), "1/16"),
    setting(1, 1, (3, 1), "1/4", "1/2"),
    setting(2, 1, (4, 2), "1/4", "1/4"),
    setting(3, 1, (4, 2), "1/2", "1/2"),
    setting(2, 2, (5,), "1/2"),
    setting(2, 3, (2,), "1/4"),
    setting(2, 1, (3, 2, 1), "1/4", "3/8", "1/2"),
    setting(1, 2, (4, 2), "1/2", "1/2"),
]
