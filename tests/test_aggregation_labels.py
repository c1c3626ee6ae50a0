"""Groups and labels as people hold them: indexes of pandas, missing values, capitals, lists for domains."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cautions import IdentifierColumnWarning, LargeOtherWarning
from shufflesum.errors import DataError, ParameterError
from shufflesum.testing import SeededSource

WANTED: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6}
GROUPS = ss.GroupBy(["a", "b"])
FRAME = pd.DataFrame({"x": [0.25] * 300 + [0.75] * 300, "g": ["a"] * 300 + ["b"] * 300})


def means(values: Any, groups: Any) -> list[float]:
    found = ss.aggregate(values, group_by=groups, domain=GROUPS, source=SeededSource(1), **WANTED)
    return [float(mean) for mean in found.mean]


def test_groups_are_paired_by_index_and_never_by_position_where_indexes_differ() -> None:
    expected = means(FRAME["x"], FRAME["g"])
    assert expected == pytest.approx([0.25, 0.75], abs=0.05)
    shuffled = FRAME["g"].sample(frac=1.0, random_state=3)
    assert means(FRAME["x"], shuffled) == expected
    more = pd.concat([FRAME["g"], pd.Series(["a"], index=[1000])])
    assert means(FRAME["x"], more) == expected  # rows that the data has not are not looked for
    assert means(FRAME["x"].to_numpy(), shuffled.sort_index()) == expected
    others = FRAME["g"].set_axis(range(7, 607))
    with refusal("index-mismatch", "group_by", "RangeIndex", "600 rows", "to_numpy", error=DataError):
        means(FRAME["x"], others)
    twice = FRAME["g"].set_axis([0, *range(599)])
    with refusal("index-mismatch", error=DataError):
        means(FRAME["x"], twice)


def test_the_truth_of_a_picture_is_paired_by_name() -> None:
    pytest.importorskip("altair")
    counts = ss.aggregate(FRAME["g"], domain=["a", "b"], source=SeededSource(1), **WANTED)
    from shufflesum.plots import estimate_chart

    one = estimate_chart(counts, truth=pd.Series({"b": 300.0, "a": 200.0}), title="x").to_json()
    assert one == estimate_chart(counts, truth=[200.0, 300.0], title="x").to_json()
    with refusal("index-mismatch", "truth", "a, c", "a, b", error=DataError):
        counts.plot(truth=pd.Series({"a": 1.0, "c": 2.0}))


def test_a_list_of_labels_is_a_domain() -> None:
    found = ss.aggregate(FRAME["g"], domain=["a", "b"], **WANTED)
    assert found.plan.domain == ss.Categories(["a", "b"])
    assert ss.plan(users=1000, domain=["yes", "no"], epsilon=1.0, delta=1e-6).domain == ss.Categories(["yes", "no"])
    grouped = ss.aggregate(FRAME, group_by="g", domain=["a", "b"], bounds=(0, 1), **WANTED)
    assert (grouped.plan.domain.labels, grouped.columns) == (ss.GroupBy(["a", "b"]).labels, ("x",))
    two = ss.aggregate(
        FRAME.assign(y=0.5), group_by="g", domain=["a", "b"], bounds={"x": (0, 1), "y": (0, 9)}, **WANTED
    )
    assert (two.columns, two.mean.shape) == (("x", "y"), (2, 2))


def test_what_may_be_done_about_missing_values_is_named() -> None:
    with refusal("unknown-choice", "'mean'", "'refuse', 'midpoint', 'drop'", error=ParameterError):
        ss.aggregate(FRAME["x"], bounds=(0, 1), missing="mean", **WANTED)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("gap", [pytest.param(None, marks=pytest.mark.slow), np.nan, pd.NA])  # None becomes NaN
def test_rows_with_a_missing_value_are_left_out_and_counted(gap: Any) -> None:
    frame = FRAME.astype({"x": object}) if gap is pd.NA else FRAME.copy()
    frame.loc[[3, 400], "x"] = gap
    frame.loc[[3, 5], "g"] = None
    numbers = ss.aggregate(frame["x"], missing="drop", **WANTED)
    assert (numbers.users, numbers.left_out) == (598, 2)
    assert "2 of 600 rows were left out" in str(numbers.adjustment)
    labels = ss.aggregate(frame["g"], domain=["a", "b"], missing="drop", **WANTED)
    assert (labels.users, labels.left_out) == (598, 2)
    both = ss.aggregate(frame, group_by="g", domain=GROUPS, missing="drop", **WANTED)
    assert (both.users, both.left_out) == (597, 3)
    lists = [["a"], None, ["a", "b"], []] * 50
    chosen = ss.aggregate(
        lists, domain=ss.MultiChoice(["a", "b"], max_choices=2), missing="drop", epsilon=50, delta=0.1
    )
    assert chosen.users == 150
    assert np.round(chosen.counts).tolist() == pytest.approx([100, 50], abs=10)
    assert ss.moments(frame["x"], missing="drop", **WANTED).users == 598
    assert ss.suggest_bounds(frame["x"], missing="drop", **WANTED).estimate.users == 598
    with refusal("no-rows", "nobody", error=DataError):
        ss.aggregate([np.nan, np.nan], missing="drop", **WANTED)


def test_what_was_left_out_is_kept_in_a_file(tmp_path: Any) -> None:
    found = ss.aggregate([0.5, np.nan] * 200, missing="drop", **WANTED)
    found.save(tmp_path / "estimate.json")
    again = ss.BaseEstimate.load(tmp_path / "estimate.json")
    assert (again.left_out, again.adjustment) == (200, found.adjustment)


def test_one_number_for_each_user_may_have_one_axis_or_two() -> None:
    values = np.full(500, 0.5)
    plan = ss.plan(users=500, shape=1, **WANTED)
    assert ss.aggregate(values, plan=plan).mean.shape == (1,)
    plan = ss.plan(users=500, shape=(), **WANTED)
    assert ss.aggregate(values[:, np.newaxis], plan=plan).mean.shape == ()


def test_capitals_are_ignored_where_that_is_said_and_suggested_where_not() -> None:
    answers = ["yes", "Yes", "NO", "no", "maybe", "yes", "YES", "Yes"] * 50
    with refusal("unknown-label", "ignore_case=True", error=DataError) as refused:
        ss.aggregate(answers, domain=["yes", "no"], **WANTED)
    assert "did you mean 'yes'?" in str(refused.value.value)
    assert "Yes" not in str(refused.value)
    domain = ss.Categories(["yes", "no"], other=True)
    with pytest.warns(LargeOtherWarning, match=r"6\d % .*ignore_case"):
        ss.aggregate(answers, domain=domain, **WANTED)
    for column in (answers, np.array(answers), pd.Series(answers, dtype="category"), pl.Series(answers)):
        found = ss.aggregate(column, domain=domain, ignore_case=True, source=SeededSource(2), **WANTED)
        assert found.counts == pytest.approx([250, 100, 50], abs=15)
        assert found.plan == ss.plan(users=400, domain=domain, noise_by="curator", **WANTED)
    groups = ss.aggregate(
        np.full(400, 0.5), group_by=answers, domain=ss.GroupBy(["yes", "no", "Maybe"]), ignore_case=True, **WANTED
    )
    assert groups.users == 400
    with refusal("conflicting-arguments", "'us'", "'US'", error=ParameterError):
        ss.aggregate(["us"] * 400, domain=["us", "US"], ignore_case=True, **WANTED)
    with refusal("impossible-combination", "ignore_case", error=ParameterError):
        ss.aggregate([0.5] * 400, ignore_case=True, **WANTED)


def test_clipping_needs_bounds() -> None:
    with refusal("missing-argument", "bounds=", error=ParameterError):
        ss.aggregate([30.0] * 400, clip=True, **WANTED)
    with refusal("missing-argument", "bounds", error=ParameterError):
        ss.moments([30.0] * 400, clip=True, **WANTED)
    assert float(ss.aggregate([30.0] * 400, clip=True, bounds=(0, 120), **WANTED).mean) == pytest.approx(30, abs=5)


def test_clipping_numbers_of_a_domain_needs_bounds_too() -> None:
    ages, groups = [30.0] * 400, ["a", "b"] * 200
    for domain, group_by in ((ss.GroupBy(["a", "b"]), groups), (ss.GroupBy(2), [0, 1] * 200), (ss.Arrays(), None)):
        with refusal("missing-argument", "bounds=", error=ParameterError):
            ss.aggregate(ages, group_by=group_by, domain=domain, clip=True, **WANTED)
        with refusal("out-of-bounds", "[0, 1] is the default", error=DataError):
            ss.aggregate(ages, group_by=group_by, domain=domain, **WANTED)
    for labels, bounds in (
        (ss.GroupBy(["a", "b"]), (0, 120)),
        (ss.GroupBy(["a", "b"], ss.Arrays((), (0, 120))), None),
    ):
        found = ss.aggregate(ages, group_by=groups, domain=labels, bounds=bounds, clip=True, **WANTED)
        assert found.mean == pytest.approx(30, abs=20)
    unit = ss.GroupBy(["a", "b"], ss.Arrays((), (0, 1)))
    assert ss.aggregate(ages, group_by=groups, domain=unit, clip=True, **WANTED).mean == pytest.approx(1, abs=0.3)


def test_bounds_that_are_the_default_are_equal_to_the_same_that_are_given() -> None:
    assert ss.Arrays(3) == ss.Arrays(3, (0, 1))
    assert ss.Arrays(3).with_numbers(None, ["a", "b", "c"]).default_bounds
    assert not ss.Arrays(3).with_numbers((0, 1), None).default_bounds


def test_columns_are_chosen_by_name_and_text_says_how_to_count_it() -> None:
    frame = pd.DataFrame({"city": ["x"] * 400, "age": [0.5] * 400, "user_id": range(400)})
    with refusal("not-numbers", "'city'", "columns=", "Categories", error=DataError):
        ss.aggregate(frame, **WANTED)
    for table in (frame, pl.from_pandas(frame)):
        found = ss.aggregate(table, columns=["age"], **WANTED)
        assert found.columns == ("age",)
    with pytest.warns(IdentifierColumnWarning, match="'user_id'"):
        ss.aggregate(frame, columns=["age", "user_id"], bounds=(0, 500), **WANTED)
    for name, warned in {"id": True, "userId": True, "Unnamed: 0": True, "paid": False, "width": False}.items():
        numbers = ss.plan(users=1000, shape=1, columns=[name], epsilon=1.0, delta=1e-6)
        assert bool(numbers.warnings) == warned, name


def test_polars_in_is_polars_out() -> None:
    frame = pl.DataFrame({"x": [0.5] * 400})
    assert isinstance(ss.aggregate(frame, **WANTED).to_frame(), pl.DataFrame)
    assert isinstance(ss.aggregate(frame.to_pandas(), **WANTED).to_frame(), pd.DataFrame)
    assert isinstance(ss.aggregate(frame, **WANTED).to_frame(library="pandas"), pd.DataFrame)


def test_warnings_point_at_the_callers_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ss.aggregate([0.5] * 20, epsilon=0.1, delta=1e-6)
        ss.plan(users=20, shape=50, epsilon=0.1, delta=1e-6)
        ss.suggest_bounds(np.arange(200.0), epsilon=2.0, delta=1e-6)
    assert len(caught) >= 3
    assert {warning.filename for warning in caught} == {__file__}
