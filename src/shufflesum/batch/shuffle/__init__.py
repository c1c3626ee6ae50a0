"""The shuffler on files: a uniform permutation of all reports of a batch, however much larger than memory it is."""

from __future__ import annotations

from shufflesum.batch.shuffle.passes import Shuffled, shuffle, shuffle_source
from shufflesum.batch.shuffle.sources import FileSource, ReportSource, open_source

__all__ = ["FileSource", "ReportSource", "Shuffled", "open_source", "shuffle", "shuffle_source"]
