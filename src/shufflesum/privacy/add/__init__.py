"""The bounds of the mechanism `add`: counts of cells with binomial noise of their own.

`cell` (one noisy count), `oneway` (several that move the same way), `paired` (two that move against each other),
`block` (several that each move as they like), `composed` (a table of them), `cap` (how much room noise reports need).
"""

from __future__ import annotations

from shufflesum.privacy.add.cap import overflow_upper, smallest_cap
from shufflesum.privacy.add.composed import MOST_TRIALS, Cells, Directions, Group, choices

__all__ = ["MOST_TRIALS", "Cells", "Directions", "Group", "choices", "overflow_upper", "smallest_cap"]
