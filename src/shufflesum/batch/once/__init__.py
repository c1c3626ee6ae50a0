"""Once: nothing that a user sent is released twice with other company, or counted twice.

A *contribution* is what one data owner's run of the randomizer, or one client's upload, brings to a batch. Within a
batch, `copies` refuses what is there twice. Between batches, the shuffler remembers what it has `Released`, and the
analyzer what it has `Counted`. (Whether a client has contributed to a round is the service's to remember.)
"""

from __future__ import annotations

from shufflesum.batch.once.copies import refuse_same_files, refuse_same_parts, refuse_same_reports
from shufflesum.batch.once.counted import Counted
from shufflesum.batch.once.released import RELEASED, Members, Released

__all__ = [
    "RELEASED",
    "Counted",
    "Members",
    "Released",
    "refuse_same_files",
    "refuse_same_parts",
    "refuse_same_reports",
]
