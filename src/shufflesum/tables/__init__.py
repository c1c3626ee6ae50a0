"""Reading users' arrays from files in batches, and writing estimates whole or not at all."""

from shufflesum.tables.readers import READABLE, Table, check_shape, open_table
from shufflesum.tables.writers import WRITABLE, StagedOutputs, estimate_to_json, write_estimate

__all__ = [
    "READABLE",
    "WRITABLE",
    "StagedOutputs",
    "Table",
    "check_shape",
    "estimate_to_json",
    "open_table",
    "write_estimate",
]
