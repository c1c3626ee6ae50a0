"""A batch is read once: what callers pass becomes rows, and nothing on the way to an estimate reads it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains import Domain, labels
from shufflesum.tables.readers import open_table, rows_of
from shufflesum.tables.sources import ReadOptions

LABELS = ["a", "b", "c"] * 400
TARGET: dict[str, Any] = {"epsilon": 1, "delta": 1e-6}


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many labels were read, each time that a column was."""
    found, read = list[int](), labels.object_rows

    def counted(blocks: Any, size: int) -> Any:
        found.append(size)
        return read(blocks, size)

    monkeypatch.setattr("shufflesum.domains.labels.object_rows", counted)
    return found


@pytest.mark.parametrize(
    ("domain", "values", "labels"),
    [
        (ss.Categories(["a", "b", "c"]), {"arrays": LABELS}, 1200),
        (ss.Categories(["a", "b", "c"]), {"arrays": np.array(LABELS)}, 1200),
        (ss.MultiChoice(["a", "b", "c"], max_choices=2), {"arrays": [["a"], ["b", "c"]] * 600}, 1800),
        (ss.GroupBy(["a", "b", "c"], 2), {"arrays": np.full((1200, 2), 0.5), "group_by": LABELS}, 1200),
        (ss.OpenVocabulary(16, 2), {"arrays": LABELS}, 1200),
    ],
    ids=["list", "array", "lists", "groups", "words"],
)
def test_aggregate_reads_a_column_of_labels_once(
    domain: Domain, values: dict[str, Any], labels: int, readings: list[int]
) -> None:
    assert ss.aggregate(**values, domain=domain, **TARGET).users == 1200
    assert readings == [labels]


def test_an_aggregated_file_is_read_once(tmp_path: Path, readings: list[int]) -> None:
    file = tmp_path / "answers.csv"
    file.write_text("answer\n" + "\n".join(LABELS))
    plan = ss.plan(users=1200, domain=ss.Categories(["a", "b", "c"]), noise_by="curator", **TARGET)
    table = open_table(file, ReadOptions(column="answer").for_domain(plan.domain))
    assert aggregate_batches(rows_of(table, plan.domain), plan).users == 1200
    assert sum(readings) <= 1200
