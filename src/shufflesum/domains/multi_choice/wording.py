"""Nouns and sentences about `MultiChoice`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from shufflesum.domains.multi_choice.domain import MultiChoice
from shufflesum.domains.wording import Wording, counted, listed

if TYPE_CHECKING:
    from shufflesum.plans import Plan


class MultiChoiceWording(Wording[MultiChoice]):
    """What is said of several labels for each user."""

    public: ClassVar[str] = "Labels"

    def collected(self) -> str:
        """A count for each label."""
        labels = listed(self.domain.names, "label")
        return f"how many users hold each of {labels}, up to {self.domain.max_choices} each{self._from_column()}"

    def moved(self, plan: Plan) -> str:
        """A count."""
        return "the count of a label"

    def shift(self, plan: Plan, malicious: int) -> str:
        """In users."""
        return counted(plan, malicious)
