import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.errors import FileError, ParameterError
from shufflesum.tables.sources import ReadOptions, choose_columns

NAMES = ("id", "a", "b", "3", "a:b")


def test_all_but_the_user_column_are_data() -> None:
    choice = choose_columns("f", NAMES, ReadOptions(None, "id"))
    assert choice.data == (1, 2, 3, 4)
    assert choice.user == 0


def test_names_come_in_the_order_asked_for() -> None:
    assert choose_columns("f", NAMES, ReadOptions(["b", "a"])).data == (2, 1)


def test_a_name_wins_over_a_position_or_a_range() -> None:
    assert choose_columns("f", NAMES, ReadOptions(["3"])).data == (3,)
    assert choose_columns("f", ("1:3", "x", "y"), ReadOptions(["1:3"])).data == (0,)


def test_ranges_work_with_and_without_names() -> None:
    assert choose_columns("f", NAMES, ReadOptions(["1:3"])).data == (1, 2)
    assert choose_columns("f", 5, ReadOptions(["0:2", "4"])).data == (0, 1, 4)
    assert choose_columns("f", 5, ReadOptions([":2", "3:"])).data == (0, 1, 3, 4)


@given(st.integers(1, 50), st.data())
def test_a_range_is_the_python_range(width: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, width - 1))
    stop = data.draw(st.integers(start + 1, width))
    assert choose_columns("f", width, ReadOptions([f"{start}:{stop}"])).data == tuple(range(start, stop))


@pytest.mark.parametrize(
    ("available", "columns", "user", "refused"),
    [
        (NAMES, ["zebra"], None, ("unknown-column", "'zebra'", "'id'", "'a'", "'b'")),
        (NAMES, ["ID "], None, ("unknown-column", "did you mean 'id'?")),
        (NAMES, ["2"], None, ("unknown-column", "'2'", "2:3")),
        (NAMES, None, "who", ("unknown-column", "'who'", "user_column=")),
        (("a", "a", "b"), ["a"], None, ("ambiguous-column", "2 columns", "'a'")),
        (3, ["a"], None, ("unknown-column", "'a'", "header=")),
        (3, ["3"], None, ("unknown-column", "columns=3", "0 to 2")),
        (3, ["1:4"], None, ("unknown-column", "columns=1:4", "3 columns")),
        (3, ["2:1"], None, ("unknown-column", "columns=2:1")),
        (("id",), None, "id", ("no-columns", "'id'")),
    ],
)
def test_what_the_file_does_not_have_is_refused(
    available: tuple[str, ...] | int, columns: list[str] | None, user: str | None, refused: tuple[str, ...]
) -> None:
    with refusal(*refused, error=FileError):
        choose_columns("f", available, ReadOptions(columns, user))


@pytest.mark.parametrize(
    ("columns", "refused"),
    [
        ([], ("missing-argument", "columns=")),
        (["a", "1:3"], ("conflicting-arguments", "column 'a'")),
        (["id", "a"], ("conflicting-arguments", "column 'id'")),
    ],
)
def test_contradictory_choices_are_refused(columns: list[str], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        choose_columns("f", NAMES, ReadOptions(columns, "id"))
