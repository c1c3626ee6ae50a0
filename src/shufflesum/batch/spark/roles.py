"""The three roles on Spark's data frames: users' data to reports, to shuffled reports, to an estimate.

Reports are written down as soon as they are drawn, and again when they are shuffled, before anything depends on them:
tasks that Spark runs twice can neither lose nor repeat nor redraw a report. `jobs` says how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shufflesum.batch.identity import Identity
from shufflesum.batch.spark import tasks
from shufflesum.batch.spark.columns import users_columns
from shufflesum.batch.spark.frames import identity_of, over_reports, report_schema
from shufflesum.batch.spark.jobs import PARTS, materialise, remove, spark_job, working_folder
from shufflesum.batch.targets import PlainTarget
from shufflesum.domain import Missing
from shufflesum.errors import DataError, ReportsError
from shufflesum.estimate import Estimate
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer
from shufflesum.release import release
from shufflesum.reports import Counts

__all__ = ["analyze", "count", "not_empty", "randomize", "randomized", "shuffle", "shuffled_to"]

_BUCKET_BYTES = 24 << 20  # of packed reports, which a task holds several times over while it permutes them
_MOST_BUCKETS = 1 << 16
_COLLECTED_CELLS = 1 << 24


def randomize(
    frame: DataFrame,
    plan: Plan,
    *,
    clip: bool = False,
    missing: Missing = "refuse",
    columns: Sequence[str] | None = None,
    label_column: str | None = None,
    round_number: int = 1,
) -> DataFrame:
    """Reports of all rows for a round of the plan, each row one user, drawn once and kept until Spark ends.

    The columns (all, unless named) are numbers in the order of the plan's entries, or one is an array of them. Labels
    are in `label_column`, in the column that the plan names, or in the only one: text, whole numbers, or true and
    false; arrays of them for `Choices`. The result is for the shuffler alone. It lies in a folder of the checkpoint
    directory, which a cluster must have (`sparkContext.setCheckpointDir`); only its owner may read it.
    """
    users = users_columns(frame, "the DataFrame", plan.domain, columns=columns, label_column=label_column)
    identity = Identity.for_plan(plan, users.columns, round_number)
    drawn = randomized(users, plan, identity, clip=clip, missing=missing)
    with working_folder(frame.sparkSession) as folder:
        return not_empty(*materialise(drawn, f"{folder}/{PARTS}"))


def shuffle(frame: DataFrame) -> DataFrame:
    """The reports of `randomize`, or a union of several such, in a uniformly random order, kept until Spark ends.

    Refused below the plan's smallest batch. Each report draws a bucket, and that is written down; then every bucket,
    all of it in one place, is permuted, and that is written down.
    """
    identity = identity_of(frame, "reports")
    with spark_job(frame.sparkSession):
        rows = frame.count()
    identity.check_enough(rows)
    with working_folder(frame.sparkSession) as folder:
        return shuffled_to(frame, identity, identity.shuffled(rows), folder)


def count(frame: DataFrame, plan: Plan) -> Counts:
    """The table of counts of shuffled reports: one for each partition, then their sum."""
    identity = identity_of(frame, "shuffled")
    counts = Counts(plan, identity.round_number)  # refuses here a plan that no task verifies again
    PlainTarget(plan).check(identity)
    with spark_job(frame.sparkSession):
        add_up = partial(tasks.count_partition, plan=plan, round_number=identity.round_number)
        cells = over_reports(frame, identity, add_up, "cell long, count long")
        if cells.rdd.getNumPartitions() * plan.cells > _COLLECTED_CELLS:
            cells = cells.groupBy("cell").agg(F.sum("count").alias("count"))
        found = cells.toArrow()
    cell, number = (found.column(name).to_numpy() for name in ("cell", "count"))
    np.add.at(counts.table, cell[cell >= 0], number[cell >= 0])
    counts.blanks = int(number[cell == tasks.BLANKS].sum())
    counts.rejected = int(number[cell == tasks.REJECTED].sum())
    return counts


def analyze(frame: DataFrame, plan: Plan, *, without_guarantee: bool = False) -> Estimate:
    """The estimate from the shuffled reports of a whole batch.

    Refused for another plan, for unshuffled reports, and as `shufflesum.release` says.
    """
    counts = count(frame, plan)
    whole = counts.received == identity_of(frame, "shuffled").written
    return release(counts, whole=whole, without_guarantee=without_guarantee)


def randomized(users: DataFrame, plan: Plan, identity: Identity, *, clip: bool, missing: Missing) -> DataFrame:
    """The reports of users in columns that were checked, not drawn yet: whenever asked for they are others."""
    Randomizer(plan, clip=clip, missing=missing)  # refuses here what every task would refuse
    draw = partial(tasks.randomize_partition, plan=plan, identity=identity, clip=clip, missing=missing)
    return users.mapInArrow(draw, report_schema(identity))


def shuffled_to(frame: DataFrame, before: Identity, after: Identity, folder: str) -> DataFrame:
    """The reports in random order, written to the parts of a folder."""
    spark, rows = frame.sparkSession, after.written or 0
    before.check_enough(rows)
    total = rows * before.kind.item.itemsize
    buckets = min(_MOST_BUCKETS, 1 << max(0, math.ceil(math.log2(total / _BUCKET_BYTES))))
    deal = partial(tasks.scatter_partition, identity=before, buckets=buckets)
    dealt, _ = materialise(over_reports(frame, before, deal, "bucket int, reports binary"), f"{folder}/dealt")
    # From here on, only the last stage draws; what the exchange brings it is the same each time it is asked for.
    # The number of partitions is given, so that Spark does not cut a bucket in two.
    together = dealt.repartitionById(buckets, "bucket")
    permuted = together.mapInArrow(partial(tasks.permute_partition, identity=before), report_schema(after))
    shuffled, found = materialise(permuted, f"{folder}/{PARTS}")
    remove(spark, f"{folder}/dealt")
    if found != rows:
        raise ReportsError(
            "changed-meanwhile", f"{found} reports came out of the shuffle, and {rows} went in; the input was changed"
        )
    return shuffled


def not_empty(frame: DataFrame, rows: int) -> DataFrame:
    """Refuse users of whom there is none."""
    if rows == 0:
        raise DataError("no-rows", "there are no rows; one row for each of at least one user is expected")
    return frame
