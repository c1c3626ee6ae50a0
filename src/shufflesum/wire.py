"""What travels between client, shuffler and analyzer: reports as bytes, their seals and keys, tasks and uploads.

A report is four bytes: its cell, big-endian, the same size whatever it says. It is sealed by itself for the analyzer,
by HPKE base mode (RFC 9180) with X25519, HKDF-SHA256 and AES-128-GCM. What a seal is for (wire version, roles, task,
round) goes into `info`: under any other a sealed report cannot be opened.

A task is what the three parties of one deployment agree on, an upload what one user sends in one round. A task's id is
the SHA-256 of its canonical content, and every sealed report is bound to it: a client that was shown other parameters
makes reports that nobody can open. A task read from a file is not believed: its id and the privacy its plan claims are
computed again. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum._compiled import uncompiled
from shufflesum._documents import decode_once, problem_of, read_file
from shufflesum._machine import cores, process_pool
from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import FileError, MissingExtraError, ParameterError, PlanError, ReportsError, ShufflesumError
from shufflesum.plans import SEAL_BYTES, Plan, check_unaltered
from shufflesum.protocol import shuffle
from shufflesum.reports import Reports

_KEY_BYTES = 32
_LABELS = {"public": "shufflesum-public-key-1", "private": "shufflesum-private-key-1"}
_MAX_KEY_FILE = 1024


def generate_private_key() -> X25519PrivateKey:
    """A new key of the operating system's randomness."""
    return X25519PrivateKey.generate()


def check_public_key(raw: bytes) -> X25519PublicKey:
    """The 32 bytes as a public key; refuses those under which nothing would be secret."""
    if len(raw) != _KEY_BYTES:
        raise ParameterError("malformed-key", f"a public key of {len(raw)} bytes; an X25519 key has {_KEY_BYTES}")
    key = X25519PublicKey.from_public_bytes(raw)
    try:
        X25519PrivateKey.generate().exchange(key)
    except ValueError as error:
        raise ParameterError(
            "malformed-key",
            f"the public key {raw.hex()} is a point of low order, under which nothing is secret; "
            "make a key pair with shufflesum keygen",
        ) from error
    return key


def write_key_pair(name: str | Path, private_key: X25519PrivateKey) -> tuple[Path, Path]:
    """Write NAME.key, for its owner only, and NAME.pub; never over a file that exists. Returns both paths."""
    private, public = Path(f"{name}.key"), Path(f"{name}.pub")
    for path in (private, public):
        if os.path.lexists(path):
            raise FileError(
                "exists", f"{path} exists and keys are never overwritten; choose another name, or move it away"
            )
    _write_new(private, f"{_LABELS['private']} {private_key.private_bytes_raw().hex()}\n", 0o600)
    try:
        _write_new(public, f"{_LABELS['public']} {private_key.public_key().public_bytes_raw().hex()}\n", 0o666)
    except BaseException:
        private.unlink()
        raise
    return private, public


def _write_new(path: Path, text: str, mode: int) -> None:
    """Write a file that appears whole or not at all, and only where none was."""
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.link(temporary, path)  # unlike a rename, fails where another process was first
        finally:
            temporary.unlink()
    except OSError as error:
        raise FileError(
            "unwritable",
            f"{path}: cannot be written: {error.strerror}; choose a new name in a folder that you may write to",
        ) from error


def load_private_key(path: str | Path) -> X25519PrivateKey:
    """Read a private key file; refuses one that others than its owner can get at."""
    return X25519PrivateKey.from_private_bytes(_load_key(Path(path), "private"))


def load_public_key(path: str | Path) -> bytes:
    """Read a public key file; the 32 bytes of the key."""
    raw = _load_key(Path(path), "public")
    try:
        check_public_key(raw)
    except ParameterError as error:
        raise FileError(error.problem, f"{path}: {error}") from error
    return raw


def _load_key(path: Path, kind: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_KEY_FILE)
    except OSError as error:
        raise FileError("unreadable", f"cannot read the {kind} key {path}: {error.strerror or error}") from error
    label, _, digits = text.decode("ascii", "replace").strip().partition(" ")
    if label != _LABELS[kind]:
        other = next((name for name, known in _LABELS.items() if known == label), None)
        found = f"it holds a {other} key" if other else "it is no key file of shufflesum keygen"
        raise FileError(
            "malformed-key", f"{path}: {found}; give the {kind} key, NAME{'.key' if kind == 'private' else '.pub'}"
        )
    if kind == "private" and mode & 0o077:
        raise FileError(
            "insecure-permissions",
            f"{path}: others than the owner may use this private key (mode {stat.S_IMODE(mode):04o}); "
            f"it must be 0600: chmod 600 {path}, and make a new key if somebody may have read it",
        )
    try:
        raw = bytes.fromhex(digits)
    except ValueError as error:
        raise FileError(
            "malformed-key", f"{path}: the {kind} key is not written in hexadecimal; the file was changed"
        ) from error
    if len(raw) != _KEY_BYTES:
        raise FileError("malformed-key", f"{path}: a {kind} key of {len(raw)} bytes; an X25519 key has {_KEY_BYTES}")
    return raw


_LAYOUT = np.dtype(">u4")


def encode_reports(reports: Reports) -> NDArray[np.uint8]:
    """The reports as rows of bytes, shape (reports, 4), in the same order."""
    return reports.cells.astype(_LAYOUT).view(np.uint8).reshape(len(reports), REPORT_BYTES)


def decode_reports(encoded: NDArray[np.uint8], plan_id: str, round_number: int = 1) -> Reports:
    """Rows of bytes as reports of a round of a plan.

    Any four bytes are a report; whether the plan has such a cell is decided where reports are counted.
    """
    if encoded.dtype != np.uint8 or encoded.ndim != 2 or encoded.shape[1] != REPORT_BYTES:
        raise ReportsError(
            "wrong-type",
            f"encoded reports are a {encoded.dtype} array of shape {encoded.shape}; "
            f"they must be bytes of shape (reports, {REPORT_BYTES})",
        )
    cells = np.ascontiguousarray(encoded).reshape(-1).view(_LAYOUT).astype(np.uint32)
    return Reports(plan_id, cells, round_number)


WIRE_VERSION = 2
SEALED_BYTES = REPORT_BYTES + SEAL_BYTES

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_INFO = struct.Struct(">10sHBB32sI")
_RANDOMIZER, _ANALYZER = 1, 3  # roles, as in docs/wire.md; 2 is the shuffler, who neither seals nor opens


def seal_info(task_id: str, round_number: int) -> bytes:
    """What a seal is bound to: wire version, both roles, task and round."""
    return _INFO.pack(b"shufflesum", WIRE_VERSION, _RANDOMIZER, _ANALYZER, bytes.fromhex(task_id), round_number)


def seal_many(encoded: NDArray[np.uint8], public_key: X25519PublicKey, info: bytes) -> NDArray[np.uint8]:
    """Each encoded report, one a row, sealed by itself under a key of its own, in the same order."""
    rows = encoded.tobytes()
    sealed = b"".join(
        _SUITE.encrypt(rows[start : start + REPORT_BYTES], public_key, info)
        for start in range(0, len(rows), REPORT_BYTES)
    )
    return np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """What came out of sealed reports: the readable ones, encoded, in order, and how many were not."""

    encoded: NDArray[np.uint8]
    rejected: int


def open_many(sealed: bytes | NDArray[np.uint8], private_key: X25519PrivateKey, info: bytes) -> Opened:
    """Open sealed reports in this process; what cannot be opened is rejected and counted, never an error."""
    data = whole_reports(sealed)
    opened = []
    for start in range(0, len(data), SEALED_BYTES):
        try:
            opened.append(_SUITE.decrypt(data[start : start + SEALED_BYTES], private_key, info))
        except (InvalidTag, ValueError):
            continue
    encoded = np.frombuffer(b"".join(opened), dtype=np.uint8).reshape(-1, REPORT_BYTES)
    return Opened(encoded, len(data) // SEALED_BYTES - len(opened))


def whole_reports(sealed: bytes | NDArray[np.uint8]) -> bytes:
    """Sealed reports one after another; refuses what is no whole number of them."""
    data = sealed if isinstance(sealed, bytes) else sealed.tobytes()
    if len(data) % SEALED_BYTES:
        raise ReportsError(
            "wrong-length", f"{len(data)} bytes of sealed reports; they come in whole reports of {SEALED_BYTES} bytes"
        )
    return data


_BLOCK = 512  # reports handed to a process at a time, some tens of milliseconds of work
_R = TypeVar("_R")


class _Workers:
    """Processes, one per core unless said, that end with `close`, the `with` block, or this process, however it ends.

    They start with the first large piece of work. A script that uses them needs the usual
    `if __name__ == "__main__":` around its work.
    """

    def __init__(self, processes: int | None) -> None:
        self._processes = cores() if processes is None else processes
        check_size("processes", self._processes, 1, 1 << 10)
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def _map(self, work: Callable[[bytes], _R], rows: bytes, row_bytes: int) -> list[_R]:
        """`work` on blocks of whole rows, in their order; a few are done in this process."""
        size = _BLOCK * row_bytes
        if self._processes == 1 or len(rows) <= size:
            return [work(rows)]
        with self._lock:
            pool = self._pool = self._pool or process_pool(self._processes)
        try:
            return list(pool.map(work, [rows[start : start + size] for start in range(0, len(rows), size)]))
        except BrokenProcessPool:  # a process was killed; the rows are still here, so nothing is lost
            with self._lock:
                self._pool = None if self._pool is pool else self._pool
            pool.shutdown(wait=False, cancel_futures=True)
            return [work(rows)]

    def close(self) -> None:
        """End the processes; further work starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sealer(_Workers):
    """Seals encoded reports to one public key under one `info`."""

    def __init__(self, public_key: X25519PublicKey, info: bytes, *, processes: int | None = None) -> None:
        super().__init__(processes)
        self._work = partial(_seal, public_key.public_bytes_raw(), info)

    def __call__(self, encoded: NDArray[np.uint8], /) -> NDArray[np.uint8]:
        """Encoded reports, one a row, each sealed by itself, in the same order."""
        sealed = b"".join(self._map(self._work, encoded.tobytes(), REPORT_BYTES))
        return np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)


class Opener(_Workers):
    """Opens sealed reports with one private key."""

    def __init__(self, private_key: X25519PrivateKey, *, processes: int | None = None) -> None:
        super().__init__(processes)
        self._private_key = private_key

    @property
    def public_key(self) -> bytes:
        """The public key that reports must be sealed to."""
        return self._private_key.public_key().public_bytes_raw()

    def open_many(self, sealed: bytes | NDArray[np.uint8], info: bytes) -> Opened:
        """Open sealed reports; what cannot be opened is rejected and counted, never an error."""
        work = partial(_open, self._private_key.private_bytes_raw(), info)
        opened = self._map(work, whole_reports(sealed), SEALED_BYTES)
        return Opened(np.concatenate([part.encoded for part in opened]), sum(part.rejected for part in opened))


# What a process does: with keys as bytes, because other forms cannot be handed to it.


def _seal(public_key: bytes, info: bytes, encoded: bytes) -> bytes:
    rows = np.frombuffer(encoded, dtype=np.uint8).reshape(-1, REPORT_BYTES)
    return seal_many(rows, X25519PublicKey.from_public_bytes(public_key), info).tobytes()


def _open(private_key: bytes, info: bytes, sealed: bytes) -> Opened:
    return open_many(sealed, X25519PrivateKey.from_private_bytes(private_key), info)


FORMAT = "shufflesum-task-2"
UPLOAD_ID_BYTES = 16

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_MAX_NAME = 200
_HEADER = struct.Struct(f">H32sI{UPLOAD_ID_BYTES}s")  # wire version, task id, round, upload id
_VERSION = struct.Struct(">H")
UPLOAD_HEADER_BYTES = _HEADER.size


class TaskError(ShufflesumError, ValueError):
    """A task is malformed, was changed after it was made, or its plan claims more privacy than it gives."""


class UploadError(ReportsError):
    """An upload that this task can never accept; `problem` says why."""


class _TaskFile(msgspec.Struct, forbid_unknown_fields=True):
    """The task as JSON."""

    format: str
    wire_version: int
    name: str
    shuffler: str
    analyzer_key: str
    smallest_batch: int
    rounds: int
    expires: str
    plan: msgspec.Raw
    id: str


@dataclass(frozen=True)
class Task:
    """What all parties of one deployment agree on; never changed.

    `analyzer_key` is the 32 bytes of the analyzer's public key, `shuffler` the URL that clients send to, `expires` the
    moment (UTC, whole seconds) after which nobody sends or accepts. Making one verifies the plan's guarantee, unless
    told not to: then `verified` is false until `verify`, and servers, who release estimates, do that.
    """

    name: str
    plan: Plan
    analyzer_key: bytes
    shuffler: str
    expires: datetime
    verify_guarantee: InitVar[bool] = True

    def __post_init__(self, verify_guarantee: bool) -> None:
        """Refuse what could not be deployed."""
        name = self.name
        if not name or len(name) > _MAX_NAME or not name.isprintable() or name != name.strip():
            raise ParameterError(
                "out-of-range",
                f"name is {name[: _MAX_NAME + 1]!r}; it must be 1 to {_MAX_NAME} printable characters, no space around",
            )
        check_address("shuffler", self.shuffler)
        if self.expires.tzinfo is None or self.expires.microsecond:
            raise ParameterError("wrong-type", f"expires is {self.expires}; it must be a whole second with a time zone")
        object.__setattr__(self, "expires", self.expires.astimezone(UTC))
        check_public_key(self.analyzer_key)
        check_unaltered(self.plan)
        self.plan.check_sending()
        self.__dict__["_verified"] = False
        if verify_guarantee:
            self.verify()
        elif self.plan.accountant == "none":
            raise PlanError("no-guarantee", "this task's plan claims no privacy (accountant 'none'); nothing is sent")

    def verify(self) -> None:
        """Compute the plan's guarantee again, unless that was done for this plan; refuse a claim that does not hold."""
        self._verify_plan()
        self.__dict__["_verified"] = True

    def _verify_plan(self) -> None:
        check_unaltered(self.plan)
        self.plan.verify()

    @property
    def verified(self) -> bool:
        """Whether the plan's guarantee was computed again in this process."""
        return bool(self.__dict__["_verified"])

    @property
    def smallest_batch(self) -> int:
        """The users without whom nothing is released."""
        return self.plan.users

    @property
    def rounds(self) -> int:
        """How many rounds, numbered from 1, the plan's guarantee covers."""
        return self.plan.rounds

    @property
    def upload_bytes(self) -> int:
        """The size of every upload."""
        return _HEADER.size + self.plan.reports * SEALED_BYTES

    def expired_at(self, moment: datetime) -> bool:
        """Whether the task has run out at a moment."""
        return moment >= self.expires

    @cached_property
    def public_key(self) -> X25519PublicKey:
        """The analyzer's public key, ready to seal to."""
        return X25519PublicKey.from_public_bytes(self.analyzer_key)

    @cached_property
    def id(self) -> str:
        """SHA-256 of the canonical content, in hexadecimal; the plan enters with its own id."""
        canonical = json.dumps(
            self._content() | {"plan": self.plan.id}, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        return hashlib.sha256(canonical.encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "wire_version": WIRE_VERSION,
            "name": self.name,
            "shuffler": self.shuffler,
            "analyzer_key": self.analyzer_key.hex(),
            "smallest_batch": self.smallest_batch,
            "rounds": self.rounds,
            "expires": self.expires.strftime(_TIME),
        }

    def to_json(self) -> str:
        """The task as JSON text; `from_json` gives back an equal task."""
        return json.dumps({**self._content(), "id": self.id, "plan": self.plan.summary()}, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, verify: bool = True) -> Self:
        """Read a task, compute its id and its plan's guarantee again, and refuse it where anything differs.

        Without `verify` the guarantee is not computed, which takes seconds and numba: it is believed that whoever gave
        the task has done so. All the rest must agree. An expired task can be read: `expired_at` tells.
        """
        try:
            file = decode_once(text, _TaskFile, FORMAT)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise TaskError(
                problem_of(error, "malformed"),
                f"not a task: {error}; make one with shufflesum task create",
            ) from error
        if file.wire_version != WIRE_VERSION:
            raise TaskError(
                "wrong-version", f"wire version {file.wire_version} is not known; this version reads {WIRE_VERSION}"
            )
        try:
            task = cls(
                name=file.name,
                plan=Plan.decode_unverified(bytes(file.plan)),
                analyzer_key=_from_hex(file.analyzer_key),
                shuffler=file.shuffler,
                expires=parse_time(file.expires),
                verify_guarantee=verify,
            )
        except MissingExtraError as error:
            raise MissingExtraError(
                "missing-extra",
                f"the task's guarantee cannot be computed again: {error}; or read it with verify=False, as a client "
                "may that believes whoever gave it the task",
            ) from error
        except ShufflesumError as error:
            raise TaskError(error.problem, f"not a valid task: {error}") from error
        for name, true in {**task._content(), "id": task.id}.items():
            if (stated := getattr(file, name)) != true:
                raise TaskError(
                    "changed-afterwards",
                    f"this task was changed after it was made: it says {name} {str(stated)[:80]!r}, but the rest of it "
                    f"gives {true!r}; make a new task instead of editing one",
                )
        return task

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> Self:
        """Read a task file; see `from_json`."""
        text = read_file(path, "task")
        try:
            return cls.from_json(text, verify=verify)
        except TaskError as error:
            raise error.at(path) from error

    def check_round(self, round_number: int) -> None:
        """Refuse a round that the plan's guarantee does not cover."""
        if not 1 <= round_number <= self.rounds:
            raise UploadError(
                "wrong-round", f"round {round_number}; this task covers rounds 1 to {self.rounds}: make a new task"
            )

    def open_reports(self, sealed: bytes | NDArray[np.uint8], round_number: int, opener: Opener) -> tuple[Reports, int]:
        """The readable ones of reports sealed for this task and round, and how many were rejected as unreadable."""
        if opener.public_key != self.analyzer_key:
            raise ParameterError(
                "key-mismatch",
                f"this private key belongs to the public key {opener.public_key.hex()}, but task {self.id[:12]} "
                f"names {self.analyzer_key.hex()}; use the analyzer's key the task was made for",
            )
        self.check_round(round_number)
        opened = opener.open_many(sealed, seal_info(self.id, round_number))
        return decode_reports(opened.encoded, self.plan.id, round_number), opened.rejected


@dataclass(frozen=True, slots=True)
class Upload:
    """One user's part in one round: exactly the plan's number of reports, each sealed by itself, in random order.

    The random upload id lets a shuffler recognise the same bytes sent again; it says nothing about the user.
    """

    task_id: str
    round_number: int
    upload_id: bytes
    sealed: bytes

    @staticmethod
    def seal(task: Task, reports: Reports, round_number: int) -> Upload:
        """Seal one user's reports for a round; every call makes another upload id and other bytes."""
        task.check_round(round_number)
        if reports.plan_id != task.plan.id:
            raise ReportsError(
                "plan-mismatch",
                f"these reports belong to plan {reports.plan_id[:12]}, the task to plan {task.plan.id[:12]}; "
                "randomize with the task's plan",
            )
        if reports.round_number != round_number:
            raise ReportsError(
                "round-mismatch",
                f"these reports are of round {reports.round_number}, and the upload is for round {round_number}; "
                "randomize for that round: Randomizer(plan, round_number=...)",
            )
        if len(reports) != task.plan.reports:
            raise ReportsError(
                "wrong-length",
                f"{len(reports)} reports; an upload carries exactly the {task.plan.reports} reports of one user",
            )
        # In the order they were drawn, a report's place would tell the shuffler its block of coordinates.
        with uncompiled():  # so few that compiling would take longer
            mixed = encode_reports(shuffle(reports))
        sealed = seal_many(mixed, task.public_key, seal_info(task.id, round_number))
        return Upload(task.id, round_number, secrets.token_bytes(UPLOAD_ID_BYTES), sealed.tobytes())

    def encode(self) -> bytes:
        """The upload as bytes, the same number for every user of a task."""
        header = _HEADER.pack(WIRE_VERSION, bytes.fromhex(self.task_id), self.round_number, self.upload_id)
        return header + self.sealed

    @staticmethod
    def decode(data: bytes, task: Task) -> Upload:
        """Read an upload for a task; an `UploadError` names what can never be accepted.

        Sealed reports are not looked into: only the analyzer can.
        """
        if len(data) >= _VERSION.size:
            (version,) = _VERSION.unpack_from(data)
            if version != WIRE_VERSION:
                raise UploadError(
                    "wrong-version", f"wire version {version}; this task uses {WIRE_VERSION}: update the client"
                )
        if len(data) < _HEADER.size:
            raise _wrong_length(data, task)
        _, task_id, round_number, upload_id = _HEADER.unpack_from(data)
        if task_id.hex() != task.id:
            raise UploadError(
                "wrong-task", f"an upload for task {task_id.hex()[:12]}; this is task {task.id[:12]}: use its task file"
            )
        if len(data) != task.upload_bytes:
            raise _wrong_length(data, task)
        task.check_round(round_number)
        return Upload(task.id, round_number, upload_id, data[_HEADER.size :])


def _wrong_length(data: bytes, task: Task) -> UploadError:
    return UploadError(
        "wrong-length", f"an upload of {len(data)} bytes; every upload of this task has {task.upload_bytes}"
    )


def parse_time(text: str) -> datetime:
    """A moment in UTC from RFC 3339 text, to the second, such as 2031-05-01T12:00:00Z."""
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError as error:
        raise ParameterError(
            "wrong-type", f"time {text!r} is not understood; write it in UTC as 2031-05-01T12:00:00Z"
        ) from error


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise ParameterError("malformed-key", f"analyzer_key {text[:80]!r} is not hexadecimal") from error


def check_address(name: str, url: str) -> None:
    """Refuse what is no plain address of a server, naming it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    plain = url.isascii() and url.isprintable() and not set(url) & set(' ?#\\"<>')
    # A name and password in a file that is handed to every user would be no secret.
    if not usable or "@" in parts.netloc or parts.query or parts.fragment or not plain:
        raise ParameterError(
            "malformed-address",
            f"{name} is {url!r}; it must be a plain address such as https://shuffler.example.org:8443, without a user "
            "name, query or fragment",
        )
