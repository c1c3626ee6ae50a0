"""Everything about the domain `GroupBy`."""

from shufflesum.domains.group_by.domain import GroupBy

__all__ = ["GroupBy"]
