"""The one cell that is a user's own: the label's, or for open vocabularies a random hash function's bucket of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.domain import Categories, Hashed
from shufflesum.randomness import RandomSource, Words, words
from shufflesum.randomness.draws import SPARE_WORDS, stratified_coordinates

__all__ = ["Truth", "count_codes", "truth_of"]

Truth: TypeAlias = Callable[[Any, int], NDArray[Any]]
"""What a domain prepared, and the number of its first row, to whole numbers below the number of cells."""


def truth_of(domain: Categories | Hashed, source: RandomSource) -> Truth:
    """How rows of this domain become cells; randomness is drawn for open vocabularies only."""
    if isinstance(domain, Categories):
        return lambda codes, first_row: _checked(domain, codes, first_row)
    return lambda labels, first_row: _hashed(domain, labels, source)


def _checked(domain: Categories, codes: NDArray[Any], first_row: int) -> NDArray[Any]:
    domain.check_codes(codes, first_row)
    return codes


def _hashed(domain: Hashed, labels: Any, source: RandomSource) -> NDArray[np.uint32]:
    functions: Words = np.empty((len(labels), 1), dtype=np.uint32)
    done = 0
    while done < len(labels):
        left = functions[done:]
        drawn = words(source, left.size + left.size // 64 + SPARE_WORDS, np.uint32)
        done += stratified_coordinates(drawn, domain.layout[0], 1, left)
    chosen = functions[:, 0]
    cells: NDArray[np.uint32] = chosen * np.uint32(domain.layout[1]) + domain.buckets_of(labels, chosen)
    return cells


@kernel
def count_codes(codes: NDArray[Any], table: NDArray[Any]) -> int:
    """Add codes to the table; returns how many are none of its cells, negative ones among them, and were left out."""
    outside = 0
    for code in codes:
        if 0 <= code < table.size:
            table[code] += 1
        else:
            outside += 1
    return outside
