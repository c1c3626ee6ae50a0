"""The mechanism `noisy-counts`: the truth in binary digits, and noise as further reports.

`mechanism` holds the parameters and answers everything; `layout` says which cell is what, `encode` draws reports,
`tally` all of them in one process, `decode` and `decode_groups` read a table, `accounting` asks the accountant,
`attack` is for audits, `moves` for the planner.
"""

from __future__ import annotations

from shufflesum.mechanisms.noisy_counts.mechanism import MOST_DIGITS, NoisyCounts

__all__ = ["MOST_DIGITS", "NoisyCounts"]
