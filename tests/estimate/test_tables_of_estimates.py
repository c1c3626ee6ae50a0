from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet as arrow_parquet
from tests.estimate.decoded import Sums, count_estimate, group_estimate, hashed_estimate

from shufflesum.domains import Arrays, Categories, GroupBy, MultiChoice, OpenVocabulary
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.plans import Plan
from shufflesum.tables.writers import WRITABLE, estimate_to_json, write_estimate
from shufflesum.testing import no_guarantee

COUNTS = count_estimate(Categories(["yes", 2, False], other=True), [60, 30, 5, 5], 60, 40, 0.25)
GROUPS = group_estimate(
    GroupBy(["a", "b"], Arrays(2, (0, 10), ["age", "height"])),
    Sums(np.array([50.0, 1.0]), np.array([[10.0, 25.0], [0.0, 1.0]]), 4.0, 9.0),
)
HASHED = hashed_estimate(OpenVocabulary(5, 3, bytes(16)), np.arange(15).reshape(3, 5), 20)
WORDS = HASHED.counts_of(["some", "words"])


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_counts_as_json_have_their_labels_as_given() -> None:
    found = estimate_to_json(COUNTS, 0.9)
    assert found["labels"] == ["yes", 2, False, "other"]
    np.testing.assert_allclose(found["counts"], [50, 20, -5, -5])
    np.testing.assert_allclose(found["frequencies"], np.array([50, 20, -5, -5]) / 60)
    np.testing.assert_allclose(found["count_interval"], COUNTS.count_interval(0.9))
    np.testing.assert_allclose(found["confidence_interval"], COUNTS.confidence_interval(0.9))
    np.testing.assert_allclose(found["count_standard_error"], COUNTS.count_standard_error)
    np.testing.assert_allclose(found["consistent_counts"], COUNTS.consistent_counts)
    assert sum(found["consistent_frequencies"]) == pytest.approx(1)
    assert (found["users"], found["confidence_level"], found["guarantee_holds"]) == (60, 0.9, True)
    json.dumps(found, allow_nan=False)


def test_counts_have_one_row_per_label(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.csv", COUNTS, 0.9)
    write_estimate(tmp_path / "e.parquet", COUNTS, 0.9)
    rows = read_csv(tmp_path / "e.csv")
    assert [row["name"] for row in rows] == ["yes", "2", "false", "other"]
    table = arrow_parquet.read_table(tmp_path / "e.parquet").to_pylist()
    low, high = COUNTS.count_interval(0.9)
    for place, (text, row) in enumerate(zip(rows, table, strict=True)):
        assert list(text) == list(row)
        assert {name: float(cell) for name, cell in text.items() if name not in ("name", "notes")} == {
            name: cell for name, cell in row.items() if name not in ("name", "notes")
        }
        assert (row["value"], row["lower"], row["upper"]) == (COUNTS.counts[place], low[place], high[place])
        assert (row["users"], row["share"]) == (60, COUNTS.frequencies[place])
        assert row["consistent_count"] == COUNTS.consistent_counts[place]


def test_counts_of_several_choices_are_written_too(tmp_path: Path) -> None:
    estimate = count_estimate(MultiChoice(["a", "b"], max_choices=2), [7, 9], 10)
    write_estimate(tmp_path / "e.csv", estimate)
    assert [float(row["consistent_count"]) for row in read_csv(tmp_path / "e.csv")] == [7, 9]


def test_groups_have_one_row_per_group_and_entry(tmp_path: Path) -> None:
    write_estimate(tmp_path / "e.csv", GROUPS, 0.9)
    write_estimate(tmp_path / "e.parquet", GROUPS, 0.9)
    rows = read_csv(tmp_path / "e.csv")
    assert [(row["group"], row["index_0"], row["name"]) for row in rows] == [
        ("a", "0", "age"),
        ("a", "1", "height"),
        ("b", "0", "age"),
        ("b", "1", "height"),
    ]
    assert [row["value"] for row in rows] == ["2.0", "5.0", "", ""]
    assert [row["lower"] == "" for row in rows] == [False, False, True, True]
    assert [row["users"] for row in rows] == ["50.0", "50.0", "1.0", "1.0"]
    assert [row["notes"] for row in rows] == ["", "", "too few users", "too few users"]
    table = arrow_parquet.read_table(tmp_path / "e.parquet").to_pylist()
    assert list(table[0]) == list(rows[0])
    assert [row["value"] for row in table] == [2.0, 5.0, None, None]
    assert table[1]["upper"] == GROUPS.confidence_interval(0.9)[1][0, 1]
    assert table[1]["users_upper"] == GROUPS.count_interval(0.9)[1][0]


def test_groups_as_json_keep_their_shape() -> None:
    found = estimate_to_json(GROUPS)
    assert (found["groups"], found["names"]) == (["a", "b"], ["age", "height"])
    assert found["mean"] == [[2.0, 5.0], [None, None]]
    assert found["too_few"] == [False, True]
    assert found["confidence_interval"][0][1] == [None, None]
    assert found["sum"] == [[100.0, 250.0], [0.0, 10.0]]
    json.dumps(found, allow_nan=False)


def test_single_numbers_of_groups_are_one_row_each(tmp_path: Path) -> None:
    sums = Sums(np.array([50.0, 60.0]), np.array([[10.0], [30.0]]), 4.0, 9.0)
    write_estimate(tmp_path / "e.csv", group_estimate(GroupBy(["a", "b"], ()), sums))
    assert [(row["group"], row["value"]) for row in read_csv(tmp_path / "e.csv")] == [("a", "0.2"), ("b", "0.5")]


def test_words_are_written_as_counts_and_without_words_the_whole_table_is(tmp_path: Path) -> None:
    write_estimate(tmp_path / "words.csv", WORDS)
    rows = read_csv(tmp_path / "words.csv")
    assert [row["name"] for row in rows] == ["some", "words"]
    assert [float(row["value"]) for row in rows] == WORDS.counts.tolist()
    assert "report_count" not in rows[0]
    write_estimate(tmp_path / "table.csv", HASHED)
    rows = read_csv(tmp_path / "table.csv")
    assert (rows[7]["function"], rows[7]["bucket"], rows[7]["report_count"]) == ("1", "2", "7")
    assert rows[7]["name"] == "function 1, bucket 2"
    assert estimate_to_json(HASHED)["report_counts"] == HASHED.cells.tolist()


@pytest.mark.parametrize(
    ("estimate", "names"),
    [
        (COUNTS, {"labels", "counts", "count_interval", "confidence_interval", "consistent_counts"}),
        (GROUPS, {"groups", "names", "mean", "sum", "confidence_interval", "count_interval", "too_few"}),
        (WORDS, {"labels", "counts", "count_standard_error"}),
        (HASHED, {"report_counts"}),
    ],
)
def test_npz_has_the_same_and_needs_no_pickle(tmp_path: Path, estimate: Any, names: set[str]) -> None:
    write_estimate(tmp_path / "e.npz", estimate, 0.9)
    found = estimate_to_json(estimate, 0.9)
    with np.load(tmp_path / "e.npz", allow_pickle=False) as arrays:
        assert names | {"users", "plan", "confidence_level", "guarantee_holds"} <= set(arrays)
        for name in names & set(found) - {"labels", "groups", "names"}:
            told = np.array(found[name], dtype=float)
            np.testing.assert_array_equal(told, np.where(np.isfinite(arrays[name]), arrays[name], np.nan))
        if "labels" in names:
            assert arrays["labels"].tolist() == list(estimate.names)


@pytest.mark.parametrize("estimate", [COUNTS, GROUPS, WORDS, HASHED])
def test_every_kind_says_where_the_guarantee_does_not_hold(tmp_path: Path, estimate: Any) -> None:
    broken = replace(estimate, broken="so")
    for suffix in WRITABLE:
        write_estimate(tmp_path / f"e{suffix}", broken)
    assert json.loads((tmp_path / "e.json").read_text())["estimate"]["why_broken"] == "so"
    assert all(row["notes"].startswith("NO GUARANTEE: so") for row in read_csv(tmp_path / "e.csv"))
    assert arrow_parquet.read_table(tmp_path / "e.parquet").schema.metadata[b"guarantee_holds"] == b"false"


def test_means_of_named_columns_carry_the_names_of_the_plan(tmp_path: Path) -> None:
    plan = Plan(Arrays(2, (0, 1), ["age", "height"]), RandomizedResponse(1, 1, 0.0), no_guarantee(1))
    estimate = Estimate(plan, 4, 0, np.array([1, 1, 2, 0]))
    write_estimate(tmp_path / "e.csv", estimate)
    assert [row["name"] for row in read_csv(tmp_path / "e.csv")] == ["age", "height"]
    assert estimate_to_json(estimate)["names"] == ["age", "height"]
    assert estimate_to_json(estimate, names=["a", "b"])["names"] == ["a", "b"]


MEANS = Estimate(Plan(Arrays(2, (0, 1)), RandomizedResponse(1, 1, 0.0), no_guarantee(1)), 4, 0, np.array([1, 1, 0, 0]))
COLUMNS = ["name", "value", "std_error", "lower", "upper", "users", "notes"]


@pytest.mark.parametrize("estimate", [MEANS, COUNTS, GROUPS, WORDS, HASHED])
def test_every_kind_has_the_same_columns_with_a_row_for_each_number(estimate: Any) -> None:
    table = estimate.to_table(0.9)
    columns = table.columns
    start = list(columns).index("name")
    assert list(columns)[start : start + 7] == COLUMNS
    assert {len(column) for column in columns.values()} == {len(table)}
    assert not (columns["lower"] > columns["upper"]).any()
    narrow = estimate.to_table(0.5)
    assert (narrow.upper[np.isfinite(narrow.upper)] < table.upper[np.isfinite(narrow.upper)]).all()


def test_notes_say_why_a_value_is_missing() -> None:
    assert MEANS.to_table().notes.tolist() == ["", "nobody reported it"]
    assert GROUPS.to_table().notes.tolist() == ["", "", "too few users", "too few users"]
    assert replace(MEANS, broken="so").to_table().notes[1] == "NO GUARANTEE: so; nobody reported it"


def test_a_kind_offers_only_what_it_has() -> None:
    for estimate, lacks in (
        (COUNTS, ("coefficients", "layers", "groups")),
        (GROUPS, ("coefficients", "quantile", "top")),
        (WORDS, ("mean", "linear", "quantile")),
        (HASHED, ("mean", "standard_error", "confidence_interval", "linear", "counts")),
    ):
        assert [name for name in lacks if hasattr(estimate, name)] == []


def test_of_many_rows_the_largest_counts_or_groups_or_evenly_spaced_means_are_shown() -> None:
    counts = count_estimate(Categories(50), np.arange(50), 1225).to_table()
    assert counts.some(3) == [49, 48, 47]
    assert counts.left_out(counts.some(3)) == "3 of 50 labels are shown, the largest counts."
    assert GROUPS.to_table().some(1) == [0]
    assert GROUPS.to_table().labels([0, 3]) == ["a, age", "b, height"]
    assert MEANS.to_table().left_out([0, 1]) == ""


def test_names_take_the_place_of_indices_where_there_are_as_many() -> None:
    assert MEANS.to_table().columns["name"].tolist() == ["0", "1"]
    assert MEANS.to_table().with_names(["a", "b"]).columns["name"].tolist() == ["a", "b"]
    assert MEANS.to_table().with_names(["a"]).columns["name"].tolist() == ["0", "1"]


def test_a_printed_table_is_what_people_read() -> None:
    printed = str(COUNTS.to_table()).splitlines()
    assert printed[0] == "EstimateTable"
    assert [line.split()[0] for line in printed[1:]] == ["label", "yes", "2", "false", "other"]
    assert all("±" in line for line in printed[2:])


@pytest.mark.parametrize(("trials", "told"), [(40, ["50 ± 6", "44 to 55"]), (4000, ["-940 ± 54", "-994 to -887"])])
def test_intervals_of_users_are_told_in_whole_users(trials: int, told: list[str]) -> None:
    table = count_estimate(Categories(["yes", "no"]), [60, 30], 60, trials, 0.25).to_table()
    assert table._told(0) == told
