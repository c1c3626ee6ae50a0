"""Which cells there are under `add`, and which of them are noisy alike: the same for all domains that it carries.

Cells lie group after group; those of a group are the digits of each coordinate, coordinate x J + digit, and last, where
the groups' users are counted, one for that. All cells of one digit are a class, and so are the counts: within a class
noise is the same. A box is one group, and so are choices, whose labels are coordinates of one digit each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Box, Choices, Domain, Groups
from shufflesum.errors import ParameterError

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """So many groups of so many coordinates; a user's own reports are at most `most_true`."""

    groups: int
    coordinates: int
    digits: int
    counted: bool
    most_true: int

    @staticmethod
    def of(digits: int, domain: Domain) -> Layout:
        """The cells of a domain whose values have so many digits."""
        match domain:
            case Box():
                return Layout(1, domain.dimension, digits, False, domain.dimension * digits)
            case Choices():
                if digits != 1:
                    raise ParameterError(
                        "out-of-range", f"digits is {digits}; a label is chosen or not, which is one digit"
                    )
                return Layout(1, domain.dimension, 1, False, domain.most)
            case Groups():
                return Layout(len(domain.labels), domain.box.dimension, digits, True, domain.box.dimension * digits + 1)
        raise ParameterError(
            "impossible-combination",
            f"mechanism 'add' with noise in every cell is not for {type(domain).__name__}; its noise goes into slots",
        )

    @property
    def group_cells(self) -> int:
        """How many cells a group has."""
        return self.coordinates * self.digits + self.counted

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return self.groups * self.group_cells

    @property
    def classes(self) -> int:
        """How many kinds of cells there are: the digits, and the count."""
        return self.digits + self.counted

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each class has."""
        return (self.groups * self.coordinates,) * self.digits + (self.groups,) * self.counted

    def cells_of(self, number: int) -> NDArray[np.uint32]:
        """The cells of a class, in order."""
        grouped = np.arange(self.cells, dtype=np.uint32).reshape(self.groups, self.group_cells)
        if number == self.digits:
            return np.ascontiguousarray(grouped[:, -1])
        return np.ascontiguousarray(grouped[:, : self.coordinates * self.digits][:, number :: self.digits]).reshape(-1)
