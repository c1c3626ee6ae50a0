"""Privacy accounting: numbers in, numbers out; no user data, no plan."""

from __future__ import annotations

from shufflesum.privacy import blanket, composition, published
from shufflesum.privacy.guarantees import (
    Interval,
    Protocol,
    delta_bounds,
    epsilon_bounds,
    honest_users,
    smallest_noise_probability,
)
from shufflesum.privacy.local import local_epsilon

__all__ = [
    "Interval",
    "Protocol",
    "blanket",
    "composition",
    "delta_bounds",
    "epsilon_bounds",
    "honest_users",
    "local_epsilon",
    "published",
    "smallest_noise_probability",
]
