from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.estimate.decoded import Sums, count_estimate, group_estimate, hashed_estimate
from tests.refusals import refusal

from shufflesum.domains import Arrays, Categories, GroupBy, OpenVocabulary
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.errors import ParameterError
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.plans import Plan
from shufflesum.plots import estimate_chart, rendered
from shufflesum.testing import no_guarantee


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec["datasets"][spec["data"]["name"]])


def marks(spec: dict[str, Any]) -> list[str]:
    return [layer["mark"]["type"] for layer in spec["layer"]]


def test_counts_are_bars_with_intervals_under_their_labels() -> None:
    estimate = count_estimate(Categories(["yes", "no"]), [60, 30], 70, 40, 0.25)
    spec = estimate_chart(estimate, title="A title", subtitle="s", truth=[52, 18], level=0.9).to_dict()
    assert marks(spec) == ["bar", "rule", "rule", "point", "tick"]
    low, high = estimate.count_interval(0.9)
    assert rows_of(spec)[0] == {"label": "yes", "value": 50, "lower": low[0], "upper": high[0], "truth": 52}
    assert spec["layer"][0]["encoding"]["x"]["field"] == "label"
    assert spec["title"] == {"text": "A title", "subtitle": ["s", "90 % intervals; black: the truth"]}
    svg, _ = rendered(estimate_chart(estimate, title="t"))
    for words in ("yes", "no", "95 % interval", "Users"):
        assert words in svg


@pytest.mark.parametrize("labels", [["a very long label", "b"], [str(i) for i in range(13)]])
def test_long_or_many_labels_lie_on_their_side(labels: list[str]) -> None:
    estimate = count_estimate(Categories(labels), np.arange(len(labels)), 100)
    spec = estimate_chart(estimate, title="t").to_dict()
    assert spec["layer"][0]["encoding"]["y"]["field"] == "label"
    assert spec["layer"][0]["encoding"]["y"]["sort"] == labels


def test_of_many_labels_the_largest_are_shown_and_the_subtitle_says_so() -> None:
    counts = np.random.default_rng(1).permutation(1000)
    spec = estimate_chart(count_estimate(Categories(1000), counts, 10), title="t", subtitle="s").to_dict()
    assert [row["value"] for row in rows_of(spec)] == list(range(999, 959, -1))
    assert spec["title"]["subtitle"][0] == "s"
    assert "40 of 1,000" in spec["title"]["subtitle"][1]


def test_counts_of_another_number_than_the_truth_are_refused() -> None:
    with refusal("wrong-shape", "(3,)", "(2,)", error=ParameterError):
        estimate_chart(count_estimate(Categories(2), [1, 2], 3), truth=[1, 2, 3], title="t")


def test_words_are_drawn_once_they_are_named() -> None:
    estimate = hashed_estimate(OpenVocabulary(5, 3, bytes(16)), np.arange(15).reshape(3, 5), 20)
    spec = estimate_chart(estimate.counts_of(["some", "words"]), title="t").to_dict()
    assert [row["label"] for row in rows_of(spec)] == ["some", "words"]
    with refusal("missing-argument", "counts_of", error=ParameterError):
        estimate_chart(estimate, title="t")


def test_few_means_of_named_columns_stand_under_their_names() -> None:
    plan = Plan(Arrays(2, (0, 1), ["height", "age"]), RandomizedResponse(1, 1, 0.0), no_guarantee(1))
    spec = estimate_chart(Estimate(plan, 4, 0, np.array([1, 1, 2, 0])), title="t").to_dict()
    assert [row["coordinate"] for row in rows_of(spec)] == ["height", "age"]


def grouped(shape: Any, groups: int = 3, **box: Any) -> Any:
    size = int(np.prod(shape, dtype=int))
    domain = GroupBy([f"group {i}" for i in range(groups)], Arrays(shape, **box))
    counts = np.linspace(100, 200, groups)
    counts[1] = 1.0
    return group_estimate(domain, Sums(counts, np.outer(counts, np.linspace(0, 1, size)), 4.0, 9.0))


def test_single_numbers_of_groups_are_bars_and_too_few_users_are_named() -> None:
    spec = estimate_chart(grouped(()), title="t").to_dict()
    assert marks(spec) == ["bar", "rule", "rule", "point", "text"]
    assert [(row["label"], row["note"]) for row in rows_of(spec)] == [
        ("group 0", ""),
        ("group 1", "too few users"),
        ("group 2", ""),
    ]
    assert rows_of(spec)[1]["value"] is rows_of(spec)[1]["upper"] is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "kinds"),
    [(50, ["area", "line", "line"]), ((2, 3, 4), ["area", "line", "line"])],
)
def test_arrays_of_groups_are_small_plots_on_one_scale(shape: Any, kinds: list[str]) -> None:
    estimate = grouped(shape)
    spec = estimate_chart(estimate, title="t", truth=np.zeros_like(estimate.mean)).to_dict()
    assert [plot["title"]["text"] for plot in spec["concat"]] == ["group 0", "group 1", "group 2"]
    assert [plot["title"]["subtitle"] for plot in spec["concat"]] == ["100 users", "too few users", "200 users"]
    assert [marks(plot) for plot in spec["concat"]] == [kinds] * 3
    scales = [layer["encoding"]["y"]["scale"]["domain"] for plot in spec["concat"] for layer in plot["layer"]]
    assert all(scale == scales[0] for scale in scales)
    assert rendered(estimate_chart(estimate, title="t"))[1].startswith(b"\x89PNG")


def test_of_a_few_entries_each_has_a_panel_with_the_groups_side_by_side() -> None:
    estimate = grouped(2, columns=["age", "height"])
    spec = estimate_chart(estimate, title="t", truth=np.zeros((3, 2))).to_dict()
    assert [plot["title"]["text"] for plot in spec["vconcat"]] == ["age", "height"]
    data = spec["datasets"][spec["vconcat"][1]["data"]["name"]]
    assert [row["label"] for row in data] == ["group 0 (100)", "group 1 (1)", "group 2 (200)"]
    assert [row["note"] for row in data] == ["", "too few users", ""]
    assert [row["value"] for row in data] == [1.0, None, 1.0]
    assert marks(spec["vconcat"][0]) == ["rule", "point", "tick", "text"]
    assert rendered(estimate_chart(estimate, title="t"))[1].startswith(b"\x89PNG")


def test_matrices_of_groups_are_heat_maps_in_the_same_colours() -> None:
    estimate = grouped((4, 5))
    for truth in (None, np.zeros((3, 4, 5))):
        spec = estimate_chart(estimate, title="t", truth=truth).to_dict()
        assert [plot["title"]["text"] for plot in spec["concat"]][:: 1 if truth is None else 2] == list(estimate.names)
        drawn = [plot["encoding"]["color"]["scale"]["domain"] for plot in spec["concat"] if "encoding" in plot]
        assert len(drawn) == (2 if truth is None else 5)  # one group has too few users
        assert all(domain == [0.0, 1.0] for domain in drawn)
    svg, _ = rendered(estimate_chart(estimate, title="t"))
    assert "too few users" in svg


def test_of_many_groups_the_largest_are_shown() -> None:
    spec = estimate_chart(grouped(13, groups=30), title="t").to_dict()
    assert len(spec["concat"]) == 20
    assert "20 of 30" in spec["title"]["subtitle"][0]
    assert spec["concat"][-1]["title"]["text"] == "group 29"
    with refusal("wrong-shape", error=ParameterError):
        estimate_chart(grouped(3), truth=np.zeros(3), title="t")
