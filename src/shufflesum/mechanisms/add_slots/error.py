"""The error that is predicted for words of an open vocabulary (docs/accuracy.md)."""

from __future__ import annotations

import math

from shufflesum.domain import Hashed
from shufflesum.mechanisms.mechanism import ExpectedError

__all__ = ["ASSUMED_LAW", "hashed_error"]

ASSUMED_LAW = (
    "the i-th most frequent of a million words is held in proportion to 1/i, and all frequent ones are asked for"
)

_WORDS = 10**6
_HARMONIC = math.log(_WORDS) + 0.5772156649  # the sum of 1/i over all words
_SEEN = 4.0  # a word that many standard errors above 0 is found, and subtracted from the others'


def hashed_error(domain: Hashed, users: int, noise: float) -> ExpectedError:
    """Squared error of a word's frequency if words follow Zipf's law, and frequent ones are subtracted.

    A word's buckets hold users/B reports of other words and users x noise/B of noise. Frequent words are taken off up
    to their own chance of being reported there, which is in the first term; those of fewer than c users, too rare to
    be seen, collide as a whole: by the sum of their squares over S B, which is users c/(H S B), H the harmonic sum.
    """
    functions, buckets = domain.layout
    per_bucket = users / buckets
    error = per_bucket * (1 + noise)
    for _ in range(20):  # c is a few standard errors, which depend on c
        rare = _SEEN * math.sqrt(error)
        error = per_bucket * (1 + noise + rare / (_HARMONIC * functions))
    return ExpectedError(error - per_bucket * noise, rounding=0.0, noise=per_bucket * noise) * users**-2
