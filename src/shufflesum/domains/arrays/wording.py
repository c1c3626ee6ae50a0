"""Nouns and sentences about `Arrays`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from shufflesum.domains.arrays.domain import Arrays
from shufflesum.domains.wording import Wording, arrays_of, bounds_of, margins_of_numbers

if TYPE_CHECKING:
    from shufflesum.plans import Plan


class ArraysWording(Wording[Arrays]):
    """What is said of arrays with bounds."""

    public: ClassVar[str] = "Bounds"

    def collected(self) -> str:
        """Mean and sum."""
        return f"the mean and sum of {arrays_of(self.domain.shape, self.domain.dimension)}"

    def bounds(self) -> str:
        """Of every number or of each."""
        return bounds_of(self.domain)

    def margins(self, plan: Plan) -> dict[str, str]:
        """Of each mean."""
        return margins_of_numbers(plan, "the mean")

    def moved(self, plan: Plan) -> str:
        """A mean."""
        return "a mean" if self.domain.bounds.uniform else "the mean with the widest bounds"
