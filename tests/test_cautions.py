"""Warnings that cost no privacy: when they come and when not, where they are seen, and that filters hold."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import shufflesum as ss
from shufflesum import cautions
from shufflesum.cautions import (
    EdgeOfBoundsWarning,
    LargeDeltaWarning,
    LargeEpsilonWarning,
    UninformativeEstimateWarning,
    at_the_edge,
    of_guarantee,
    uninformative,
)
from shufflesum.tables.writers import estimate_to_json
from shufflesum.testing import SeededSource

TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def kinds(found: Any) -> list[type[Warning]]:
    return [type(warning) for warning in found]


def test_a_guarantee_is_weak_from_one_user_in_all_and_above_ten_on() -> None:
    assert not list(of_guarantee(10.0, 0.99e-3, 1000))
    assert kinds(of_guarantee(10.0, 1e-3, 1000)) == [LargeDeltaWarning]
    assert kinds(of_guarantee(10.1, 1e-6, 1000)) == [LargeEpsilonWarning]
    assert kinds(ss.plan(users=20, shape=1, epsilon=12.0, delta=0.06).warnings) == [
        LargeDeltaWarning,
        LargeEpsilonWarning,
    ]


@pytest.mark.parametrize(
    ("mean", "deviation", "warned"),
    [
        (0.5, 0.01, False),
        (0.02, 0.01, True),  # cannot be told from 0
        (-0.5, 0.01, True),  # beyond
        (1.2, 0.01, True),
        (0.04, 0.01, False),
        (0.96, 0.01, False),
        (0.98, 0.01, True),
        (0.1, 0.06, False),  # so uncertain that it says nothing about bounds
        (np.nan, np.nan, False),
    ],
)
def test_the_edge_is_where_an_estimate_cannot_be_told_from_a_bound(mean: float, deviation: float, warned: bool) -> None:
    found = at_the_edge(np.array([0.5, mean]), np.array([0.01, deviation]), "entry {}".format, named=True, clipped=True)
    assert kinds(found) == [EdgeOfBoundsWarning] * warned
    assert all("entry 1" in str(warning) for warning in found)


def test_clipping_is_blamed_only_where_it_may_have_been() -> None:
    at = np.array([0.0])
    (surely,) = at_the_edge(at, np.array([0.005]), str, named=True, clipped=True)
    assert "either the bounds are far too wide, or nearly all values lie beyond" in str(surely)
    assert "clipped" in str(surely)
    assert "bounds={'NAME': (LO, HI)}" in str(surely)
    (alike,) = at_the_edge(at, np.array([0.005]), str, named=False, clipped=True)
    assert "NAME" not in str(alike)
    for deviation, clipped in ((0.005, False), (0.04, True)):
        (unclear,) = at_the_edge(at, np.array([deviation]), str, named=True, clipped=clipped)
        assert "clip" not in str(unclear)
        assert "users too few" in str(unclear)
    few = ss.aggregate(pd.DataFrame({"age": [30.0] * 100}), bounds=(0, 1000), source=SeededSource(1), **TARGET)
    assert "clip" not in str(few.warnings[0])


def test_of_entries_without_names_it_takes_half() -> None:
    mean, deviation = np.array([0.0, 0.5, 0.5, np.nan]), np.full(4, 0.01)
    assert not list(at_the_edge(mean, deviation, str, named=False, clipped=True))
    mean[1] = 1.0
    (found,) = at_the_edge(mean, deviation, str, named=False, clipped=True)
    assert "1 of 3 others" in str(found)
    images = ss.aggregate(np.tile([[0.0, 0.5, 0.5]], (3000, 1)), source=SeededSource(1), **TARGET)
    assert images.warnings == ()
    columns = ss.aggregate(
        np.tile([[0.0, 0.5, 0.5]], (3000, 1)), columns=["a", "b", "c"], source=SeededSource(1), **TARGET
    )
    assert kinds(columns.warnings) == [EdgeOfBoundsWarning]


def test_half_of_all_intervals_must_say_nothing_before_that_is_worth_a_word() -> None:
    vague, narrow = 0.3, 0.2
    mean = np.array([0.5, 0.5, 0.5, np.nan])
    assert not list(uninformative(mean, np.array([vague, narrow, narrow, np.nan])))
    assert not list(uninformative(mean[:1], np.array([narrow])))
    assert not list(uninformative(np.array([0.2]), np.array([vague])))  # surely not at the other end
    (found,) = uninformative(mean, np.array([vague, vague, narrow, np.nan]))
    assert "2 of 3" in str(found)


def test_every_warning_is_of_one_family_with_a_name_of_its_own() -> None:
    classes = [kind for kind in vars(cautions).values() if isinstance(kind, type)]
    family: list[Any] = [kind for kind in classes if issubclass(kind, Warning)]
    assert len(family) >= 8
    assert all(issubclass(kind, ss.ShufflesumWarning) for kind in family)
    problems = {kind.problem for kind in family}
    assert len(problems) == len(family)


def wrong_bounds() -> Any:
    """Incomes up to 80,000 where the bounds end at 100, and all is clipped to them; ages are fine."""
    rows = np.stack([np.full(5000, 40.0), np.full(5000, 80_000.0)], axis=1)
    return ss.aggregate(
        rows, columns=["age", "income"], bounds=([0, 0], [100, 100]), clip=True, source=SeededSource(1), **TARGET
    )


def test_clipped_values_are_warned_of_by_name_and_filters_hold() -> None:
    with pytest.warns(EdgeOfBoundsWarning, match="income is at the upper end") as caught:
        estimate = wrong_bounds()
    assert len(caught) == 1
    assert [str(warning) for warning in estimate.warnings] == [str(caught[0].message)]
    assert "income" in estimate._repr_html_()
    assert [each["problem"] for each in estimate_to_json(estimate)["warnings"]] == ["edge-of-bounds"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ss.ShufflesumWarning)
        wrong_bounds()


def test_good_bounds_are_no_reason_for_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = np.random.default_rng(1).random((5000, 3))
        assert ss.aggregate(rows, source=SeededSource(1), **TARGET).warnings == ()
        labels = ["a", "b", "never held"]
        assert (
            ss.aggregate(["a", "b"] * 2000, domain=ss.Categories(labels), source=SeededSource(1), **TARGET).warnings
            == ()
        )


def test_groups_are_looked_at_where_they_have_a_mean() -> None:
    rows, labels = np.tile([[0.5, 1.0]], (4000, 1)), ["x", "y"] * 2000
    domain = ss.GroupBy(["x", "y", "nobody"], 2)
    (found,) = ss.aggregate(rows, group_by=labels, domain=domain, source=SeededSource(1), **TARGET).warnings
    assert "entry 1 of group x cannot be told from the upper end" in str(found)
    assert "1 of 3 others" in str(found)


def test_a_span_is_looked_at_in_its_coefficients() -> None:
    span = ss.Span(np.array([[1.0, 0, 1], [0, 1, 1]]))
    rows = np.tile([0.5, 1.0], (4000, 1)) @ span.vectors
    (found,) = ss.aggregate(rows, shape=span, source=SeededSource(1), **TARGET).warnings
    assert "coefficient 1 cannot be told from the upper end" in str(found)


@pytest.mark.filterwarnings("ignore::shufflesum.cautions.UninformativePlanWarning")
def test_estimates_that_say_nothing_are_called_so() -> None:
    rows = np.full((30, 50), 0.5)
    with pytest.warns(UninformativeEstimateWarning, match=r"of \d+ of 50 entries"):
        ss.aggregate(rows, mechanism="noisy-counts", epsilon=0.1, delta=1e-6, source=SeededSource(1))
    ball = ss.aggregate(
        np.full((30, 500), 0.01), domain=ss.L2Ball(500, 1.0), epsilon=0.05, delta=1e-6, source=SeededSource(1)
    )
    assert UninformativeEstimateWarning in kinds(ball.warnings)


@pytest.mark.processes
def test_commands_print_notes_and_programs_find_them_in_json(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.full((2000, 2), 7.0))
    options = ("--epsilon", "1", "--delta", "1e-3", "--bounds", "0:5", "--clip", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "shufflesum", "run", str(tmp_path / "rows.npy"), *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert {each["problem"] for each in json.loads(done.stdout)["estimate"]["warnings"]} == {
        "large-delta",
        "edge-of-bounds",
    }
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert len([note for note in notes if "1/users" in note or "upper end" in note]) == 2
