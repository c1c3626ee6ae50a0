"""Any text for each user, out of no list: words, addresses, names of programs, counted by hash.

The hash is HMAC-SHA-512 (RFC 2104 over FIPS 180-4), because every standard library and every browser has it, so that
all clients agree, and because nobody can look for labels that collide before the key is drawn with the plan. Every
round has other functions: labels that collide in one round do not in the next.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size, shown
from shufflesum.cells import MOST_CELLS
from shufflesum.domain._arrays import LEFT_OUT
from shufflesum.domain.box import Missing
from shufflesum.domain.categories import refuse_for_labels
from shufflesum.domain.label_columns import (
    LabelRows,
    Words,
    checked_column,
    column_from_json,
    no_label,
    text_of,
    value_at,
)
from shufflesum.domain.label_frames import label_rows
from shufflesum.domain.neighbours import Neighbours, OneCell
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = ["KEY_BYTES", "MOST_BUCKETS", "MOST_FUNCTIONS", "Hashed"]

MOST_BUCKETS = 2**24
MOST_FUNCTIONS = 4096
KEY_BYTES = 16
_Part = TypeVar("_Part", int, bytes)
_MOST_ROUND = 2**32 - 1
_WORDS = 16  # 32-bit words in one digest


@dataclass(frozen=True, slots=True)
class Hashed:
    """Any text each, hashed into `buckets` by each of `functions` public functions, all drawn with one public `key`.

    What is None is chosen by the planner, the key when the plan is made. With block = s // 16, function s of a round
    takes the (s % 16)-th 32-bit word w, first byte highest, of HMAC-SHA-512(key, message), where the message is the
    round and the block as four bytes each, highest first, followed by the label in UTF-8; the bucket is
    w x buckets / 2^32, rounded down.
    """

    buckets: int | None = None
    functions: int | None = None
    key: bytes | None = None
    column: str | None = None
    """What the column of words is called, for tables that must have it."""
    round_number: int = 1

    def __post_init__(self) -> None:
        """Check the numbers, the key and the name."""
        checked_column(self.column)
        check_size("round_number", self.round_number, 1, _MOST_ROUND)
        if self.buckets is not None:
            check_size("buckets", self.buckets, 2, MOST_BUCKETS)
            object.__setattr__(self, "buckets", int(self.buckets))
        if self.functions is not None:
            check_size("functions", self.functions, 1, MOST_FUNCTIONS)
            object.__setattr__(self, "functions", int(self.functions))
        if (self.buckets or 0) * (self.functions or 0) >= MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"{self.functions} functions into {self.buckets} buckets are too many cells; reports can number fewer "
                f"than {MOST_CELLS}",
            )
        if self.key is not None and (not isinstance(self.key, bytes) or len(self.key) != KEY_BYTES):
            raise ParameterError(
                "malformed-key", f"the key of a hash is {KEY_BYTES} random bytes, not {shown(self.key)}"
            )

    @property
    def layout(self) -> tuple[int, int]:
        """How many functions, and how many buckets each has, once they are chosen."""
        return _chosen(self.functions), _chosen(self.buckets)

    @property
    def cells(self) -> int:
        """Buckets of all functions: function s has the cells from s x buckets on."""
        return math.prod(self.layout)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is estimated: one count, for any label asked for."""
        return ()

    @property
    def dimension(self) -> int:
        """How many numbers are estimated at a time."""
        return 1

    @property
    def neighbours(self) -> Neighbours:
        """How neighbouring data sets differ: within one function, which the label has no say in."""
        return OneCell(_chosen(self.buckets))

    @property
    def curator_weights(self) -> tuple[float, float]:
        """A trusted curator's squared error of one frequency in units of Gaussian and of Laplace noise."""
        return 2.0, 4.0

    @property
    def entries(self) -> int:
        """How many numbers a user holds."""
        return 1

    @property
    def unit(self) -> float:
        """Frequencies are parts of 1."""
        return 1.0

    @property
    def guess_error(self) -> float:
        """Squared error of guessing that nobody holds a word, at the worst."""
        return 1.0

    def rows(self, values: Any) -> LabelRows:
        """One text for each user."""
        return label_rows(values)

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about missing labels, and about others."""
        refuse_for_labels(clip=clip, missing=missing)

    def prepare(
        self, values: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse"
    ) -> list[bytes]:
        """The labels in UTF-8, stripped and composed (`text_of`), one for each user."""
        self.check_options(clip=clip, missing=missing)
        rows = label_rows(values)
        if isinstance(rows, Words):
            texts = _texts(rows)
            found = [texts[place] or b"" for place in rows.places.tolist()]
        else:
            found = [_encoded(value) for value in rows]  # NumPy's own numbers: single precision has a text of its own
        if not all(found):
            _refuse(rows, found.index(b""), first_row)
        return found

    def buckets_of(self, labels: Sequence[bytes], functions: NDArray[np.integer[Any]]) -> NDArray[np.uint32]:
        """The bucket of each label under its own function, (m,); `labels` came from `prepare`."""
        buckets, key = _chosen(self.buckets), _chosen(self.key)
        blocks, words = np.divmod(np.asarray(functions, dtype=np.int64), _WORDS)
        keyed = _Keyed(key, self.round_number, int(blocks.max(initial=0)) + 1)
        digests = [keyed(label, block) for label, block in zip(labels, blocks.tolist(), strict=True)]
        table = np.frombuffer(b"".join(digests), ">u4").reshape(-1, _WORDS)
        return _bucket(table[np.arange(len(table)), words], buckets)

    def bucket_table(self, labels: Iterable[bytes]) -> NDArray[np.uint32]:
        """The bucket of each label under every function, (m, functions); `labels` came from `prepare`."""
        buckets, functions, key = _chosen(self.buckets), _chosen(self.functions), _chosen(self.key)
        blocks = range(-(-functions // _WORDS))
        keyed = _Keyed(key, self.round_number, len(blocks))
        digests = b"".join([keyed(label, block) for label in labels for block in blocks])
        words = np.frombuffer(digests, ">u4").reshape(-1, _WORDS * len(blocks))
        return _bucket(words[:, :functions], buckets)

    def of_round(self, number: int) -> Hashed:
        """The same domain with the functions of another round."""
        return replace(self, round_number=number)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into an equal domain; the key in hexadecimal."""
        key = None if self.key is None else self.key.hex()
        named = {} if self.column is None else {"column": self.column}
        return {"kind": "hashed", "buckets": self.buckets, "functions": self.functions, "key": key, **named}

    @classmethod
    def from_json(cls, value: object) -> Hashed:
        """Undo `to_json`; raises `PlanError` for anything else."""
        try:
            match value:
                case {
                    "kind": "hashed",
                    "buckets": int() | None as buckets,
                    "functions": int() | None as functions,
                    "key": str() | None as key,
                    **rest,
                }:
                    return cls(buckets, functions, None if key is None else _key_from_hex(key), column_from_json(rest))
        except ParameterError as error:
            raise PlanError(error.problem, f"the plan's domain is not valid: {error}") from error
        raise PlanError(
            "malformed",
            f'a hashed domain must be {{"kind": "hashed", "buckets", "functions", "key"}}, not {shown(value)}',
        )


def _chosen(part: _Part | None) -> _Part:
    if part is None:
        raise ParameterError(
            "missing-argument", "buckets, functions and key are chosen when a plan is made; take plan.domain"
        )
    return part


def _key_from_hex(text: str) -> bytes:
    """One key has one spelling, or plans that are the same would have different ids."""
    if not re.fullmatch(r"(?:[0-9a-f]{2})*", text):
        raise ParameterError("malformed-key", "the key of a hash is written in small hexadecimal digits")
    return bytes.fromhex(text)


class _Keyed:
    """HMAC-SHA-512 of round, block and label, all but the label hashed once: half the time of `hmac.digest`."""

    def __init__(self, key: bytes, round_number: int, blocks: int) -> None:
        padded = key.ljust(128, b"\0")
        inner = bytes(byte ^ 0x36 for byte in padded) + round_number.to_bytes(4, "big")
        self._inner = [hashlib.sha512(inner + block.to_bytes(4, "big")) for block in range(blocks)]
        self._outer = hashlib.sha512(bytes(byte ^ 0x5C for byte in padded))

    def __call__(self, label: bytes, block: int) -> bytes:
        inner = self._inner[block].copy()
        inner.update(label)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()


def _bucket(words: NDArray[np.uint32], buckets: int) -> NDArray[np.uint32]:
    return ((words.astype(np.uint64) * np.uint64(buckets)) >> np.uint64(32)).astype(np.uint32)


def _encoded(value: object) -> bytes:
    """The label in UTF-8; empty for what is missing."""
    text = text_of(value)
    return b"" if text is None else text.encode("utf-8")


def _texts(words: Words) -> list[bytes | None]:
    """Each different value in UTF-8, None for what is no label; the last stands for place -1, empty as missing."""
    found: list[bytes | None] | None = words.tables.get("utf-8")
    if found is None:
        found = words.tables["utf-8"] = [*map(_label, words.values), b""]
    return found


def _label(value: object) -> bytes | None:
    try:
        return _encoded(value)
    except (TypeError, UnicodeEncodeError):  # half of a surrogate pair has no UTF-8
        return None


def _refuse(rows: LabelRows, row: int, first_row: int) -> NoReturn:
    value = value_at(rows, row)
    if _label(value) is None:
        raise no_label(value, first_row + row, "labels")
    raise DataError("missing-value", f"row {first_row + row}: the label is missing; {LEFT_OUT}", row=first_row + row)
