"""The mechanism `one-bit`: vectors with a bounded norm are rotated and sent as random bits, whose coin is the privacy.

`mechanism` has the parameters and finds the best ones; `randomize` rotates and tosses the coins; `decode` reads a table
of counts, with the error that is expected; `attack` is for audits.
"""

from shufflesum.mechanisms.one_bit.mechanism import MOST_BITS, OneBit

__all__ = ["MOST_BITS", "OneBit"]
