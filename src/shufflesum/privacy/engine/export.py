"""A certified pair as a privacy loss distribution of Google's `dp_accounting`, to compose with anything else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from shufflesum.errors import MissingExtraError, ParameterError
from shufflesum.privacy.engine.convolution import coarsen_above
from shufflesum.privacy.engine.losses import GridLosses

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["check_interval", "to_privacy_loss_distribution"]


def check_interval(value_discretization_interval: float) -> float:
    """Refuse what is no step of a grid."""
    if not 0.0 < value_discretization_interval < math.inf:
        raise ParameterError(
            "out-of-range",
            f"value_discretization_interval = {value_discretization_interval}: must be positive and finite; change it",
        )
    return value_discretization_interval


def to_privacy_loss_distribution(losses: GridLosses, interval: float) -> PrivacyLossDistribution:
    """Return the pessimistic distribution of a symmetric pair whose step is `interval` times a power of two."""
    try:
        from dp_accounting.pld.pld_pmf import DensePLDPmf
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    except ImportError as error:
        raise MissingExtraError(
            "missing-extra",
            "dp_accounting is not installed: install the extra `accounting` (pip install 'shufflesum[accounting]')",
        ) from error
    while losses.step < interval:
        losses = coarsen_above(losses)
    stride = round(losses.step / interval)
    masses = np.zeros((len(losses.balanced) - 1) * stride + 1)
    masses[::stride] = losses.upper_masses() * (1.0 + losses.error)
    infinite = losses.infinite * (1.0 + losses.error)
    return PrivacyLossDistribution(DensePLDPmf(interval, losses.lowest * stride, masses, infinite, True))
