"""`make bench`: every speed figure of docs/benchmarks.md, measured now."""

from __future__ import annotations

import platform
import sys

from benchmarks import (
    accounting,
    batch,
    batch_shuffle,
    batch_spark,
    commands,
    l2_ball,
    labels,
    light,
    noisy_counts,
    protocol,
    service,
)
from benchmarks.timing import markdown


def main() -> int:
    parts = (
        protocol,
        noisy_counts,
        labels,
        l2_ball,
        accounting,
        commands,
        batch,
        batch_shuffle,
        batch_spark,
        service,
        light,
    )
    table = [row for part in parts for row in part.rows()]
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    print(markdown(table))
    return 1 if any(row.holds is False for row in table) else 0


if __name__ == "__main__":
    sys.exit(main())
