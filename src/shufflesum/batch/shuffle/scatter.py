"""Reports into random buckets, and out of them again in random order.

Every report goes to a bucket of its own independent, exactly uniform choice; later each bucket is permuted uniformly,
and the buckets follow one another. That is a uniform permutation of all reports: given the buckets' sizes, which are
multinomial whatever the input was, every way to deal the reports out to them is equally likely, and so is every order
within each, hence every order of the whole. (Sandelius and Rao shuffled cards like this.)

A report is moved as an item of a fixed number of bytes that nobody looks into.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.batch.kinds import Items
from shufflesum.protocol import permutation
from shufflesum.randomness import RandomSource

__all__ = ["as_bytes", "permute", "room", "scatter"]


@kernel
def _scatter(items: Items, draws: Items, buckets: int, ends: Items, out: Items) -> None:
    mask = np.uint16(buckets - 1)
    places = np.zeros(buckets, dtype=np.int64)
    for i in range(draws.size):
        places[draws[i] & mask] += 1
    start = 0
    for bucket in range(buckets):
        size = places[bucket]
        places[bucket] = start
        start += size
        ends[bucket + 1] = start
    for i in range(items.size):
        bucket = draws[i] & mask
        out[places[bucket]] = items[i]
        places[bucket] += 1


@kernel
def _gather(items: Items, order: Items, out: Items) -> None:
    for i in range(order.size):
        out[i] = items[order[i]]


def as_bytes(items: Items) -> NDArray[np.uint8]:
    """The items' own bytes: copied as such they need a fraction of the time."""
    return items.view(np.uint8)


def room(count: int, dtype: np.dtype[Any]) -> Items:
    """An array of its own pages, given back as soon as it is not needed: the usual heap might keep them."""
    pages = mmap.mmap(-1, max(1, count * dtype.itemsize), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # first use of a page is dear; of a large one, no dearer
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype, count)


def scatter(items: Items, buckets: int, source: RandomSource) -> tuple[Items, NDArray[np.uint32]]:
    """The items sorted into random buckets, and where each bucket begins and ends.

    The number of buckets is a power of two, so the low bits of a random word are an exactly uniform bucket.
    """
    ends = np.zeros(buckets + 1, dtype=np.uint32)
    draws, out = room(len(items), np.dtype(np.uint16)), room(len(items), items.dtype)
    source.fill(draws)
    _scatter(items, draws, buckets, ends, out)
    return out, ends


def permute(items: Items, source: RandomSource) -> Items:
    """The items in a uniformly random order: Fisher and Yates's shuffle of their places."""
    out = np.empty_like(items)
    _gather(items, permutation(len(items), source), out)
    return out
