"""Reading users' data from files in batches, and writing estimates whole or not at all."""

from shufflesum.tables.columns import LabelColumn
from shufflesum.tables.readers import READABLE, Table, column_names, open_table
from shufflesum.tables.rows import check_shape, option_of, rows_of, table_selection
from shufflesum.tables.writers import WRITABLE, StagedOutputs, estimate_to_json, write_estimate

__all__ = [
    "READABLE",
    "WRITABLE",
    "LabelColumn",
    "StagedOutputs",
    "Table",
    "check_shape",
    "column_names",
    "estimate_to_json",
    "open_table",
    "option_of",
    "rows_of",
    "table_selection",
    "write_estimate",
]
