"""The public signs of a rotation: with a Hadamard matrix they spread any vector evenly over all coordinates.

They come from HMAC-SHA-512, because every standard library and every browser has it, so that all clients agree. Nobody
needs to trust the seed: privacy does not depend on it.
"""

from __future__ import annotations

import hmac

import numpy as np
from numpy.typing import NDArray

__all__ = ["SEED_BYTES", "padded_size", "signs"]

SEED_BYTES = 16
_SIGNS = 512  # in one digest


def padded_size(dimension: int) -> int:
    """The power of two that so many numbers are padded to with zeros, at least 2."""
    return max(2, 1 << (dimension - 1).bit_length())


def signs(seed: bytes, round_number: int, size: int) -> NDArray[np.int8]:
    """The first signs of a round, 1 or -1: bits of HMAC-SHA-512(seed, round, block), highest first; 1 means minus.

    Round and block (from 0, of 512 signs each) are four bytes, highest first.
    """
    blocks = -(-size // _SIGNS)
    digests = b"".join(
        hmac.digest(seed, round_number.to_bytes(4, "big") + block.to_bytes(4, "big"), "sha512")
        for block in range(blocks)
    )
    bits = np.unpackbits(np.frombuffer(digests, dtype=np.uint8), count=size)
    return np.where(bits, np.int8(-1), np.int8(1))
