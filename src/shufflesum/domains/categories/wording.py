"""Nouns and sentences about `Categories`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from shufflesum.domains.categories.domain import Categories
from shufflesum.domains.wording import Wording, counted, listed

if TYPE_CHECKING:
    from shufflesum.plans import Plan


class CategoriesWording(Wording[Categories]):
    """What is said of one label, or one bin, for each user."""

    public: ClassVar[str] = "Labels"
    clipped: ClassVar[str] = "numbers beyond the bins were counted in the nearest one"

    def collected(self) -> str:
        """A count for each label or bin."""
        domain = self.domain
        if domain.bins is not None:
            return f"how many users' numbers lie in each of {listed(domain.names, 'bin')}{self._from_column()}"
        return f"how many users hold each of {listed(domain.names, 'label')}, one each{self._from_column()}"

    def moved(self, plan: Plan) -> str:
        """A count."""
        return "the count of a label"

    def shift(self, plan: Plan, malicious: int) -> str:
        """In users."""
        return counted(plan, malicious)
