from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shufflesum.contract import REPORT_BYTES
from shufflesum.errors import ReportsError
from shufflesum.protocol import Counts, Reports
from shufflesum.testing import unprotected_plan
from shufflesum.wire import decode_reports, encode_reports

CELLS = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)), max_size=40)


def reports_of(cells: list[tuple[int, int]]) -> Reports:
    return Reports(
        "plan",
        np.array([coordinate for coordinate, _ in cells], dtype=np.uint32),
        np.array([value for _, value in cells], dtype=np.uint16),
    )


@given(CELLS)
def test_every_report_is_six_bytes_in_network_order_whatever_it_says(cells: list[tuple[int, int]]) -> None:
    encoded = encode_reports(reports_of(cells))
    assert encoded.shape == (len(cells), REPORT_BYTES)
    assert encoded.dtype == np.uint8
    assert encoded.tobytes() == b"".join(struct.pack(">IH", *cell) for cell in cells)


@given(CELLS)
def test_decoding_undoes_encoding(cells: list[tuple[int, int]]) -> None:
    decoded = decode_reports(encode_reports(reports_of(cells)), "plan")
    assert decoded.plan_id == "plan"
    assert list(zip(decoded.coordinates.tolist(), decoded.values.tolist(), strict=True)) == cells


@given(st.binary(max_size=240).map(lambda data: data[: len(data) // REPORT_BYTES * REPORT_BYTES]))
def test_any_six_bytes_are_a_report_and_encoding_undoes_decoding(data: bytes) -> None:
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, REPORT_BYTES)
    assert encode_reports(decode_reports(rows, "plan")).tobytes() == data


def test_rows_need_not_lie_next_to_each_other() -> None:
    encoded = encode_reports(reports_of([(1, 2), (3, 4), (5, 6), (7, 8)]))
    assert decode_reports(encoded[::2], "plan").coordinates.tolist() == [1, 5]
    assert decode_reports(np.asfortranarray(encoded), "plan").values.tolist() == [2, 4, 6, 8]


def test_a_report_outside_the_domain_is_decoded_and_left_to_the_counts() -> None:
    plan = unprotected_plan(users=1, shape=2, levels=1)
    counts = Counts(plan)
    rows = encode_reports(reports_of([(1, 1), (2, 0), (0, 2)]))
    counts.add(decode_reports(rows, plan.id))
    assert (counts.accepted, counts.rejected) == (1, 2)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((12,), np.uint8), ((2, 5), np.uint8), ((2, 7), np.uint8), ((2, 6), np.int8), ((1, 2, 6), np.uint8)],
)
def test_anything_but_rows_of_six_bytes_is_refused(shape: tuple[int, ...], dtype: type[np.integer]) -> None:
    with pytest.raises(ReportsError, match=r"must be bytes of shape \(reports, 6\)"):
        decode_reports(np.zeros(shape, dtype=dtype), "plan")
