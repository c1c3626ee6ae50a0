"""What was written into a folder of reports, so that a part of it cannot pass for the whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._machine import replace_file
from shufflesum.batch.disk import writing
from shufflesum.batch.files.report_file import ReportFile, open_report_file, report_paths
from shufflesum.batch.identity import Identity
from shufflesum.errors import FileError, ReportsError
from shufflesum.tables import Place

__all__ = ["MANIFEST", "check_manifest", "write_manifest"]

MANIFEST = "_shufflesum.json"
_FORMAT = "shufflesum-folder-2"
_MOST_BYTES = 1 << 28


def write_manifest(folder: Path, identity: Identity) -> None:
    """Say what is in a folder of reports, once all its files are there: from now on exactly that must be."""
    files = [open_report_file(path) for path in report_paths(folder)]
    document = {
        "identity": json.loads(identity.to_json()),
        "files": [{"name": file.path.name, "rows": file.rows, "bytes": file.bytes} for file, _ in files],
    }
    with writing(folder / MANIFEST, "check the disk"):
        replace_file(folder / MANIFEST, encode_checked(_FORMAT, document))


def check_manifest(path: Place, files: Iterable[ReportFile], identity: Identity) -> int | None:
    """How many reports were written beside these, them included, by the manifest; None where none is about them.

    A folder must hold exactly what its manifest says, and a single file must be as it was listed.
    """
    folder = path if path.is_dir() else path.parent
    if not (folder / MANIFEST).exists():
        return None
    listed, run = _read(folder / MANIFEST)
    found = {file.path.name: (file.rows, file.bytes) for file in files}
    if not path.is_dir() and path.name not in listed:
        return None
    for name in sorted(listed.keys() - found.keys()) if path.is_dir() else ():
        raise ReportsError(
            "changed-afterwards", f"{folder}: {name} is missing; {MANIFEST} lists it: copy the folder again, whole"
        )
    for name in sorted(found.keys() - listed.keys()):
        raise ReportsError(
            "changed-afterwards", f"{folder}: {name} is not in {MANIFEST}, so it does not belong here; move it away"
        )
    for name, (rows, size) in found.items():
        if (rows, size) != listed[name]:
            raise ReportsError(
                "changed-afterwards",
                f"{folder}: {name} has {rows} rows in {size} bytes, but {listed[name][0]} in {listed[name][1]} were "
                "written; copy the folder again, whole",
            )
    if identity != run:
        raise ReportsError(
            "changed-afterwards",
            f"{folder}: the files are of another run than {MANIFEST} says; copy the folder again, whole",
        )
    return sum(rows for rows, _ in listed.values())


def _read(path: Place) -> tuple[dict[str, tuple[int, int]], Identity]:
    """Rows and bytes of each file, and of whose run they are."""
    try:
        with path.open("rb") as file:
            document = decode_checked(file.read(_MOST_BYTES), _FORMAT)
        listed = {entry["name"]: (int(entry["rows"]), int(entry["bytes"])) for entry in document["files"]}
        return listed, Identity.from_json(json.dumps(document["identity"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(
            problem_of(error),
            f"{path}: the list of what was written cannot be read ({error}); copy the folder again, or write it anew",
        ) from error
