"""The bounds for vectors in a Euclidean ball, sent as random bits: the coin that rounds is what protects.

`others` (the law of the other users' ones), `domination` and `gaussian` (a Gaussian pair above every coordinate's),
`renyi` (moments, a second certificate), `concrete` (neighbours, from below), `certificate` (all of it), `error` (how
far a mean is off). Proofs: docs/privacy-ball.md.
"""

from __future__ import annotations

from shufflesum.privacy.ball.certificate import MOST_COPIES, MOST_USERS, Certificate, largest_amplitude
from shufflesum.privacy.ball.error import (
    best_bits,
    best_tau,
    clipping_bias,
    crowding,
    error_ratio,
    noise_variance,
)

__all__ = [
    "MOST_COPIES",
    "MOST_USERS",
    "Certificate",
    "best_bits",
    "best_tau",
    "clipping_bias",
    "crowding",
    "error_ratio",
    "largest_amplitude",
    "noise_variance",
]
