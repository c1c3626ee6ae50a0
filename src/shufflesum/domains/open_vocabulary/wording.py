"""Nouns and sentences about `OpenVocabulary`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from shufflesum.domains.open_vocabulary.domain import OpenVocabulary
from shufflesum.domains.wording import Wording, counted
from shufflesum.mechanisms.noisy_slots import ASSUMED_LAW

if TYPE_CHECKING:
    from shufflesum.plans import Plan


class OpenVocabularyWording(Wording[OpenVocabulary]):
    """What is said of any word for each user."""

    public: ClassVar[str] = "Hash functions"
    counted: ClassVar[str] = "word"

    def collected(self) -> str:
        """Counts of words that are asked for."""
        functions, buckets = self.domain.layout
        return (
            f"how many users hold any word that is asked for afterwards, one each, by {functions:,} hash functions "
            f"with {buckets:,} buckets each{self._from_column()}"
        )

    def error_details(self, plan: Plan) -> list[str]:
        """How frequent words are taken to be."""
        return [f"if {ASSUMED_LAW}"]

    def moved(self, plan: Plan) -> str:
        """A count."""
        return "a count of a word"

    def shift(self, plan: Plan, malicious: int) -> str:
        """In users."""
        return counted(plan, malicious)
