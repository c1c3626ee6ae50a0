import pyarrow as pa
import pytest
from tests.refusals import refusal

from shufflesum.errors import DataError, FileError
from shufflesum.tables.sources import refuse_repeated_users


def test_distinct_users_are_counted_across_chunks() -> None:
    assert refuse_repeated_users("f", "u", [pa.array(["a", "b"]), pa.array(["c"])]) == 3
    assert refuse_repeated_users("f", "u", []) == 0


@pytest.mark.parametrize(
    ("chunks", "user", "rows"),
    [
        ([pa.array(["a", "b"]), pa.array(["c", "b"])], "'b'", 2),
        ([pa.array(["a", " a "])], "'a'", 2),
        ([pa.array([7, 8, 7, 7])], "7", 3),
        ([pa.array(["x", "y", "x"]).dictionary_encode()], "'x'", 2),
    ],
)
def test_a_user_with_two_rows_is_named_and_the_way_out_is_told(chunks: list[pa.Array], user: str, rows: int) -> None:
    with refusal("repeated-user", f"{rows} rows", "on 'u'", error=DataError) as caught:
        refuse_repeated_users("f", "u", chunks)
    assert caught.value.value == user


@pytest.mark.parametrize("nobody", [None, "", "  "])
def test_a_row_without_a_user_is_refused_by_its_number(nobody: str | None) -> None:
    with refusal("missing-value", "row 2", "column 'u'", error=DataError):
        refuse_repeated_users("f", "u", [pa.array(["a"]), pa.array(["b", nobody])])


def test_users_that_cannot_be_compared_are_refused() -> None:
    with refusal("not-comparable", "column 'u'", error=FileError):
        refuse_repeated_users("f", "u", [pa.array([[1], [2]])])
