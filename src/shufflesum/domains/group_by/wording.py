"""Nouns and sentences about `GroupBy`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from shufflesum.domains.group_by.domain import GroupBy
from shufflesum.domains.wording import Wording, arrays_of, bounds_of, error_of_each, listed, squared
from shufflesum.mechanisms import NoisyCounts

if TYPE_CHECKING:
    from shufflesum.plans import Plan


class GroupByWording(Wording[GroupBy]):
    """What is said of a group and an array for each user."""

    public: ClassVar[str] = "Groups, bounds"

    def collected(self) -> str:
        """Sizes, means and sums."""
        values, groups = self.domain.values, listed(self.domain.names, "group")
        held = arrays_of(values.shape, values.dimension)
        return f"users, mean and sum of {held} in each of {groups}{self._from_column()}"

    def bounds(self) -> str:
        """Of every number or of each, in all groups."""
        return bounds_of(self.domain.values)

    def errors(self, plan: Plan) -> list[str]:
        """Of a mean, and of a group's size."""
        assert isinstance(plan.mechanism, NoisyCounts)
        size = math.sqrt(plan.users * float(plan.mechanism.noise_variances[-1]))
        return [
            error_of_each(plan, "per entry of a group's mean, if all groups are equally large"),
            f"{size:.3g} users in the size of each group (standard error)",
            f"squared, all means: {squared(plan)}",
        ]

    def moved(self, plan: Plan) -> str:
        """A mean of a group."""
        return f"the mean of a group (one of {len(self.domain.labels):,} equally large ones)"
