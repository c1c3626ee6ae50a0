"""Privacy accounting: numbers in, numbers out; no user data, no plan.

`guarantees` says what is guaranteed; `replace`, `add`, `slots` and `ball` hold the bounds of one mechanism each,
`engine` what they are computed with; `curator` is what all are compared with.
"""

from __future__ import annotations

from shufflesum.privacy.guarantees import Accountant, Guarantee, Interval, honest_users
from shufflesum.privacy.replace import Setting, local_epsilon, published
from shufflesum.privacy.replace.setting import delta_bounds, epsilon_bounds, smallest_noise_probability

__all__ = [
    "Accountant",
    "Guarantee",
    "Interval",
    "Setting",
    "delta_bounds",
    "epsilon_bounds",
    "honest_users",
    "local_epsilon",
    "published",
    "smallest_noise_probability",
]
