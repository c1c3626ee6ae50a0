"""Which columns of a frame are the users' data: numbers, labels, or both; and how a partition's rows are read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, NumericType, StringType, StructField

from shufflesum.batch.spark.jobs import check_frame, quoted, spark_job
from shufflesum.domains import ColumnLayout, Domain
from shufflesum.errors import DataError
from shufflesum.tables import table_selection
from shufflesum.tables.columns import choose_columns


def users_columns(
    frame: DataFrame,
    where: str,
    domain: Domain,
    *,
    columns: Sequence[str] | None,
    label_column: str | None,
    user_column: str | None = None,
) -> DataFrame:
    """The columns that a domain is read from, that of labels first; refused where their types cannot hold it."""
    check_frame(frame)
    selection = table_selection(domain, column=label_column, columns=columns)
    names = frame.columns  # asked for once: Spark makes the list anew each time
    choice = choose_columns(where, names, user_column=user_column, **selection)
    places = ([] if choice.label is None else [choice.label]) + list(choice.data)
    with spark_job(frame.sparkSession):
        users = frame.select(*[F.col(quoted(names[place])) for place in places])
        fields = list(users.schema.fields)
    if choice.label is not None:
        _check_labels(fields.pop(0), domain.column_layout)
    if choice.data:
        _check_numbers(fields, domain.column_layout)
    return users


def _check_labels(field: StructField, layout: ColumnLayout) -> None:
    kind: DataType = field.dataType
    if layout.lists and isinstance(kind, ArrayType):
        kind = kind.elementType
    elif layout.lists:
        raise DataError(
            "wrong-type",
            f"column {field.name!r} has type {field.dataType.simpleString()}; several labels of a user are an array of "
            "text or whole numbers",
        )
    if not isinstance(kind, StringType | NumericType | BooleanType):
        raise DataError(
            "wrong-type",
            f"column {field.name!r} has type {field.dataType.simpleString()}; labels are text, whole numbers, or true "
            "and false: convert it, or name another column",
        )


def _check_numbers(fields: Sequence[StructField], layout: ColumnLayout) -> None:
    lists = [field for field in fields if isinstance(field.dataType, ArrayType)]
    for field in fields:
        kind = field.dataType.elementType if isinstance(field.dataType, ArrayType) else field.dataType
        if not isinstance(kind, NumericType | BooleanType):
            raise DataError(
                "not-numbers",
                f"column {field.name!r} has type {field.dataType.simpleString()}; allowed are numbers and one array of "
                "numbers: convert it, or choose other columns (columns=)",
            )
    if lists and len(fields) > 1:
        raise DataError(
            "wrong-shape",
            f"column {lists[0].name!r} holds arrays and there are {len(fields) - 1} other columns; choose it alone "
            "(columns=), or leave it out",
        )
    shape = layout.numbers
    assert shape is not None
    if not lists and len(fields) != math.prod(shape):
        raise DataError(
            "wrong-shape",
            f"a row has {len(fields)} columns, but the plan is for {math.prod(shape)} values, shape {shape}; "
            "choose the columns (columns=), or the right plan",
        )
