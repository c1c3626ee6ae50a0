"""The certified bound as a privacy loss distribution of Google's `dp_accounting`, to compose with anything else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from shufflesum.errors import MissingExtraError, ParameterError
from shufflesum.privacy import blanket
from shufflesum.privacy._composed import (
    check_compositions,
    compose_profile,
    deviation_of_loss,
    single_profile,
)
from shufflesum.privacy._convolution import coarsen_above
from shufflesum.privacy.local import local_epsilon

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["to_dp_accounting"]


def to_dp_accounting(
    honest_users: int,
    levels: int,
    noise_probability: float,
    compositions: int,
    *,
    single_coordinate_blocks: bool,
    value_discretization_interval: float = 1e-4,
) -> PrivacyLossDistribution:
    """Return a pessimistic distribution that dominates `compositions` = reports x rounds reports of a user.

    Distributions compose only on the same discretization interval; 1e-4 is the default of that library too. It
    convolves by plain FFT: after composing there, a delta below about 1e-12 means nothing.
    """
    try:
        from dp_accounting.pld.pld_pmf import DensePLDPmf
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    except ImportError as error:
        raise MissingExtraError(
            "dp_accounting is not installed: install the extra `accounting` (pip install 'shufflesum[accounting]')"
        ) from error
    interval = value_discretization_interval
    if not 0.0 < interval < math.inf:
        raise ParameterError(f"value_discretization_interval = {interval}: must be positive and finite; change it")
    check_compositions(compositions)
    blanket.check_protocol(honest_users, levels, noise_probability)
    losses = compose_profile(
        single_profile(honest_users, levels, noise_probability, single_coordinate_blocks=single_coordinate_blocks),
        deviation_of_loss(honest_users, levels, noise_probability),
        local_epsilon(levels=levels, noise_probability=noise_probability),
        compositions,
        interval=interval,
    ).losses
    while losses.step < interval:
        losses = coarsen_above(losses)
    stride = round(losses.step / interval)
    masses = np.zeros((len(losses.balanced) - 1) * stride + 1)
    masses[::stride] = losses.upper_masses() * (1.0 + losses.error)
    infinite = losses.infinite * (1.0 + losses.error)
    return PrivacyLossDistribution(DensePLDPmf(interval, losses.lowest * stride, masses, infinite, True))
