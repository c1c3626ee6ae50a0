"""The mechanism `noisy-counts`: the truth in binary digits, and noise as dummy reports.

`mechanism` has the parameters and finds the least noise; `randomize` draws reports, or adds all users up in one
process; `decode` reads a table of counts, by coordinate or by group; `attack` is for audits.
"""

from shufflesum.mechanisms.noisy_counts.mechanism import MOST_DIGITS, NoisyCounts

__all__ = ["MOST_DIGITS", "NoisyCounts"]
