"""Folders of reports for tests, written by the parts that write real ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shufflesum.batch.files import Format, open_dataset, read_records, write_manifest, write_part
from shufflesum.batch.identity import Identity
from shufflesum.plans import Plan
from shufflesum.testing import UnprotectedTask, unprotected_plan

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))


def noiseless_plan(*, users: int = 4, dimension: int = 3, levels: int = 4) -> Plan:
    """Every user reports every coordinate as it is: on the grid of levels, reports are known in advance."""
    return unprotected_plan(users=users, shape=dimension, coordinates=dimension, levels=levels)


def noiseless_task(plan: Plan) -> UnprotectedTask:
    return UnprotectedTask(
        name="noiseless",
        plan=plan,
        analyzer_key=KEY.public_key().public_bytes_raw(),
        shuffler="http://127.0.0.1:1",
        expires=datetime(2099, 1, 1, tzinfo=UTC),
    )


def grid_rows(rows: int, plan: Plan, seed: int = 1) -> tuple[Any, Any]:
    """Users on the grid, and the table of counts of all their reports under a noiseless plan."""
    levels = plan.cells // plan.dimension - 1
    values = np.random.default_rng(seed).integers(0, levels + 1, (rows, plan.dimension))
    table = np.bincount((np.arange(plan.dimension) * (levels + 1) + values).reshape(-1), minlength=plan.cells)
    return values / levels, table


def records_of(cells: Iterable[int], identity: Identity) -> Any:
    """Plain reports as a record batch."""
    return pa.RecordBatch.from_arrays([pa.array(list(cells), pa.uint32())], schema=identity.arrow_schema())


def write_folder(folder: Path, identity: Identity, *parts: Iterable[int], kind: Format = "parquet") -> Path:
    """One file for each list of cells; no manifest."""
    folder.mkdir()
    for number, cells in enumerate(parts):
        write_part(folder, f"part-{number}", [records_of(cells, identity)], identity, kind)
    return folder


def shuffle_folder(reports: Path, output: Path, parts: int = 2) -> Path:
    """What a shuffler leaves of a small folder of plain or sealed reports."""
    dataset = open_dataset(reports, stage="reports")
    identity = dataset.identity.shuffled(dataset.rows)
    records = [found for file in dataset.files for found in read_records(file, 1 << 16)]
    table = pa.Table.from_batches([found.replace_schema_metadata(None) for found in records])
    table = table.take(np.random.default_rng().permutation(len(table)))
    output.mkdir()
    size = -(-len(table) // parts)
    for number in range(parts):
        write_part(output, f"part-{number}", table.slice(number * size, size).to_batches(), identity)
    write_manifest(output, identity)
    return output


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below, with its time of change and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def every_byte_changed(path: Path) -> Iterator[bytes]:
    """The file with one byte changed, for each byte in two ways; in the end it is as it was."""
    data = path.read_bytes()
    for place, byte in enumerate(data):
        for other in (byte ^ 1, byte ^ 32):  # another digit; another case, or another kind of space
            changed = data[:place] + bytes([other]) + data[place + 1 :]
            path.write_bytes(changed)
            yield changed
    path.write_bytes(data)
