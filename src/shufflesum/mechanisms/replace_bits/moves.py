"""What the planner chooses for random bits: tau and bits for the least error, then the largest certified amplitude."""

from __future__ import annotations

import math

from shufflesum.domain import Ball, InBall
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms.replace_bits.coin import AMPLITUDE_BITS
from shufflesum.mechanisms.replace_bits.mechanism import MOST_BITS, ReplaceBits
from shufflesum.privacy import Guarantee
from shufflesum.privacy.ball import best_bits, best_tau, crowding, largest_amplitude

__all__ = ["ball_choice"]

_UNASKED_REPORTS = 1 << 17  # of a user: half a mebibyte, unless one bit of each coordinate is more already
_TAU_STEPS = 1024
_LOWER = 1.0 - 2.0**-20


def ball_choice(domain: Ball, guarantee: Guarantee, max_reports: int | None) -> ReplaceBits:
    """So many bits of each coordinate that more would hardly help, at their best tau and largest amplitude."""
    coordinates = domain.padded
    most = (max_reports or max(_UNASKED_REPORTS, coordinates)) // coordinates
    if most < 1:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"max_reports is {max_reports}, but one bit of each of {coordinates} coordinates (the dimension "
            f"{domain.dimension}, padded) takes as many reports; raise max_reports",
        )
    tau = _tau(guarantee.users, 1, coordinates)
    crowded = crowding(
        users=guarantee.users,
        coordinates=coordinates,
        tau=tau,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        rounds=guarantee.rounds,
    )
    bits = best_bits(crowded, min(most, MOST_BITS))
    return _certified(bits, _tau(guarantee.users, bits, coordinates), coordinates, guarantee)


def _tau(users: int, bits: int, coordinates: int) -> float:
    """The best tau, in steps that are short to write; no coordinate is above sqrt(D), so more would be in vain."""
    best = min(best_tau(users, bits), math.sqrt(coordinates))
    return max(1.0, math.ceil(best * _TAU_STEPS) / _TAU_STEPS)


def _certified(bits: int, tau: float, coordinates: int, guarantee: Guarantee) -> ReplaceBits:
    found = largest_amplitude(
        honest_users=guarantee.honest_users,
        coordinates=coordinates,
        tau=tau,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        rounds=guarantee.rounds,
        bits=bits,
    )
    numerator = math.floor(found * 2.0**AMPLITUDE_BITS)
    while numerator > 0:
        mechanism = ReplaceBits(bits, numerator * 2.0**-AMPLITUDE_BITS, tau)
        ball = mechanism.accounting(InBall(coordinates), guarantee).ball
        if ball is not None and ball.delta_upper(guarantee.epsilon) <= guarantee.delta:
            return mechanism
        numerator = math.floor(numerator * _LOWER)  # a coarser grid may cost a rounding of the bounds
    raise PrivacyError(
        "privacy-out-of-reach",
        f"no bit that says more than 2**-31 is certified for epsilon = {guarantee.epsilon}, delta = {guarantee.delta} "
        f"with {guarantee.honest_users} honest users and {coordinates} coordinates; raise users or epsilon",
    )
