"""Reading users' data from files in batches, and writing estimates whole or not at all."""

from shufflesum.tables.delimited import TEXT, Dialect, suffix_of
from shufflesum.tables.paths import Address, PathOrUrl, local_path, place, reading, unread, visible
from shufflesum.tables.readers import (
    READABLE,
    CompleteTable,
    DataSource,
    check_shape,
    column_names,
    complete_table,
    detected,
    located,
    open_table,
    rows_of,
    table_selection,
)
from shufflesum.tables.writers import WRITABLE, StagedOutputs, estimate_to_json, warnings_to_json, write_estimate

__all__ = [
    "READABLE",
    "TEXT",
    "WRITABLE",
    "Address",
    "CompleteTable",
    "DataSource",
    "Dialect",
    "PathOrUrl",
    "StagedOutputs",
    "check_shape",
    "column_names",
    "complete_table",
    "detected",
    "estimate_to_json",
    "local_path",
    "located",
    "open_table",
    "place",
    "reading",
    "rows_of",
    "suffix_of",
    "table_selection",
    "unread",
    "visible",
    "warnings_to_json",
    "write_estimate",
]
