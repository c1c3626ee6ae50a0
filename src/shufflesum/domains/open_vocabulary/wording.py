"""Nouns and sentences about `OpenVocabulary`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from shufflesum.domains.open_vocabulary.domain import OpenVocabulary
from shufflesum.domains.wording import Wording, counted, root_mean_square, squared
from shufflesum.mechanisms.noisy_slots.mechanism import ASSUMED_LAW

if TYPE_CHECKING:
    from shufflesum.plans import Plan


class OpenVocabularyWording(Wording[OpenVocabulary]):
    """What is said of any word for each user."""

    public: ClassVar[str] = "Hash functions"

    def collected(self) -> str:
        """Counts of words that are asked for."""
        functions, buckets = self.domain.layout
        return (
            f"how many users hold any word that is asked for afterwards, one each, by {functions:,} hash functions "
            f"with {buckets:,} buckets each{self._from_column()}"
        )

    def errors(self, plan: Plan) -> list[str]:
        """Of the count of a word, if words are as frequent as they usually are."""
        each = root_mean_square(plan)
        return [
            f"{each * plan.users:.3g} users in the count of each word (root mean square): {each:.3g} of all",
            f"if {ASSUMED_LAW}",
            f"squared, of one frequency: {squared(plan)}",
        ]

    def moved(self, plan: Plan) -> str:
        """A count."""
        return "a count of a word"

    def shift(self, plan: Plan, malicious: int) -> str:
        """In users."""
        return counted(plan, malicious)
