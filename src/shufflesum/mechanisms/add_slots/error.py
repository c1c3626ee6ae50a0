"""The error that is predicted for words of an open vocabulary (docs/accuracy.md)."""

from __future__ import annotations

import math

from shufflesum.domain import Hashed
from shufflesum.mechanisms.mechanism import ExpectedError

__all__ = ["ASSUMED_LAW", "TELLING_FUNCTIONS", "hashed_error"]

ASSUMED_LAW = (
    "the i-th most frequent of a million words is held in proportion to 1/i, and all frequent ones are asked for"
)

TELLING_FUNCTIONS = 8
"""With fewer a frequent word is not told from one that shares a bucket with it, and none is subtracted."""

_WORDS = 10**6
_HARMONIC = math.log(_WORDS) + 0.5772156649  # the sum of 1/i over all words
_SQUARES = math.pi**2 / 6  # and of 1/i^2
_SEEN = 4.0  # a word that many standard errors above 0 is found, and subtracted from the others'


def hashed_error(domain: Hashed, users: int, noise: float) -> ExpectedError:
    """Squared error of a word's frequency if words follow Zipf's law, and frequent ones are subtracted.

    A word's buckets hold users/B reports of other words and users x noise/B of noise. Frequent words are taken off up
    to their own chance of being reported there, which is in the first term; those of fewer than c users, too rare to
    be seen, collide as a whole: by the sum of their squares over S B, which is users c/(H S B), H the harmonic sum.
    Where functions are too few to tell, all words collide as a whole.
    """
    functions, buckets = domain.layout
    per_bucket = users / buckets
    error = per_bucket * (1 + noise)
    if functions < TELLING_FUNCTIONS:
        collisions = per_bucket * (1 + users * _SQUARES / (_HARMONIC**2 * functions))
        return ExpectedError(collisions, rounding=0.0, noise=per_bucket * noise) * users**-2
    for _ in range(20):  # c is a few standard errors, which depend on c
        rare = _SEEN * math.sqrt(error)
        error = per_bucket * (1 + noise + rare / (_HARMONIC * functions))
    return ExpectedError(error - per_bucket * noise, rounding=0.0, noise=per_bucket * noise) * users**-2
