"""What is noise in a table of counts under `add` with slots.

Of all reports that are not blank, as many as there are users are their own, and the others, m, are noise: uniform over
the D cells, whatever the data. So the noise of a label's count is Binomial(m, 1/D), and all counts add up to the users.
"""

from __future__ import annotations

from dataclasses import dataclass

from shufflesum.mechanisms.frequencies import Frequencies
from shufflesum.mechanisms.mechanism import Table

__all__ = ["SlotNoise", "slot_frequencies"]


@dataclass(frozen=True, slots=True, eq=False)
class SlotNoise:
    """What an open vocabulary's table says before anybody asks for words: so many reports in it are noise."""

    table: Table
    users: int

    @property
    def noise_reports(self) -> int:
        """Reports that are nobody's own; dishonest users can make that a negative number, which then counts as 0."""
        return max(0, int(self.table.sum()) - self.users)


def slot_frequencies(table: Table, users: int) -> Frequencies:
    """The frequencies of labels; without bias, and adding up to 1."""
    return Frequencies(table, users, SlotNoise(table, users).noise_reports, 1 / len(table))
