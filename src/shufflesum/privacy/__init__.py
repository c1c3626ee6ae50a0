"""Privacy accounting: numbers in, numbers out; no user data, no plan.

`accountant` says what is guaranteed, and has the base class of all accountants; `randomized_response`,
`noisy_counts`, `noisy_slots`, `one_bit`, `noise_distribution`, `discrete_gaussian` and `partition_selection` have one
each, and its bounds. `engine` is what they are computed with.
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
from shufflesum.privacy.discrete_gaussian import DiscreteGaussianAccountant, least_discrete_gaussian
from shufflesum.privacy.engine.pld import PrivacyLossDistribution
from shufflesum.privacy.noise_distribution import (
    NoiseDistribution,
    NoiseDistributionAccountant,
    least_noise,
    least_noises,
)
from shufflesum.privacy.noisy_counts import NoisyCountsAccountant
from shufflesum.privacy.noisy_slots import NoisySlotsAccountant
from shufflesum.privacy.one_bit import OneBitAccountant
from shufflesum.privacy.partition_selection import PartitionSelectionAccountant
from shufflesum.privacy.randomized_response import published
from shufflesum.privacy.randomized_response.accountant import RandomizedResponseAccountant

__all__ = [
    "Accountant",
    "DiscreteGaussianAccountant",
    "Guarantee",
    "Interval",
    "NoiseDistribution",
    "NoiseDistributionAccountant",
    "NoisyCountsAccountant",
    "NoisySlotsAccountant",
    "OneBitAccountant",
    "PartitionSelectionAccountant",
    "PrivacyAccountant",
    "PrivacyLossDistribution",
    "RandomizedResponseAccountant",
    "honest_users",
    "least_discrete_gaussian",
    "least_noise",
    "least_noises",
    "local_epsilon",
    "published",
]
