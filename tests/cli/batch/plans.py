"""The plans of these tests, made once."""

from __future__ import annotations

import shufflesum as ss

__all__ = ["OTHER", "PLAN", "SMALL"]

PLAN = ss.plan(
    users=5000, shape=3, epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=3, levels=3)
)
OTHER = ss.plan(
    users=5000, shape=3, epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=3)
)
SMALL = ss.plan(
    users=100,
    shape=3,
    epsilon=2.0,
    delta=1e-3,
    mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=1),
    rounds=2,
)
