"""The budget that tests spend, and plans that are entered in it."""

from __future__ import annotations

import shufflesum as ss
from shufflesum.budget import Budget
from shufflesum.privacy.engine.filters import PrivacyFilter

__all__ = ["DELTA", "EPSILON", "LARGE", "NUMBERS", "PLANS", "SMALL", "THRICE", "limits_of"]

EPSILON, DELTA = 1.5, 1e-3

SMALL, LARGE = (ss.plan(users=500, domain=ss.Categories(3), epsilon=epsilon, delta=1e-5) for epsilon in (0.3, 0.9))
NUMBERS = ss.plan(users=500, shape=2, epsilon=0.5, delta=1e-5)
THRICE = ss.plan(users=500, domain=ss.Categories(3), epsilon=0.5, delta=1e-5, rounds=3)
PLANS = (SMALL, LARGE, NUMBERS, THRICE)


def limits_of(budget: Budget) -> PrivacyFilter:
    """The filter that the first plan has chosen."""
    chosen = budget._now().filter
    assert chosen is not None
    return chosen
