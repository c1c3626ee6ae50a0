"""Everything about the domain `Arrays`."""

from shufflesum.domains.arrays.domain import Arrays

__all__ = ["Arrays"]
