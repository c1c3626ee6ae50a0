"""`randomized-response` for vectors with a bounded norm: rotated, and sent as random bits whose coin is the privacy."""

from shufflesum.mechanisms.one_bit.mechanism import MOST_BITS, OneBit

__all__ = ["MOST_BITS", "OneBit"]
