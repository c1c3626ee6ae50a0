"""Vectors in a Euclidean ball, sent as random bits: the coin that rounds is what protects. Proofs:
docs/privacy-ball.md.

`accountant` is the front, with adjacent data sets from below; `domination` has the law of the other users' ones, a
Gaussian pair above every coordinate's, and Renyi moments; `error` says how far a mean is off.
"""

from __future__ import annotations

from shufflesum.privacy.one_bit.accountant import MOST_COPIES, OneBitAccountant, largest_amplitude
from shufflesum.privacy.one_bit.error import best_bits, best_tau, clipping_bias, crowding, error_ratio, noise_variance

__all__ = [
    "MOST_COPIES",
    "OneBitAccountant",
    "best_bits",
    "best_tau",
    "clipping_bias",
    "crowding",
    "error_ratio",
    "largest_amplitude",
    "noise_variance",
]
