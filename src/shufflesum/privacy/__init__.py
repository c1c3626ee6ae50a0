"""Privacy accounting: numbers in, numbers out; no user data, no plan.

`accountant` says what is guaranteed, and has the base class of all accountants; `randomized_response`,
`noisy_counts`, `noisy_slots`, `noise_distribution` and `one_bit` have one each, and the bounds of that mechanism.
`engine` is what they are computed with.
"""

from __future__ import annotations

from shufflesum.privacy.accountant import (
    Accountant,
    Guarantee,
    Interval,
    PrivacyAccountant,
    honest_users,
    local_epsilon,
)
from shufflesum.privacy.engine.pld import PrivacyLossDistribution
from shufflesum.privacy.noise_distribution import NoiseDistribution, NoiseDistributionAccountant, least_noise
from shufflesum.privacy.noisy_counts import NoisyCountsAccountant
from shufflesum.privacy.noisy_slots import NoisySlotsAccountant
from shufflesum.privacy.one_bit import OneBitAccountant
from shufflesum.privacy.randomized_response import published
from shufflesum.privacy.randomized_response.accountant import RandomizedResponseAccountant

__all__ = [
    "Accountant",
    "Guarantee",
    "Interval",
    "NoiseDistribution",
    "NoiseDistributionAccountant",
    "NoisyCountsAccountant",
    "NoisySlotsAccountant",
    "OneBitAccountant",
    "PrivacyAccountant",
    "PrivacyLossDistribution",
    "RandomizedResponseAccountant",
    "honest_users",
    "least_noise",
    "local_epsilon",
    "published",
]
