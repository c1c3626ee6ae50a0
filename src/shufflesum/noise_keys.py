"""One draw belongs to one exact set of reports: a server's key of its noise, and what it was used for.

All that a server draws for a round is a function of its noise key, the task, the round and a digest of what the noise
is for: of the exact set of uploads at the shuffler, of the batch at the analyzer. The same set gets the same noise
after every crash, and another set in that round is refused: two draws over the same data could be averaged, and the
same draw over two data sets would show their difference exactly (docs/privacy-noise.md, "One draw for one set of
reports").

Key and list of what was released lie beside one another and outside any store: a store that was restored from a backup
cannot know what it has released.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shufflesum.errors import FileError, ReportsError
from shufflesum.keys import load_noise_key, write_noise_key
from shufflesum.ledger import Change, Ledger, Records
from shufflesum.randomness import KeyedSource

Role = Literal["shuffler", "analyzer"]
Use = Literal["shuffler", "analyzer", "batch"]

_FORMAT = "shufflesum-noise-used-1"
_PURPOSE = struct.Struct(">32sI32s")  # task id, round, digest
DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, repr=False)
class DrawKeys:
    """Keys that follow from a noise key for one set in one round: one for each purpose, so that no bits are shared."""

    noise: bytes
    seals: bytes
    order: bytes

    def noise_source(self) -> KeyedSource:
        """The bits that noise is drawn from, from their beginning."""
        return KeyedSource(self.noise)

    def seal_source(self) -> KeyedSource:
        """The bits that ephemeral keys of dummy reports are made of, from their beginning."""
        return KeyedSource(self.seals)


def draw_keys(noise_key: bytes, role: Role, task_id: str, round_number: int, digest: bytes) -> DrawKeys:
    """HMAC-SHA256 of what the draw is for, under the noise key, and once more for each purpose."""
    purpose = _PURPOSE.pack(bytes.fromhex(task_id), round_number, digest)
    draw = hmac.digest(noise_key, f"shufflesum-draw-1 {role} ".encode() + purpose, "sha256")
    return DrawKeys(*(hmac.digest(draw, label, "sha256") for label in (b"noise", b"seals", b"order")))


class NoiseKey:
    """A server's noise key, in NAME.noise, with the list of what it was used for, in NAME.noise.used.

    There is no way to its bits but `bind`, which enters first what they are for. A key without its list, or a list of
    another key, is refused: what was released could be released again with other data.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._key = load_noise_key(self.path)
        self._ledger = _ledger(self.path)
        if not self._ledger.exists():
            raise FileError(
                "unreadable",
                f"{self._ledger.path} is missing: the list of what {self.path} was used for. Put the latest one back; "
                "if it is lost, make a new noise key, for new tasks only",
            )
        self._check(self._ledger.read())

    @staticmethod
    def write(name: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write NAME.noise, a new key for its owner only, and NAME.noise.used, an empty list; returns both paths."""
        path = Path(f"{os.fspath(name)}.noise")
        ledger = _ledger(path)
        if ledger.exists():
            raise FileError("exists", f"{ledger.path} exists and is never begun anew; choose another name")
        write_noise_key(path)
        try:
            ledger.create({"key": _fingerprint(load_noise_key(path))})
        except BaseException:
            path.unlink()
            raise
        return path, ledger.path

    @property
    def fingerprint(self) -> str:
        """What tells this key from others, and nothing about it: 32 hexadecimal digits."""
        return _fingerprint(self._key)

    def bind(self, role: Role, task_id: str, round_number: int, digest: bytes, partner: str | None = None) -> DrawKeys:
        """The keys for one set in a round of a task, once it is on the disk that they are for this set.

        `digest` is the set's, `partner` the fingerprint of the other server's noise key, where that draws noise, too.
        The same again gives the same keys. Another set, or another partner, is refused: for a round there is one draw.
        """
        self.enter(role, task_id, round_number, digest, partner)
        return draw_keys(self._key, role, task_id, round_number, digest)

    def enter(self, role: Use, task_id: str, round_number: int, digest: bytes, partner: str | None = None) -> None:
        """Enter what is released in a round, on the disk when this returns; anything else in that round is refused.

        A shuffler enters its finished batch as well: the same set must not become another batch, whatever the cause.
        """
        if partner == self.fingerprint:
            raise ReportsError(
                "key-mismatch",
                f"{self.path} is the noise key of the other server as well, so that each would know the other's noise; "
                "make a noise key on each of them (shufflesum keygen --noise NAME)",
            )
        entry = {"role": role, "task": task_id, "round": round_number, "set": digest.hex(), "partner": partner}
        with self._ledger.change() as change:
            self._enter(change, entry)

    def bound(self, role: Use, task_id: str, round_number: int) -> bytes | None:
        """The digest that was entered for the round; None where none was yet."""
        for record in self._check(self._ledger.read()):
            if (record["role"], record["task"], record["round"]) == (role, task_id, round_number):
                return bytes.fromhex(record["set"])
        return None

    def _enter(self, change: Change, entry: dict[str, Any]) -> None:
        for record in self._check(change.records):
            if all(record[name] == entry[name] for name in ("role", "task", "round")):
                self._compare(record, entry)
                return
        change.append(entry)

    def _compare(self, record: dict[str, Any], entry: dict[str, Any]) -> None:
        where = f"{self.path}: round {entry['round']} of task {entry['task'][:12]}"
        if record["set"] != entry["set"]:
            raise ReportsError(
                "released-before",
                f"{where} was drawn for another set of reports ({record['set'][:12]}, not {entry['set'][:12]}); the "
                "same noise over two sets would show their difference, so this set is never released: was an old store "
                "put in place of a newer one?",
            )
        if record["partner"] != entry["partner"]:
            raise ReportsError(
                "key-mismatch",
                f"{where} was drawn for an analyzer with the noise key {record['partner']}, not {entry['partner']}; "
                "two draws over the same reports could be averaged: give the analyzer its first key (--noise-key)",
            )

    def _check(self, records: Records) -> list[dict[str, Any]]:
        """What the key was used for; the first record says whose list it is."""
        if not records or records[0] != {"key": self.fingerprint}:
            raise FileError(
                "key-mismatch",
                f"{self._ledger.path}: is not the list of what {self.path} was used for; put the latest one back",
            )
        fields = {"role", "task", "round", "set", "partner"}
        if any(not isinstance(record, dict) or record.keys() != fields for record in records[1:]):
            raise FileError("damaged", f"{self._ledger.path}: holds a record that says what cannot be")
        return list(records[1:])


def _ledger(path: Path) -> Ledger:
    advice = "put the latest list back; if it is lost, make a new noise key, for new tasks only"
    return Ledger(Path(f"{path}.used"), _FORMAT, "list of what a noise key was used for", advice, mode=0o600)


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"shufflesum-noise-fingerprint-1 " + key).hexdigest()[:32]
