"""The mechanism `one-bit`: vectors with a bounded norm are rotated and sent as random bits, whose coin is the privacy.

`mechanism` has the parameters, finds the best ones and reads a table of counts, with the error that is expected;
`randomize` rotates and tosses the coins; `attack` is for audits.
"""

from shufflesum.mechanisms.one_bit.mechanism import MOST_BITS, OneBit

__all__ = ["MOST_BITS", "OneBit"]
