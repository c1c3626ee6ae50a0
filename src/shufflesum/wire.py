"""Tasks and uploads: what the parties of a deployment agree on, and what one user sends.

A task is what the three parties of one deployment agree on, an upload what one user sends in one round. A task's id is
the SHA-256 of its canonical content, and every sealed report is bound to it: a client that was shown other parameters
makes reports that nobody can open. A task read from a file is not believed: its id and the privacy its plan claims are
computed again. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray

from shufflesum._compiled import uncompiled
from shufflesum._documents import decode_once, problem_of, read_file
from shufflesum.errors import MissingExtraError, ParameterError, PlanError, ReportsError, ShufflesumError
from shufflesum.keys import check_public_keys
from shufflesum.plans import Plan, check_unaltered
from shufflesum.protocol import shuffle
from shufflesum.reports import Reports
from shufflesum.sealing import (
    KEY_BYTES,
    SEALED_BYTES,
    WIRE_VERSION,
    Opener,
    decode_reports,
    encode_reports,
    seal_info,
    seal_many,
)

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

    `analyzer_key` is the 32 bytes of the analyzer's public key, or those of one key for each round, one after another;
    `shuffler` the URL that clients send to, `expires` the moment (UTC, whole seconds) after which nobody sends or
    accepts. Making one verifies the plan's guarantee, unless
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
        self._check_keys()
        check_unaltered(self.plan)
        self.plan.check_sending()
        self.__dict__["_verified"] = False
        if verify_guarantee:
            self.verify()
        elif self.plan.accountant == "none":
            raise PlanError("no-guarantee", "this task's plan claims no privacy (accountant 'none'); nothing is sent")

    def _check_keys(self) -> None:
        keys = len(check_public_keys(self.analyzer_key))
        if keys not in ((1, self.rounds) if self.plan.positions is None else (self.rounds,)):
            raise ParameterError(
                "malformed-key",
                f"{keys} public keys, but the plan covers {self.rounds} rounds; give one for each round, destroyed "
                f"after it (shufflesum keygen --rounds {self.rounds}), or, where users draw the noise, one for all",
            )

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
        return self.plan.smallest_batch

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

    def public_key(self, round_number: int) -> X25519PublicKey:
        """The analyzer's public key of a round, ready to seal to."""
        return X25519PublicKey.from_public_bytes(self.key_of(round_number))

    @property
    def keys(self) -> int:
        """How many keys the analyzer has: one for all rounds, or one for each."""
        return len(self.analyzer_key) // KEY_BYTES

    def key_of(self, round_number: int) -> bytes:
        """The 32 bytes of the analyzer's public key of a round."""
        start = KEY_BYTES * (round_number - 1) if self.keys > 1 else 0
        return self.analyzer_key[start : start + KEY_BYTES]

    @cached_property
    def positions_of_upload(self) -> NDArray[np.uint32]:
        """The position of each report of an upload, in their order: rising, or 0 for all where users draw the noise."""
        positions = self.plan.positions
        if positions is None:
            return np.zeros(self.plan.reports, dtype=np.uint32)
        return np.repeat(np.arange(len(positions), dtype=np.uint32), positions.reports)

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

    def check_opener(self, opener: Opener, round_number: int) -> None:
        """Refuse a private key that is not the one of this round."""
        if (found := opener.public_key(round_number)) != self.key_of(round_number):
            raise ParameterError(
                "key-mismatch",
                f"this private key belongs to the public key {found.hex()}, but task {self.id[:12]} names "
                f"{self.key_of(round_number).hex()}; give the analyzer's key that the task was made for (--key)",
            )

    def open_reports(self, sealed: bytes | NDArray[np.uint8], round_number: int, opener: Opener) -> tuple[Reports, int]:
        """The readable ones of reports sealed for this task and round, and how many were rejected as unreadable."""
        self.check_round(round_number)
        self.check_opener(opener, round_number)
        if self.plan.positions is not None:
            raise ReportsError(
                "wrong-stage", "under this plan reports are opened as a batch, with the shuffler's noise in it"
            )
        opened = opener.open_many(sealed, seal_info(self.id, round_number), round_number=round_number)
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
        if task.plan.positions is None:
            # In the order they were drawn, a report's place would tell the shuffler its block of coordinates.
            with uncompiled():  # so few that compiling would take longer
                reports = shuffle(reports)
        key, info = task.public_key(round_number), seal_info(task.id, round_number)
        sealed = seal_many(encode_reports(reports), key, info, task.positions_of_upload)
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
