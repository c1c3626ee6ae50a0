"""Plans for vectors with a bounded norm, and whether a box around them would serve better."""

from __future__ import annotations

import secrets

from shufflesum.domain import Ball
from shufflesum.domain.rotation import SEED_BYTES
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.replace_bits.moves import ball_choice
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.privacy.curator import curator_error

__all__ = ["ball_alternatives", "ball_plan", "box_is_better"]

_ADD_OVER_CURATOR = 1.1  # about what `add` costs beside a trusted curator's noise


def ball_plan(domain: Ball, guarantee: Guarantee, kinds: list[str], max_reports: int | None) -> Plan:
    """The certified plan with the least predicted error under `max_reports`; its seed is drawn here, if none is given.

    The seed is public and needs no trust.
    """
    if "replace" not in kinds:
        raise ParameterError(
            "impossible-combination",
            f"mechanism {kinds[0]!r} cannot carry a ball; leave mechanism out, or plan for a box with bounds",
        )
    mechanism = ball_choice(domain, guarantee, max_reports)
    seeded = domain if domain.seed is not None else domain.seeded(secrets.token_bytes(SEED_BYTES))
    return Plan(seeded, mechanism, guarantee)


def ball_alternatives(chosen: Plan, guarantee: Guarantee) -> list[Plan]:
    """One bit of each coordinate, four, sixteen, and so on up to the plan's own number."""
    domain, found = chosen.domain, [chosen]
    assert isinstance(domain, Ball)
    bits = 1
    while bits * domain.padded < chosen.reports:
        found.append(Plan(domain, ball_choice(domain, guarantee, bits * domain.padded), guarantee))
        bits *= 4
    return found


def box_is_better(plan: Plan) -> bool:
    """Whether mechanism `add` on the box that just holds the ball would have the smaller error, as it may for few
    coordinates: there neighbours differ by 2 C in each of them, but nothing is lost by rounding to bits."""
    domain = plan.domain
    if not isinstance(domain, Ball):
        return False
    width, size = 2.0 * domain.radius, domain.dimension
    weights = ((width * size) ** 2, width**2 * size**3)
    boxed = curator_error(plan.users, weights, plan.epsilon, plan.delta, plan.rounds)
    return _ADD_OVER_CURATOR * boxed < plan.expected_error.total
