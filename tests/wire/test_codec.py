from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.cells import BLANK, REPORT_BYTES
from shufflesum.errors import ReportsError
from shufflesum.reports import Counts, Reports
from shufflesum.sealing import decode_reports, encode_reports
from shufflesum.testing import unprotected_plan

CELLS = st.lists(st.one_of(st.integers(0, 2**32 - 1), st.just(BLANK)), max_size=40)


def reports_of(cells: list[int]) -> Reports:
    return Reports("plan", np.array(cells, dtype=np.uint32))


@given(CELLS)
def test_every_report_is_four_bytes_in_network_order_whatever_it_says(cells: list[int]) -> None:
    encoded = encode_reports(reports_of(cells))
    assert encoded.shape == (len(cells), 4) == (len(cells), REPORT_BYTES)
    assert encoded.dtype == np.uint8
    assert encoded.tobytes() == b"".join(struct.pack(">I", cell) for cell in cells)


@given(CELLS)
def test_decoding_undoes_encoding(cells: list[int]) -> None:
    decoded = decode_reports(encode_reports(reports_of(cells)), "plan")
    assert decoded.plan_id == "plan"
    assert decoded.cells.tolist() == cells


@given(st.binary(max_size=240).map(lambda data: data[: len(data) // REPORT_BYTES * REPORT_BYTES]))
def test_any_four_bytes_are_a_report_and_encoding_undoes_decoding(data: bytes) -> None:
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, REPORT_BYTES)
    assert encode_reports(decode_reports(rows, "plan")).tobytes() == data


def test_rows_need_not_lie_next_to_each_other() -> None:
    encoded = encode_reports(reports_of([1, 3, 5, 7]))
    assert decode_reports(encoded[::2], "plan").cells.tolist() == [1, 5]
    assert decode_reports(np.asfortranarray(encoded), "plan").cells.tolist() == [1, 3, 5, 7]


def test_a_report_that_is_no_cell_is_decoded_and_left_to_the_counts() -> None:
    plan = unprotected_plan(users=1, shape=2, levels=1)
    counts = Counts(plan)
    counts.add(decode_reports(encode_reports(reports_of([3, 4, BLANK, BLANK - 1])), plan.id))
    assert (counts.accepted, counts.rejected, counts.blanks) == (1, 2, 1)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((12,), np.uint8),
        ((2, 3), np.uint8),
        ((2, 5), np.uint8),
        ((2, 6), np.uint8),
        ((2, 4), np.int8),
        ((1, 2, 4), np.uint8),
    ],
)
def test_anything_but_rows_of_four_bytes_is_refused(shape: tuple[int, ...], dtype: type[np.integer]) -> None:
    with refusal("wrong-type", "4", error=ReportsError):
        decode_reports(np.zeros(shape, dtype=dtype), "plan")
