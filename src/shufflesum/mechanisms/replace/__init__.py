"""`replace`, the paper's mechanism: each report is replaced by a uniform one with the noise probability."""

from shufflesum.mechanisms.replace.accounting import ReplaceAccounting
from shufflesum.mechanisms.replace.mechanism import MAX_LEVELS, Replace, Sampling, on_grid

__all__ = ["MAX_LEVELS", "Replace", "ReplaceAccounting", "Sampling", "on_grid"]
