"""The mechanism `noisy-counts`: the truth in binary digits, and noise as dummy reports.

`mechanism` has the parameters, finds the least noise and reads a table of counts, by coordinate or by group;
`randomize` draws reports, or adds all users up in one process; `attack` is for audits.
"""

from shufflesum.mechanisms.noisy_counts.mechanism import MOST_DIGITS, NoisyCounts

__all__ = ["MOST_DIGITS", "NoisyCounts"]
