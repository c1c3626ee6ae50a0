"""Names instead of numbers, a panel for each unit, logarithmic axes where parts would vanish, rounds over time."""

from __future__ import annotations

import xml.dom.minidom
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.estimate.decoded import count_estimate, hashed_estimate, plan_of
from tests.refusals import refusal

from shufflesum.domains import Arrays, Categories, OpenVocabulary
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.errors import ParameterError
from shufflesum.plots import estimate_chart, rendered_svg, rounds_chart, save_chart
from shufflesum.plots.panels import by_bounds, by_unit, needs_log


class Known:
    """Means between 0 and 1 with a standard error."""

    def __init__(self, mean: Any, error: Any = 0.01) -> None:
        self.mean = np.asarray(mean, dtype=np.float64)
        self.error = np.broadcast_to(error, self.mean.shape)

    def variance(self, target: str) -> Any:
        return self.error**2

    def interval(self, tail: float, target: str) -> Any:
        return self.mean - 2 * self.error, self.mean + 2 * self.error


def means(mean: Any, bounds: Any = (0.0, 1.0), columns: Any = None, number: int = 1) -> Estimate:
    domain = Arrays(len(mean), bounds, columns)
    return Estimate(plan_of(domain, Known(mean)), 100, 0, np.zeros(1, dtype=np.int64), round_number=number)


def rows_of(spec: dict[str, Any], panel: dict[str, Any]) -> list[dict[str, Any]]:
    data = panel["data"] if "data" in panel else spec["data"]  # one panel alone hands its data up
    return list(spec["datasets"][data["name"]])


def test_columns_with_other_bounds_have_panels_of_their_own() -> None:
    estimate = means([0.5, 0.1, 0.5], ([0, 0, 0], [120, 500_000, 100]), ["age", "income", "weight"])
    spec = estimate_chart(estimate, title="t", truth=[1, 2, 3]).to_dict()
    named = [[row["label"] for row in rows_of(spec, panel)] for panel in spec["concat"]]
    assert named == [["age"], ["income"], ["weight"]]
    assert rows_of(spec, spec["concat"][1])[0]["value"] == 50_000
    assert "each panel has a scale of its own" in spec["title"]["subtitle"][-1]
    assert "black: the truth" in spec["title"]["subtitle"][-1]


def test_columns_of_one_unit_share_an_axis() -> None:
    assert by_unit(np.array([0.0, 0.0, 10.0]), np.array([1.0, 8.0, 14.0])) == [[0, 1], [2]]
    assert by_unit(np.array([1900.0, 0.0]), np.array([2100.0, 100.0])) == [[0], [1]]
    assert "layer" in estimate_chart(means([0.5, 0.6], ([0, 0], [1, 4])), title="t").to_dict()
    assert "layer" in estimate_chart(means([0.5, 0.6], (0, 10), ["rooms", "floors"]), title="t").to_dict()
    assert by_bounds(np.array([0.0, 50.0, 0.0]), np.array([9.0, 230.0, 9.0])) == [[0, 2], [1]]


def test_names_too_long_to_stand_beside_each_other_lie() -> None:
    names = ["age", "visits", "number of children living in the household", "x", "years"]
    (panel,) = estimate_chart(means([0.5] * 5, columns=names), title="t").to_dict()["vconcat"]
    assert "y" in panel["layer"][0]["encoding"]


def test_titles_are_folded_to_the_width_of_the_picture() -> None:
    long = "5,000 users, made up: numbers normal (around 40 % of the way through the bounds); epsilon 0.99, delta 8e-7"
    estimate = means([0.5, 0.1], ([0, 0], [120, 500_000]), ["age", "income"])
    title = estimate_chart(estimate, title="t " * 30, subtitle=long).to_dict()["title"]
    assert len(title["text"]) == 2  # 60 letters where 48 have room
    assert max(map(len, title["subtitle"])) < 80
    assert long.split() == " ".join(title["subtitle"]).split()[: len(long.split())]


def test_many_coordinates_of_two_units_are_lines_above_each_other_or_dots() -> None:
    blocks = np.where(np.arange(60) < 30, 1.0, 1000.0)
    spec = estimate_chart(means(np.full(60, 0.5), (np.zeros(60), blocks)), title="t").to_dict()
    assert [[layer["mark"]["type"] for layer in panel["layer"]] for panel in spec["vconcat"]] == [["area", "line"]] * 2
    mixed = np.where(np.arange(60) % 2, 1.0, 1000.0)
    spec = estimate_chart(means(np.full(60, 0.5), (np.zeros(60), mixed)), title="t").to_dict()
    assert [[layer["mark"]["type"] for layer in panel["layer"]] for panel in spec["vconcat"]] == [["rule", "point"]] * 2
    assert [row["coordinate"] for row in rows_of(spec, spec["vconcat"][0])] == list(range(0, 60, 2))


def test_up_to_forty_names_have_a_line_each_and_long_axes_some_of_them() -> None:
    names = [f"column {i}" for i in range(100)]
    spec = estimate_chart(means(np.linspace(0.4, 0.6, 40), columns=names[:40]), title="t").to_dict()
    (panel,) = spec["vconcat"]
    assert [row["label"] for row in rows_of(spec, panel)] == names[:40]
    svg = rendered_svg(estimate_chart(means(np.linspace(0.4, 0.6, 100), columns=names), title="t"))
    for name in ("column 0", "column 50", "column 99"):
        assert f">{name}<" in svg
    assert ">Coordinate<" not in svg


def test_names_that_are_expressions_stay_names() -> None:
    names = [f"<b>'](alert({i}))//\\\"" for i in range(50)]
    svg = rendered_svg(estimate_chart(means(np.full(50, 0.5), columns=names), title="t"))
    assert "&lt;b&gt;&#39;](" in svg or "&lt;b&gt;'](" in svg


def test_counts_that_would_vanish_are_points_on_a_logarithmic_axis() -> None:
    estimate = count_estimate(Categories(["much", "little", "nothing"]), [100_000, 300, 0], 100_300, 40)
    spec = estimate_chart(estimate, title="t").to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rule", "rule", "point"]
    scale = spec["layer"][0]["encoding"]["y"]["scale"]
    assert scale["type"] == "symlog"
    assert scale["domain"][0] < 0
    assert scale["domain"][1] > 100_000
    assert "Logarithmic" in spec["title"]["subtitle"][-1]
    even = estimate_chart(count_estimate(Categories(2), [100, 90], 190, 40), title="t").to_dict()
    assert even["layer"][0]["mark"]["type"] == "bar"


def test_what_cannot_be_told_from_nothing_needs_no_logarithm() -> None:
    assert needs_log([2000.0, 10.0], [1990.0, 9.0], [2010.0, 11.0])
    assert not needs_log([1000.0, 10.0], [990.0, 9.0], [1010.0, 11.0])  # a few pixels are seen
    assert not needs_log([2000.0, 10.0], [1990.0, -1.0], [2010.0, 21.0])
    assert not needs_log([1000.0], [990.0], [1010.0])


def test_rounds_are_drawn_over_time_in_their_order() -> None:
    estimates = [means([0.1 * number, 0.5], columns=["rising", "flat"], number=number) for number in (3, 1, 2)]
    spec = rounds_chart(estimates, title="t", subtitle="s").to_dict()
    assert [plot["title"]["text"] for plot in spec["concat"]] == [["rising"], ["flat"]]
    assert spec["concat"][0]["layer"][0]["encoding"]["x"]["scale"]["zero"] is False
    rows = rows_of(spec, spec["concat"][0])
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert [row["value"] for row in rows] == pytest.approx([0.1, 0.2, 0.3])
    counts = [count_estimate(Categories(40), np.arange(40), 100, 10)]
    spec = rounds_chart(counts, title="t").to_dict()
    assert [plot["title"]["text"] for plot in spec["concat"]] == [[str(place)] for place in range(28, 40)]
    assert "12 of 40" in spec["title"]["subtitle"][-1]


def test_rounds_without_words_or_of_several_plans_are_refused() -> None:
    with refusal("missing-argument", error=ParameterError):
        rounds_chart([], title="t")
    with refusal("missing-argument", error=ParameterError):
        rounds_chart([hashed_estimate(OpenVocabulary(5, 3, bytes(16)), np.ones((3, 5), dtype=np.int64), 15)], title="t")
    other = means([0.5])
    other.plan.id = "another"
    with refusal("conflicting-arguments", error=ParameterError):
        rounds_chart([means([0.5]), other], title="t")


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_hostile_names_end_neither_the_page_nor_the_process(tmp_path: Path, suffix: str) -> None:
    labels = ["</script><script>alert(1)</script>", "a\x00b\x0b", "\u202eright", "\ufdd0", "w" * 10_000]
    chart = estimate_chart(count_estimate(Categories(labels), [5, 4, 3, 2, 1], 15, 4), title="</script>\x00")
    save_chart(chart, tmp_path / f"x{suffix}")
    text = (tmp_path / f"x{suffix}").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "w" * 100 not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    if suffix == ".svg":
        xml.dom.minidom.parseString(text)
    else:
        assert "\\u003c/script>\\u003cscript>alert(1)" in text
