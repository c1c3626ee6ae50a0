"""Folders of reports for tests, written by the parts that write real ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shufflesum.batch.files import Format, open_dataset, read_batches, write_manifest, write_part
from shufflesum.batch.identity import Identity
from shufflesum.batch.steps import reports_of
from shufflesum.contract import Plan
from shufflesum.protocol import Reports, shuffle
from shufflesum.testing import UnprotectedTask, unprotected_plan

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))


def noiseless_plan(*, users: int = 4, dimension: int = 3, levels: int = 4) -> Plan:
    """Every user reports every coordinate as it is: on the grid of levels, reports can be told in advance."""
    return unprotected_plan(users=users, shape=dimension, reports=dimension, levels=levels)


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
    values = np.random.default_rng(seed).integers(0, plan.levels + 1, (rows, plan.dimension))
    table = np.array([np.bincount(column, minlength=plan.levels + 1) for column in values.T])
    return values / plan.levels, table


def batch_of(coordinates: Iterable[int], values: Iterable[int], identity: Identity) -> Any:
    columns = [pa.array(list(coordinates), pa.uint32()), pa.array(list(values), pa.uint16())]
    return pa.RecordBatch.from_arrays(columns, schema=identity.arrow_schema())


def write_folder(
    folder: Path, identity: Identity, *parts: tuple[Iterable[int], Iterable[int]], kind: Format = "parquet"
) -> Path:
    """One file for each pair of coordinates and values; no manifest."""
    folder.mkdir()
    for number, (coordinates, values) in enumerate(parts):
        write_part(folder, f"part-{number}", [batch_of(coordinates, values, identity)], identity, kind)
    return folder


def shuffle_folder(reports: Path, output: Path, parts: int = 2) -> Path:
    """What a shuffler leaves of a small folder of plain or sealed reports."""
    dataset = open_dataset(reports, stage="reports")
    identity = dataset.identity.shuffled()
    batches = [batch for file in dataset.files for batch in read_batches(file, 1 << 16)]
    if identity.sealed:
        table = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches])
        table = table.take(np.random.default_rng().permutation(len(table)))
    else:
        mixed = shuffle(Reports.concatenate(reports_of(batch, identity.plan_id)[0] for batch in batches))
        table = pa.table({"coordinate": mixed.coordinates, "value": mixed.values})
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
