"""Reports in files: one file, folders of files that belong together, outputs in the making; and users' rows."""

from __future__ import annotations

from shufflesum.batch.files.dataset import Dataset, file_digests, join_datasets, open_dataset
from shufflesum.batch.files.finished import finished_reports, partial_path
from shufflesum.batch.files.manifest import write_manifest
from shufflesum.batch.files.report_file import Format, ReportFile, read_records, write_part
from shufflesum.batch.files.staging import StagedFolder, describe_inputs
from shufflesum.batch.files.users import Piece, Users, open_users

__all__ = [
    "Dataset",
    "Format",
    "Piece",
    "ReportFile",
    "StagedFolder",
    "Users",
    "describe_inputs",
    "file_digests",
    "finished_reports",
    "join_datasets",
    "open_dataset",
    "open_users",
    "partial_path",
    "read_records",
    "write_manifest",
    "write_part",
]
