"""What privacy is left when the shuffler colludes with the analyzer: that of each report on its own."""

from __future__ import annotations

import math

from shufflesum.errors import ParameterError

__all__ = ["local_epsilon"]


def local_epsilon(*, levels: int, noise_probability: float, coordinates: int = 1, rounds: int = 1) -> float:
    """Return t*T*eps0 with eps0 = ln(1 + K(1 - gamma)/gamma), K = levels + 1, rounded up.

    eps0 is the largest log-ratio of the probabilities of one report under two values; a user's reports, and
    their rounds, add up. Without noise (gamma = 0) nothing is left: infinity. Pure noise (gamma = 1) gives 0.
    """
    for name, count in (("levels", levels), ("coordinates", coordinates), ("rounds", rounds)):
        if count < 1:
            raise ParameterError("out-of-range", f"{name} = {count}: must be at least 1; raise {name}")
    if not 0.0 <= noise_probability <= 1.0:
        raise ParameterError(
            "out-of-range", f"noise_probability = {noise_probability}: must lie in [0, 1]; change noise_probability"
        )
    if noise_probability == 0.0:
        return math.inf
    if noise_probability == 1.0:
        return 0.0
    odds = (levels + 1) * (1.0 - noise_probability) / noise_probability
    if odds == math.inf:
        return math.inf
    # three roundings and a logarithm: well below eight units in the last place of odds and of the result
    total = coordinates * rounds * math.log1p(odds * (1.0 + 2.0**-50)) * (1.0 + 2.0**-50)
    return math.nextafter(total, math.inf)
