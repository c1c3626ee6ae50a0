"""The batch of a round where servers draw the noise: one exact set of uploads, one batch, byte for byte.

All that the shuffler adds or decides is a function of its noise key, the task, the round and a digest of the set of
uploads (`shufflesum.noise_keys`): how many dummy reports of each cell there are, the ephemeral keys of their seals, and
the order of the reports in each position, which is that of a keyed hash of their sealed bytes. In whatever order the
same uploads are read, the batch is the same, and so is what the analyzer sees of it after every crash.

The batch is written to a file, whole and on the disk, before its first byte leaves. Its digest is entered in the list
beside the noise key as well: should the same set ever give other bytes, nothing leaves. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from shufflesum._machine import sync, writing
from shufflesum.cells import BLANK
from shufflesum.encodings import Positions
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.noise_keys import DIGEST_BYTES, DrawKeys, NoiseKey
from shufflesum.plans import Plan
from shufflesum.protocol import added_reports
from shufflesum.randomness import random_uints
from shufflesum.reports import Counts, Reports
from shufflesum.sealing import KEY_BYTES, SEALED_BYTES, WIRE_VERSION, Opener, Sealer, seal_info
from shufflesum.shuffling import in_order
from shufflesum.wire import Task

Uploads = Callable[[], Iterable[bytes]]
"""Reads the sealed reports of all uploads, whole uploads at a time, in any order; called twice."""

_HEADER = struct.Struct(">H32sIQI")  # wire version, task id, round, users, positions
_COUNT = np.dtype(">u8")
_UNREADABLE = BLANK - 1  # nobody's cell
_MEMORY = 256 << 20
_SEALED_AT_ONCE = 1 << 14
_SENT = 1 << 14  # reports written at a time
_RANKED = np.dtype(
    [("high", np.uint64), ("low", np.uint64), ("position", np.uint32), ("sealed", np.uint8, (SEALED_BYTES,))]
)


def positions_of(plan: Plan) -> Positions:
    """The plan's positions; refused where users draw the noise."""
    if plan.positions is None or plan.noise_by == "curator":
        raise ParameterError(
            "impossible-combination", f"noise is drawn by {plan.noise_by!r} under this plan, so servers add none"
        )
    return plan.positions


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What a batch begins with: whose it is, and how many reports it has of each position."""

    task_id: str
    round_number: int
    users: int
    by_position: tuple[int, ...]

    def encode(self) -> bytes:
        """The header as bytes."""
        head = (WIRE_VERSION, bytes.fromhex(self.task_id), self.round_number, self.users, len(self.by_position))
        return _HEADER.pack(*head) + np.array(self.by_position, dtype=_COUNT).tobytes()

    @staticmethod
    def bytes_of(task: Task) -> int:
        """How long a header is."""
        return _HEADER.size + _COUNT.itemsize * len(positions_of(task.plan))

    @staticmethod
    def decode(data: bytes, task: Task) -> BatchHeader:
        """Read a header; refused where it is not of this task, or says what the plan makes impossible."""
        positions = positions_of(task.plan)
        if len(data) != BatchHeader.bytes_of(task):
            raise ReportsError("wrong-length", f"a header of {len(data)} bytes; it has {BatchHeader.bytes_of(task)}")
        version, task_id, round_number, users, count = _HEADER.unpack_from(data)
        if version != WIRE_VERSION or task_id.hex() != task.id or count != len(positions):
            raise ReportsError("wrong-batch", f"this is no batch of task {task.id[:12]}, wire version {WIRE_VERSION}")
        task.check_round(round_number)
        found = np.frombuffer(data, _COUNT, offset=_HEADER.size).astype(np.int64)
        header = BatchHeader(task.id, round_number, users, tuple(found.tolist()))
        if not task.smallest_batch <= users < 1 << 40 or not _possible(task.plan, users, found):
            raise ReportsError(
                "wrong-batch",
                f"a batch of {users} users cannot have these numbers of reports; the plan's noise is bounded",
            )
        return header

    @property
    def reports(self) -> int:
        """How many reports there are in all."""
        return sum(self.by_position)

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return _HEADER.size + _COUNT.itemsize * len(self.by_position) + self.reports * SEALED_BYTES


def _possible(plan: Plan, users: int, found: NDArray[np.int64]) -> bool:
    """Whether users and the shuffler's noise make such numbers of reports: exactly so many where there is padding."""
    positions = positions_of(plan)
    sent = users * positions.reports
    most = sent + np.add.reduceat(plan.mechanism.most_drawn(plan.encoding), positions.first[:-1])
    least = np.where(positions.blank, most, sent)
    return bool(((found >= least) & (found <= most)).all())


def set_digest(uploads: Uploads, task: Task, round_number: int) -> tuple[bytes, int]:
    """The digest of a round's exact set of uploads, in whatever order they come, and how many there are.

    It is SHA-256 over the sorted digests of all uploads: 32 bytes for each are held.
    """
    digests = bytearray()
    for upload in _each(uploads(), task):
        digests += hashlib.sha256(upload).digest()
    return _digest_of(digests, task, round_number), len(digests) // DIGEST_BYTES


def _each(pieces: Iterable[bytes], task: Task) -> Iterator[bytes]:
    size = task.plan.reports * SEALED_BYTES
    for piece in pieces:
        if len(piece) % size:
            raise ReportsError("wrong-length", f"{len(piece)} bytes of uploads; each has {size} bytes of reports")
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


def _digest_of(digests: bytearray, task: Task, round_number: int) -> bytes:
    found = np.frombuffer(digests, dtype=">u8").reshape(-1, DIGEST_BYTES // 8)
    found = found[np.lexsort(found.T[::-1])]
    if (found[1:] == found[:-1]).all(axis=1).any():
        raise ReportsError("duplicate-report", f"an upload is in round {round_number} twice; each counts once")
    head = struct.pack(">32sIQ", bytes.fromhex(task.id), round_number, len(found))
    return hashlib.sha256(b"shufflesum-set-1" + head + found.tobytes()).digest()


@dataclass(frozen=True, slots=True)
class _Added:
    """What the shuffler adds: for each report its position, in order, and its cell."""

    positions: NDArray[np.uint32]
    cells: NDArray[np.uint32]

    @staticmethod
    def drawn(plan: Plan, keys: DrawKeys) -> _Added:
        each = added_reports(plan, plan.mechanism.draw(plan.encoding, keys.noise_source()))
        places = np.repeat(np.arange(len(each), dtype=np.uint32), [len(cells) for cells in each])
        return _Added(places, np.concatenate(each))

    def sealed(self, keys: DrawKeys, seal: Sealer) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint32]]]:
        """Sealed, some at a time, and their positions."""
        source = keys.seal_source()
        for start in range(0, len(self.cells), _SEALED_AT_ONCE):
            cells, places = (column[start : start + _SEALED_AT_ONCE] for column in (self.cells, self.positions))
            secret_keys = random_uints(source, KEY_BYTES * len(cells), np.uint8).reshape(-1, KEY_BYTES)
            yield seal.with_keys(cells.astype(">u4").view(np.uint8).reshape(-1, 4), secret_keys, places), places


def order_tags(key: bytes, sealed: NDArray[np.uint8], positions: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A keyed hash of each sealed report and its position, as two numbers: CBC-MAC with AES-256.

    All messages have the same length, so this is a pseudo-random function (Bellare, Kilian and Rogaway): sorted by it
    reports are in uniformly random order to whoever lacks the key, whatever they are.
    """
    message = np.zeros((len(sealed), 64), dtype=np.uint8)
    message[:, :4] = positions.astype(">u4").view(np.uint8).reshape(-1, 4)
    message[:, 4 : 4 + SEALED_BYTES] = sealed
    encrypt = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # the block cipher by itself
    state = np.zeros((len(sealed), 16), dtype=np.uint8)
    for start in range(0, 64, 16):
        mixed = state ^ message[:, start : start + 16]
        state = np.frombuffer(encrypt.update(mixed.tobytes()), dtype=np.uint8).reshape(-1, 16)
    return state.view(">u8").astype(np.uint64)


def batch_bytes(
    task: Task,
    round_number: int,
    uploads: Uploads,
    set_: tuple[bytes, int],
    keys: DrawKeys,
    *,
    processes: int | None = None,
    memory: int = _MEMORY,
    folder: Path | None = None,
) -> Iterator[bytes]:
    """The batch, some bytes at a time: a function of set, plan, task and keys.

    `set_` is what `set_digest` found: uploads that are others when they are read again are refused before the end.
    """
    plan, positions = task.plan, positions_of(task.plan)
    digest, users = set_
    added = _Added.drawn(plan, keys)
    sizes = users * positions.reports + np.bincount(added.positions, minlength=len(positions))
    header = BatchHeader(task.id, round_number, users, tuple(sizes.tolist()))
    yield header.encode()
    own = task.positions_of_upload
    seen = bytearray()

    def items(seal: Sealer) -> Iterator[NDArray[Any]]:
        for piece in uploads():
            for upload in _each([piece], task):
                seen.extend(hashlib.sha256(upload).digest())
            sealed = np.frombuffer(piece, dtype=np.uint8).reshape(-1, SEALED_BYTES)
            yield _ranked(sealed, np.tile(own, len(sealed) // plan.reports), keys)
        for sealed, places in added.sealed(keys, seal):
            yield _ranked(sealed, places, keys)

    starts = np.cumsum(sizes) - sizes

    def rank(ranked: NDArray[Any]) -> NDArray[np.float64]:
        place = ranked["position"]
        ranks: NDArray[np.float64] = (starts[place] + ranked["high"] * 2.0**-64 * sizes[place]) / header.reports
        return ranks

    with Sealer(task.public_key(round_number), seal_info(task.id, round_number), processes=processes) as seal:
        for found in in_order(
            items(seal), header.reports, _RANKED, rank=rank, sort=_sorted, memory=memory, folder=folder
        ):
            if seen:
                if _digest_of(seen, task, round_number) != digest:
                    raise ReportsError("changed-meanwhile", "the uploads of the round changed while they were read")
                seen.clear()
            for start in range(0, len(found), _SENT):
                yield found["sealed"][start : start + _SENT].tobytes()


def _ranked(sealed: NDArray[np.uint8], places: NDArray[np.uint32], keys: DrawKeys) -> NDArray[Any]:
    ranked = np.empty(len(sealed), dtype=_RANKED)
    tags = order_tags(keys.order, sealed, places)
    ranked["high"], ranked["low"], ranked["position"], ranked["sealed"] = tags[:, 0], tags[:, 1], places, sealed
    return ranked


def _sorted(ranked: NDArray[Any]) -> NDArray[Any]:
    return ranked[np.lexsort((ranked["low"], ranked["high"], ranked["position"]))]


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch in a file, with its digest."""

    path: Path
    header: BatchHeader
    digest: bytes


def write_batch(
    folder: Path,
    task: Task,
    round_number: int,
    uploads: Uploads,
    noise_key: NoiseKey,
    *,
    partner: str | None = None,
    processes: int | None = None,
    memory: int = _MEMORY,
) -> WrittenBatch:
    """Write the batch of a round's exact set of uploads to a file in the folder; only then may any of it leave.

    `partner` is the fingerprint of the analyzer's noise key, where that draws noise as well. A set for which the noise
    key was used before gives the same bytes again, and any other set is refused. What can be read from the file is what
    the analyzer may see; whoever has the noise key can take the noise off again.
    """
    digest, users = set_digest(uploads, task, round_number)
    if users < task.smallest_batch:
        raise ReportsError(
            "too-few-users", f"{users} users in round {round_number}; nothing is released below {task.smallest_batch}"
        )
    if (task.plan.noise_by == "servers") != (partner is not None):
        raise ParameterError(
            "missing-argument",
            f"noise is drawn by {task.plan.noise_by!r}; the analyzer's noise key (partner) is wanted where both "
            "servers draw it, and only there",
        )
    keys = noise_key.bind("shuffler", task.id, round_number, digest, partner)
    path = folder / f"batch-{task.id[:16]}-{round_number}-{digest.hex()[:16]}"
    if not path.exists():
        pieces = batch_bytes(
            task, round_number, uploads, (digest, users), keys, processes=processes, memory=memory, folder=folder
        )
        _write_whole(path, pieces)
    written = _read_written(path, task)
    noise_key.enter("batch", task.id, round_number, written.digest)
    return written


def forget_batches(folder: Path, task: Task) -> None:
    """Delete all batches of a task that were written here, unfinished ones too."""
    for pattern in (f"batch-{task.id[:16]}-*", f".batch-{task.id[:16]}-*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that appears whole and on the disk, or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    with writing(path, "make room, and it is written again"):
        try:
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _read_written(path: Path, task: Task) -> WrittenBatch:
    """What is on the disk, which is what will leave."""
    with open(path, "rb") as file:
        header = BatchHeader.decode(file.read(BatchHeader.bytes_of(task)), task)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").digest()
        if file.tell() != header.size:
            raise ReportsError("damaged", f"{path}: has {file.tell()} bytes, not {header.size}; delete it")
    return WrittenBatch(path, header, digest)


class BatchCounter:
    """The analyzer's side: opens a batch piece by piece, and gives its table, if the batch is what was announced.

    The analyzer's own draw is fixed, and entered beside its noise key, before the first report is opened: it belongs to
    the digest that was announced. Where the batch is another in the end, or has the same encapsulated key twice, there
    is no table.
    """

    def __init__(
        self, task: Task, header: BatchHeader, digest: bytes, opener: Opener, noise_key: NoiseKey | None
    ) -> None:
        self._task, self._header, self._opener = task, header, opener
        self._announced, self._digest = digest, hashlib.sha256(header.encode())
        self._ends = np.concatenate([[0], np.cumsum(header.by_position)])
        self._read, self._keys = 0, list[NDArray[np.uint64]]()
        self._counts = Counts(task.plan, header.round_number, source=self._bound(noise_key))

    def _bound(self, noise_key: NoiseKey | None) -> Any:
        if self._task.plan.noise_by != "servers":
            return None
        if noise_key is None:
            raise ParameterError("missing-argument", "the analyzer draws noise under this plan; give its noise key")
        number = self._header.round_number
        return noise_key.bind("analyzer", self._task.id, number, self._announced).noise_source()

    def take(self, sealed: bytes) -> Callable[[], Reports]:
        """The next whole reports of the batch; what is returned opens them, in any thread."""
        rows = np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)
        start, stop = self._read, self._read + len(rows)
        self._read = stop
        self._digest.update(sealed)
        self._keys.append(np.ascontiguousarray(rows[:, :16]).view(np.uint64))
        by_position = np.diff(np.clip(self._ends, start, stop))
        return lambda: self._opened(sealed, by_position)

    def _opened(self, sealed: bytes, by_position: NDArray[np.int64]) -> Reports:
        task, number = self._task, self._header.round_number
        places = np.repeat(np.arange(len(by_position), dtype=np.uint32), by_position)
        opened = self._opener.open_many(sealed, seal_info(task.id, number), places, round_number=number)
        cells = np.full(len(places), _UNREADABLE, dtype=np.uint32)  # it stays in its place, and counts nowhere
        cells[opened.readable] = opened.encoded.view(">u4").reshape(-1)
        return Reports(task.plan.id, cells, number, tuple(by_position.tolist()), self._header.users)

    def add(self, reports: Reports) -> None:
        """Count reports that were opened."""
        self._counts.add(reports)

    def counts(self) -> Counts:
        """The noisy table of the whole batch."""
        if self._read != self._header.reports or self._digest.digest() != self._announced:
            raise ReportsError(
                "wrong-batch", "the batch is not the one whose digest was announced; hand over the same bytes again"
            )
        if self._copied:
            raise ReportsError(
                "duplicate-report",
                "an encapsulated key is in the batch twice, so a report was copied, which would double what one user "
                "changes; nothing of this round can be released",
            )
        return self._counts

    @cached_property
    def _copied(self) -> bool:
        found = np.concatenate([np.empty((0, 2), np.uint64), *self._keys])
        found = found[np.lexsort(found.T)]
        return bool((found[1:] == found[:-1]).all(axis=1).any())
