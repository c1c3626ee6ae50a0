"""What an estimate should say: the same numbers from the data itself, which is public here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Ball, Box, Categories, Choices, Domain, Groups, Hashed, Missing

__all__ = ["true_values"]

_Floats = NDArray[np.float64]


def true_values(
    domain: Domain, batches: Iterable[Any], words: list[str] | None = None, *, clip: bool, missing: Missing
) -> tuple[_Floats, int]:
    """Means, counts or means of groups (NaN for those without users), and how many users there are.

    Of open vocabularies the counts of `words`.
    """
    add, result = _sums(domain, words)
    users = 0
    for rows in batches:
        add(domain.prepare(rows, users, clip=clip, missing=missing))
        users += len(rows)
    return result(users), users


def _sums(domain: Domain, words: list[str] | None) -> tuple[Callable[[Any], None], Callable[[int], _Floats]]:
    """A function that takes prepared rows, and one for what they come to."""
    match domain:
        case Box() | Ball():
            total = np.zeros(domain.dimension)

            def add_numbers(rows: Any) -> None:
                total[:] += rows.sum(axis=0, dtype=np.float64)

            if isinstance(domain, Box):
                restore = domain.structure.restore
                return add_numbers, lambda users: restore(total / users)
            center = 0.0 if domain.center is None else domain.center
            return add_numbers, lambda users: (total / users + center).reshape(domain.shape)
        case Categories() | Choices():
            counts = np.zeros(domain.cells)

            def add_labels(cells: Any) -> None:
                held = np.asarray(cells).reshape(-1)
                counts[:] += np.bincount(held[held < domain.cells], minlength=domain.cells)  # blanks are beyond

            return add_labels, lambda _: counts
        case Groups():
            sizes = np.zeros(len(domain.labels))
            sums = np.zeros((len(domain.labels), domain.box.dimension))

            def add_groups(rows: Any) -> None:
                np.add.at(sizes, rows.groups, 1)
                np.add.at(sums, rows.groups, rows.coordinates)

            def means(_: int) -> _Floats:
                with np.errstate(invalid="ignore"):
                    return np.stack([domain.box.structure.restore(row) for row in sums / sizes[:, None]])

            return add_groups, means
        case Hashed():
            found: Counter[bytes] = Counter()
            listed = domain.prepare(domain.rows(words or []))
            return found.update, lambda _: np.array([found[word] for word in listed], dtype=np.float64)
