"""Any text each: the hash is the published one, the same for every way to write a label."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.domains import OpenVocabulary, domain_from_json
from shufflesum.encodings import ChangedCells, Sensitivity
from shufflesum.errors import DataError, ParameterError, PlanError

KEY = bytes(range(16))


def bucket_by_the_book(key: bytes, label: str, function: int, buckets: int, round_number: int) -> int:
    """HMAC from its definition in RFC 2104, in plain whole numbers."""
    padded = key + bytes(128 - len(key))
    inner, outer = (bytes(byte ^ mask for byte in padded) for mask in (0x36, 0x5C))
    message = struct.pack(">II", round_number, function // 16) + label.encode()
    digest = hashlib.sha512(outer + hashlib.sha512(inner + message).digest()).digest()
    assert digest == hmac.new(key, message, hashlib.sha512).digest()
    word = int.from_bytes(digest[4 * (function % 16) :][:4], "big")
    return word * buckets // 2**32


@pytest.mark.parametrize(
    ("label", "function", "round_number", "bucket"),
    [
        ("apple", 0, 1, 16_795),
        ("apple", 0, 2, 28_368),
        ("apple", 15, 1, 47_372),
        ("apple", 16, 1, 36_468),
        ("caf\u00e9", 63, 1, 35_517),
        ("https://example.org/", 40, 70_000, 15_188),
    ],
)
def test_the_hash_is_the_one_written_down(label: str, function: int, round_number: int, bucket: int) -> None:
    domain = OpenVocabulary(50_000, 64, KEY).of_round(round_number)
    assert bucket_by_the_book(KEY, label, function, 50_000, round_number) == bucket
    encoded = domain.block([label]).words
    assert domain.buckets_of(encoded, np.array([function])).tolist() == [bucket]
    assert domain.bucket_table(encoded)[0, function] == bucket


@pytest.mark.long
@given(
    labels=st.lists(st.text(min_size=1, max_size=20).filter(lambda text: bool(text.strip())), min_size=1, max_size=4),
    buckets=st.integers(2, 2**24),
    functions=st.integers(1, 40),
    key=st.binary(min_size=16, max_size=16),
    number=st.integers(1, 2**32 - 1),
)
def test_hashes_agree_with_the_book(labels: list[str], buckets: int, functions: int, key: bytes, number: int) -> None:
    domain = OpenVocabulary(buckets, functions, key).of_round(number)
    encoded = domain.block(labels).words
    table = domain.bucket_table(encoded)
    assert table.dtype == np.uint32
    expected = [[bucket_by_the_book(key, e.decode(), s, buckets, number) for s in range(functions)] for e in encoded]
    assert table.tolist() == expected
    own = np.arange(len(labels)) * 7 % functions
    assert domain.buckets_of(encoded, own).tolist() == [row[s] for row, s in zip(expected, own, strict=True)]


COLUMNS: dict[str, Any] = {
    "list": ["caf\u00e9", " tea ", "7"],
    "apart": ["cafe\u0301", "tea\n", 7],
    "array": np.array(["caf\u00e9", "tea", "7"]),
    "pandas": pd.Series(["caf\u00e9", "tea", "7"]),
    "categorical": pd.Series(["caf\u00e9", "tea", "7"], dtype="category"),
    "polars": pl.Series(["cafe\u0301", "tea", "7"]),
    "arrow": pa.array(["cafe\u0301", "tea", "7"]),
    "dictionary": pa.array(["caf\u00e9", "tea", "7"]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_labels_are_stripped_and_composed_however_they_come(kind: str) -> None:
    domain = OpenVocabulary(10, 2, KEY)
    rows = domain.rows(COLUMNS[kind])
    assert domain.block(rows).words == [b"caf\xc3\xa9", b"tea", b"7"]
    assert domain.block(rows[1:]).words == [b"tea", b"7"]


def test_numbers_and_truths_are_their_text() -> None:
    domain = OpenVocabulary(10, 2, KEY)
    assert domain.block(np.array([3, -1])).words == [b"3", b"-1"]
    assert domain.block(np.array([3.0, 0.5])).words == [b"3", b"0.5"]
    assert domain.block(np.array([0.1], np.float32)).words == [b"0.1"]
    assert domain.block(np.array([True, False])).words == [b"true", b"false"]
    assert domain.block([True, 1]).words == [b"true", b"1"]


def test_every_round_has_other_functions_whichever_round_was_asked_for_before() -> None:
    domain, labels = OpenVocabulary(1000, 64, KEY), [b"apple", b"pear"]
    first, second = (domain.of_round(number).bucket_table(labels) for number in (1, 2))
    # 128 pairs of buckets that agree with chance 1/1000 each: more than ten with probability below 1e-15
    assert (first == second).sum() <= 10
    assert (domain.bucket_table(labels) == first).all()
    assert domain.of_round(2).of_round(1) == domain
    with refusal("out-of-range", error=ParameterError):
        domain.of_round(0)


def test_labels_that_collide_under_one_function_part_under_others() -> None:
    domain = OpenVocabulary(2, 64, KEY)
    table = domain.bucket_table(domain.block(["apple", "pear"]).words)
    same = int((table[0] == table[1]).sum())
    # 64 fair coins: outside 8 to 56 with probability below 1e-9 for a key drawn at random.
    assert 8 <= same <= 56


def test_buckets_are_filled_evenly_by_each_function_and_together() -> None:
    domain = OpenVocabulary(16, 32, KEY)
    table = domain.bucket_table([b"word %d" % i for i in range(4000)])
    counts = np.stack([np.bincount(column, minlength=16) for column in table.T])
    # Each is Binomial(4000, 1/16), mean 250, deviation 15.3; seven deviations for 512 of them: below 1e-6.
    assert np.abs(counts - 250).max() < 7 * 15.4
    pairs = (table[:, 3] == table[:, 20]).sum()
    assert abs(int(pairs) - 250) < 7 * 15.4


@pytest.mark.parametrize(
    "domain",
    [
        OpenVocabulary(),
        OpenVocabulary(100),
        OpenVocabulary(depth=3),
        OpenVocabulary(50_000, 64, KEY),
        OpenVocabulary(2**24, 128, KEY),
    ],
    ids=str,
)
def test_hashed_domains_come_back_from_json(domain: OpenVocabulary) -> None:
    assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain
    assert domain.shape == ()
    assert domain.dimension == 1
    assert domain.central_sensitivity == (2.0, 4.0)


def test_cells_and_neighbours() -> None:
    assert OpenVocabulary(100, 3).cells == 300
    (encoding,) = OpenVocabulary(100, 3).encodings()
    assert encoding.sensitivity == Sensitivity((ChangedCells(100, 2, paired=True),))
    assert OpenVocabulary(100, 3, KEY).to_json() == {
        "kind": "open-vocabulary",
        "width": 100,
        "depth": 3,
        "key": KEY.hex(),
    }


def test_what_the_planner_has_yet_to_choose_is_asked_for() -> None:
    for use in (
        lambda: OpenVocabulary().cells,
        lambda: OpenVocabulary().layout,
        lambda: OpenVocabulary().check_complete(),
        lambda: OpenVocabulary(10, 2).bucket_table([b"a"]),
        lambda: OpenVocabulary(10, 2).buckets_of([b"a"], np.array([0])),
    ):
        with refusal("missing-argument", error=ParameterError):
            use()


@pytest.mark.parametrize("column", [["a", None], ["a", ""], ["a", " "], pa.array(["a", None]), pl.Series(["a", None])])
def test_missing_labels_are_refused_with_their_row(column: Any) -> None:
    with refusal("missing-value", "row 31", error=DataError):
        OpenVocabulary(10, 2, KEY).block(column, 30)
    with refusal("missing-value", "row 31", error=DataError):
        OpenVocabulary(10, 2, KEY).block(np.array([1.0, np.nan]), 30)


@pytest.mark.parametrize("bad", [["b"], b"\xff", "\ud800"], ids=repr)
def test_what_has_no_text_is_refused_with_its_row(bad: Any) -> None:
    with refusal("wrong-type", "row 31", error=DataError):
        OpenVocabulary(10, 2, KEY).block(["a", bad], 30)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((1,), "out-of-range"),
        ((2**24 + 1,), "out-of-range"),
        ((10.0,), "wrong-type"),
        ((True,), "wrong-type"),
        ((10, 0), "out-of-range"),
        ((10, 4097), "out-of-range"),
        ((2**24, 256), "too-many-cells"),
        ((10, 2, b"short"), "malformed-key"),
        ((10, 2, "0" * 16), "malformed-key"),
    ],
)
def test_sizes_and_keys_out_of_range_are_refused(arguments: Any, problem: str) -> None:
    with refusal(problem, error=ParameterError):
        OpenVocabulary(*arguments)


def test_labels_have_neither_a_middle_nor_a_nearest() -> None:
    domain = OpenVocabulary(10, 2, KEY)
    domain.check_options(clip=False, missing="refuse")
    with refusal("impossible-combination", error=ParameterError):
        domain.check_options(clip=False, missing="midpoint")
    with refusal("impossible-combination", error=ParameterError):
        domain.block(["a"], clip=True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"more": 1}, "malformed"),
        ({"width": "10"}, "malformed"),
        ({"width": True}, "wrong-type"),
        ({"width": 1}, "out-of-range"),
        ({"key": 3}, "malformed"),
        ({"key": "zz" * 16}, "malformed-key"),
        ({"key": "00" * 15}, "malformed-key"),
        ({"key": " 00" * 16}, "malformed-key"),
        ({"key": "AB" * 16}, "malformed-key"),
    ],
)
def test_other_json_is_refused(change: dict[str, Any], problem: str) -> None:
    value = {**OpenVocabulary(10, 2, KEY).to_json(), **change}
    with refusal(problem, error=PlanError):
        domain_from_json(value)
