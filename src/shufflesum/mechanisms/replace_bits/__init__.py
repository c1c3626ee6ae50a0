"""`replace` for vectors with a bounded norm: rotated, and sent as random bits whose coin is the privacy."""

from shufflesum.mechanisms.replace_bits.mechanism import MOST_BITS, ReplaceBits

__all__ = ["MOST_BITS", "ReplaceBits"]
