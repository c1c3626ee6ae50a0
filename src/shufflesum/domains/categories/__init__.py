"""Everything about the domain `Categories`."""

from shufflesum.domains.categories.domain import Categories

__all__ = ["Categories"]
