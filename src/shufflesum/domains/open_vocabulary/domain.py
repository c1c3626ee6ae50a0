"""Any text for each user, out of no list: words, addresses, names of programs, counted by hash.

The hash is HMAC-SHA-512 (RFC 2104 over FIPS 180-4), because every standard library and every browser has it, so that
all clients agree, and because nobody can look for labels that collide before the key is drawn with the plan. Every
round has other functions: labels that collide in one round do not in the next.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size, set_fields, shown
from shufflesum.cells import MOST_CELLS
from shufflesum.domains import base
from shufflesum.domains.base import ColumnLayout, Domain, Missing
from shufflesum.domains.labels import (
    DictionaryColumn,
    LabelRows,
    checked_column,
    column_from_json,
    label_rows,
    no_label,
    text_of,
    value_at,
)
from shufflesum.domains.options import Option
from shufflesum.domains.structure import LEFT_OUT
from shufflesum.encodings import Block, Encoding, OneHot, OwnCells
from shufflesum.errors import DataError, ParameterError
from shufflesum.randomness import SPARE_WORDS, RandomSource, UInts, random_uints, stratified_coordinates

MAX_WIDTH = 2**24
MAX_DEPTH = 4096
KEY_BYTES = 16
_Part = TypeVar("_Part")
_MOST_ROUND = 2**32 - 1
_WORDS = 16  # 32-bit words in one digest


@dataclass(frozen=True, slots=True)
class OpenVocabulary(Domain):
    """Any text each, hashed into `width` buckets by each of `depth` public functions, all drawn with one public `key`.

    What is None is chosen by the planner, the key when the plan is made. With block = s // 16, function s of a round
    takes the (s % 16)-th 32-bit word w, first byte highest, of HMAC-SHA-512(key, message), where the message is the
    round and the block as four bytes each, highest first, followed by the label in UTF-8; the bucket is
    w x width / 2^32, rounded down.
    """

    kind: ClassVar[str] = "open-vocabulary"
    parts: ClassVar[tuple[str, str]] = ("open_vocabulary.estimate:VocabularyEstimate", "wording:OpenVocabularyWording")
    trivial_guess: ClassVar[str] = "that nobody holds a word"
    needs_candidates: ClassVar[bool] = True
    made_up_words: ClassVar[tuple[str, ...]] = tuple(f"word {number}" for number in range(1, 1001))
    distributions: ClassVar[tuple[str, ...]] = base.LABEL_DISTRIBUTIONS
    column_help: ClassVar[tuple[str, str]] = (
        "Count any words in this column, without a list of them.",
        "The column of each user's word, under a plan for words.",
    )
    flag_help: ClassVar[str] = "Users hold any words, without a list."
    options: ClassVar[tuple[Option, ...]] = (
        Option("width", "open-vocabulary: buckets of a hash function.  [automatic]", "B", int),
        Option("depth", "open-vocabulary: hash functions.  [automatic]", "S", int),
    )
    # More buckets make words collide less and less, but each costs every user as much noise as the one before: so much
    # more squared error than the least is a quarter more in counts.
    planning_tolerance: ClassVar[float] = 0.55

    width: int | None = None
    depth: int | None = None
    key: bytes | None = None
    column: str | None = None
    """What the column of words is called, for tables that must have it."""
    round_number: int = 1

    def __post_init__(self) -> None:
        """Check the numbers, the key and the name."""
        set_fields(self, column=checked_column(self.column))
        for name, least, most in (("round_number", 1, _MOST_ROUND), ("width", 2, MAX_WIDTH), ("depth", 1, MAX_DEPTH)):
            if (value := getattr(self, name)) is not None:
                check_size(name, value, least, most)
                set_fields(self, **{name: int(value)})
        if (self.width or 0) * (self.depth or 0) >= MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"depth {self.depth} x width {self.width} are too many cells; reports can number fewer "
                f"than {MOST_CELLS}",
            )
        if self.key is not None and (not isinstance(self.key, bytes) or len(self.key) != KEY_BYTES):
            raise ParameterError(
                "malformed-key", f"the key of a hash is {KEY_BYTES} random bytes, not {shown(self.key)}"
            )

    @property
    def layout(self) -> tuple[int, int]:
        """How many functions, and how many buckets each has, once they are chosen."""
        return _chosen(self.depth), _chosen(self.width)

    @property
    def cells(self) -> int:
        """Buckets of all functions: function s has the cells from s x width on."""
        return math.prod(self.layout)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is estimated: one count, for any label asked for."""
        return ()

    @property
    def dimension(self) -> int:
        """How many numbers are estimated at a time."""
        return 1

    def size_text(self) -> str:
        """There is no number of them."""
        return "any words"

    @property
    def central_sensitivity(self) -> tuple[float, float]:
        """A trusted curator's squared error of one frequency in units of Gaussian and of Laplace noise."""
        return 2.0, 4.0

    @property
    def trivial_mse(self) -> float:
        """Squared error of guessing that nobody holds a word, at the worst."""
        return 1.0

    def rows(self, values: Any) -> LabelRows:
        """One text for each user."""
        return label_rows(values)

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about missing labels, and about others."""
        base.refuse_for_labels(clip=clip, missing=missing)

    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> HashedWords:
        """The words in UTF-8, and their buckets under functions that are drawn when they are encoded."""
        self.check_options(clip=clip, missing=missing)
        return HashedWords(self.texts(rows, first_row), first_row, self)

    def texts(self, values: Any, first_row: int = 0) -> list[bytes]:
        """The words in UTF-8, stripped and composed (`text_of`), one for each user."""
        rows = label_rows(values)
        if isinstance(rows, DictionaryColumn):
            texts = _texts(rows)
            found = [texts[place] or b"" for place in rows.places.tolist()]
        else:
            found = [_encoded(value) for value in rows]  # NumPy's own numbers: single precision has a text of its own
        if not all(found):
            _refuse(rows, found.index(b""), first_row)
        return found

    def buckets_of(self, labels: Sequence[bytes], functions: NDArray[np.integer[Any]]) -> NDArray[np.uint32]:
        """The bucket of each label under its own function, (m,); `labels` came from `texts`."""
        buckets, key = _chosen(self.width), _chosen(self.key)
        blocks, words = np.divmod(np.asarray(functions, dtype=np.int64), _WORDS)
        keyed = _Keyed(key, self.round_number, int(blocks.max(initial=0)) + 1)
        digests = [keyed(label, block) for label, block in zip(labels, blocks.tolist(), strict=True)]
        table = np.frombuffer(b"".join(digests), ">u4").reshape(-1, _WORDS)
        return _bucket(table[np.arange(len(table)), words], buckets)

    def bucket_table(self, labels: Iterable[bytes]) -> NDArray[np.uint32]:
        """The bucket of each label under every function, (m, functions); `labels` came from `texts`."""
        buckets, functions, key = _chosen(self.width), _chosen(self.depth), _chosen(self.key)
        blocks = range(-(-functions // _WORDS))
        keyed = _Keyed(key, self.round_number, len(blocks))
        digests = b"".join([keyed(label, block) for label in labels for block in blocks])
        words = np.frombuffer(digests, ">u4").reshape(-1, _WORDS * len(blocks))
        return _bucket(words[:, :functions], buckets)

    @property
    def column_layout(self) -> ColumnLayout:
        """One column, of words."""
        return ColumnLayout(labels=True, column=self.column)

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], list[str]]:
        """A thousand words."""
        words = self.made_up_words
        return lambda users: [words[code] for code in base.made_up_codes(random, len(words), users, distribution)]

    def true_values(self, blocks: Iterable[Block], candidates: Sequence[str] = ()) -> NDArray[np.float64]:
        """How many users have each of the candidates."""
        found: Counter[bytes] = Counter()
        for block in blocks:
            assert isinstance(block, HashedWords)
            found.update(block.words)
        return np.array([found[word] for word in self.texts(candidates)], dtype=np.float64)

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> OpenVocabulary:
        """The sizes of its hash, where they were given."""
        return cls(given.get("width"), given.get("depth"), column=column)

    def with_new_key(self) -> OpenVocabulary:
        """Other hash functions."""
        return replace(self, key=secrets.token_bytes(KEY_BYTES))

    def encodings(self) -> tuple[Encoding, ...]:
        """One bucket of one of several hash functions."""
        return (OneHot(self.width, self.depth, names_cells=False),)

    def check_complete(self) -> None:
        """Sizes and key must have been chosen."""
        for part in (self.width, self.depth, self.key):
            _chosen(part)

    def completed(self, encoding: Encoding) -> OpenVocabulary:
        """With width and depth as the planner chose them, and a public key, which needs no trust."""
        assert isinstance(encoding, OneHot)
        depth, width = encoding.layout
        return replace(self, width=width, depth=depth, key=self.key or secrets.token_bytes(KEY_BYTES))

    def example(self, *, cells: Any = (), values: Any = None) -> str:
        """A word; what its buckets are, its hash decides."""
        (number,) = cells
        return str(number)

    def of_round(self, number: int) -> OpenVocabulary:
        """The same domain with the functions of another round."""
        return replace(self, round_number=number)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into an equal domain; the key in hexadecimal."""
        key = None if self.key is None else self.key.hex()
        return {"kind": "open-vocabulary", "width": self.width, "depth": self.depth, "key": key} | self._column_field()

    _fields: ClassVar[str] = '"width", "depth", "key" and perhaps "column"'

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> OpenVocabulary | None:
        match fields:
            case {"width": int() | None as width, "depth": int() | None as depth, "key": str() | None as key, **rest}:
                return cls(width, depth, None if key is None else base.key_from_hex(key), column_from_json(rest))
        return None


@dataclass(frozen=True, slots=True, eq=False)
class HashedWords(OwnCells):
    """Words whose cell is a bucket of a random hash function."""

    words: list[bytes]
    first_row: int
    domain: OpenVocabulary

    def __len__(self) -> int:
        return len(self.words)

    def draw(self, source: RandomSource) -> NDArray[np.uint32]:
        """A uniform function for each user, and the word's bucket under it."""
        depth, width = self.domain.layout
        functions: UInts = np.empty((len(self.words), 1), dtype=np.uint32)
        done = 0
        while done < len(self.words):
            left = functions[done:]
            drawn = random_uints(source, left.size + left.size // 64 + SPARE_WORDS, np.uint32)
            done += stratified_coordinates(drawn, depth, 1, left)
        chosen = functions[:, 0]
        cells: NDArray[np.uint32] = chosen * np.uint32(width) + self.domain.buckets_of(self.words, chosen)
        return cells

    def of_all_tables(self) -> NDArray[np.int64]:
        """The bucket under every function."""
        depth, width = self.domain.layout
        return self.domain.bucket_table(self.words).astype(np.int64) + np.arange(depth) * width

    def refuse(self, cells: NDArray[Any]) -> NoReturn:
        """Every bucket is a cell."""
        raise AssertionError("a bucket is always a cell")


def _chosen(part: _Part | None) -> _Part:
    if part is None:
        raise ParameterError(
            "missing-argument", "width, depth and key are chosen when a plan is made; take plan.domain"
        )
    return part


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


def _texts(words: DictionaryColumn) -> list[bytes | None]:
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
