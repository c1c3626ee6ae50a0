"""Folders of reports that are numbers, so that each can be followed through a shuffle."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from tests.batch.report_folders import (
    write_folder,
)

from shufflesum.batch.files import Format, open_dataset, read_records
from shufflesum.batch.identity import Identity
from shufflesum.testing import unprotected_plan

__all__ = ["IDENTITY", "MEMORY", "PLAN", "numbered_folder", "read"]

PLAN = unprotected_plan(users=4, shape=1 << 20, levels=9)
IDENTITY = Identity.for_plan(PLAN)
MEMORY = 42 * 10**6


def numbered_folder(path: Path, *sizes: int, kind: Format = "parquet") -> Path:
    """Files of reports whose cells number them through."""
    ends = np.cumsum((0, *sizes)).tolist()
    return write_folder(path, IDENTITY, *(range(a, b) for a, b in pairwise(ends)), kind=kind)


def read(path: Path) -> list[int]:
    """The cells of a shuffled folder, in order."""
    files = open_dataset(path, stage="shuffled").files
    return [cell for file in files for records in read_records(file, 1 << 20) for cell in records["cell"].to_pylist()]
