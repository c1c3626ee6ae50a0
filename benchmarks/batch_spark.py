"""Counting on Spark against Spark's own group-by, on the same files in the same session; and what Spark wrote."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, at_most, best_times
from shufflesum.batch import spark
from shufflesum.batch.files import open_dataset, write_manifest, write_part
from shufflesum.batch.identity import Identity
from shufflesum.batch.local import count
from shufflesum.batch.targets import PlainTarget, randomize_rows
from shufflesum.errors import MissingExtraError
from shufflesum.protocol import Randomizer
from shufflesum.testing import unprotected_plan

REPORTS, DIMENSION, LEVELS, FILES = 40_000_000, 100, 3, 8


def rows() -> list[Row]:
    plan = unprotected_plan(users=1, shape=DIMENSION, coordinates=DIMENSION, levels=LEVELS, noise_probability=0.2)
    users = np.random.default_rng(1).random((REPORTS // FILES // DIMENSION, DIMENSION), dtype=np.float32)
    try:
        session = spark.session("local[*]")
    except MissingExtraError as error:
        return [Row("Spark: analyze against its own group-by", f"not measured: {error}", "at most 1.5x")]
    with tempfile.TemporaryDirectory() as name:
        # Not shuffled: for the time that counting takes, who was drawn in which order makes no difference.
        folder, identity = Path(name), Identity.for_plan(plan).shuffled(REPORTS)
        for number in range(FILES):
            records = PlainTarget(plan).encode(randomize_rows(users, Randomizer(plan)))
            write_part(folder, f"part-{number}", [records], identity)
        write_manifest(folder, identity)
        assert open_dataset(folder, stage="shuffled").rows == REPORTS
        frame = spark.read(session, folder, "shuffled")

        def native() -> int:
            return int(frame.groupBy("cell").count().toArrow().num_rows)

        def row_by_row() -> object:
            return spark.count(frame.where("cell >= 0"), plan)

        assert native() == DIMENSION * (LEVELS + 1)
        ours, theirs = best_times(lambda: spark.analyze(frame, plan), native, repeats=5)
        through_rows, _ = best_times(row_by_row, native, repeats=1)
        own, written = (
            open_dataset(folder, stage="shuffled"),
            spark.write(frame, folder.with_name(folder.name + ".spark")),
        )
        of_spark, of_ours = best_times(
            lambda: count(written, PlainTarget(plan)), lambda: count(own, PlainTarget(plan)), repeats=5
        )
        shutil.rmtree(str(written.path))
    session.stop()
    detail = f" ({1e9 * ours / REPORTS:.1f} ns against {1e9 * theirs / REPORTS:.1f} ns a report)"
    return [
        at_most(
            f"Spark: analyze of {REPORTS:,} reports in Parquet files, against `groupBy(cell).count()`",
            ours / theirs,
            1.5,
            detail,
        ),
        at_most(
            f"analyze (without Spark) {REPORTS:,} reports in a folder that Spark wrote, against one of our own",
            of_spark / of_ours,
            1.25,
            f" ({1e9 * of_spark / REPORTS:.1f} ns against {1e9 * of_ours / REPORTS:.1f} ns a report)",
        ),
        Row(
            "Spark: analyze of a frame that is more than files (a filter), so that Spark hands every row to Arrow",
            f"{through_rows / theirs:.1f}x",
            "",
        ),
    ]
