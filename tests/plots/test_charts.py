from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum
from shufflesum.domains import L2Ball
from shufflesum.domains.l2_ball.estimate import L2BallEstimate
from shufflesum.errors import FileError, MissingExtraError, ParameterError
from shufflesum.estimate import EstimateTable, estimate_of
from shufflesum.mechanisms import OneBit
from shufflesum.plans import Plan
from shufflesum.plots import (
    DRAWABLE,
    error_chart,
    estimate_chart,
    rendered,
    require_plots,
    save_chart,
)
from shufflesum.testing import no_guarantee


def estimate(mean: Any, wider: Any = 0.0) -> Any:
    """Means without bounds, whose intervals reach as far as their level, and `wider`."""
    half = np.ravel(np.broadcast_to(wider, mean.shape))

    def table(level: float) -> EstimateTable:
        value = np.ravel(mean)
        ends = value - level - half, value + level + half
        none = np.full(value.size, "")
        return EstimateTable(
            "mean", level, value, value, *ends, np.ones(value.size), none, mean.shape, lambda places: []
        )

    domain = SimpleNamespace(numbers=None)
    return SimpleNamespace(to_table=table, prompt=None, columns=None, plan=SimpleNamespace(domain=domain))


def marks(spec: dict[str, Any]) -> list[str]:
    return [layer["mark"]["type"] for layer in spec["layer"]]


def rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    (data,) = spec["datasets"].values()
    return list(data)


def test_many_coordinates_are_a_band_and_a_line() -> None:
    spec = estimate_chart(estimate(np.arange(50.0)), title="A title", level=0.5).to_dict()
    assert marks(spec) == ["area", "line"]
    assert rows(spec)[7] == {"coordinate": 7, "mean": 7.0, "lower": 6.5, "upper": 7.5}
    assert spec["title"]["text"] == "A title"


def test_few_coordinates_are_points_with_bars() -> None:
    assert marks(estimate_chart(estimate(np.arange(12.0)), title="t").to_dict()) == ["rule", "point"]
    assert marks(estimate_chart(estimate(np.arange(13.0)), title="t").to_dict()) == ["area", "line"]
    assert marks(estimate_chart(estimate(np.asarray(3.0)), title="t").to_dict()) == ["rule", "point"]


def test_the_truth_is_a_dark_dashed_line_or_a_tick() -> None:
    spec = estimate_chart(estimate(np.arange(50.0)), truth=np.arange(50) + 0.25, title="t").to_dict()
    assert marks(spec) == ["area", "line", "line"]
    assert rows(spec)[3]["truth"] == 3.25
    encoding = spec["layer"][2]["encoding"]
    assert encoding["color"]["scale"] == {"domain": ["mean", "truth"], "range": ["#0072B2", "#1A1A1A"]}
    assert encoding["strokeDash"]["scale"]["range"][1] == [7, 5]
    few = estimate_chart(estimate(np.arange(3.0)), truth=[0, 1, 2], title="t").to_dict()
    assert marks(few) == ["rule", "point", "tick"]


def test_a_missing_estimate_is_a_gap() -> None:
    mean = np.arange(20.0)
    mean[4] = np.nan
    assert rows(estimate_chart(estimate(mean), title="t").to_dict())[4]["mean"] is None


def test_a_matrix_is_heat_maps_on_one_scale_of_means() -> None:
    mean = np.arange(20.0).reshape(4, 5)
    mean[1, 1] = np.nan
    spec = estimate_chart(estimate(mean, np.arange(5.0)), truth=mean + 10, title="t").to_dict()
    titles = [panel["title"]["text"] for panel in spec["hconcat"]]
    assert titles == ["Private estimate", "True mean", "Half of the 95 % interval"]
    domains = [panel["encoding"]["color"]["scale"].get("domain") for panel in spec["hconcat"]]
    assert domains == [[0.0, 29.0], [0.0, 29.0], None]
    even = estimate_chart(estimate(mean), title="t").to_dict()
    assert [panel["title"]["text"] for panel in even["hconcat"]] == ["Private estimate"]
    assert even["title"]["subtitle"] == ["95 % intervals: ± 0.950 everywhere"]


def test_a_row_or_a_tensor_is_drawn_in_flattened_order() -> None:
    for shape in ((1, 24), (2, 3, 4)):
        spec = estimate_chart(estimate(np.arange(24.0).reshape(shape)), title="t").to_dict()
        assert [row["mean"] for row in rows(spec)] == list(range(24))


def test_more_coordinates_than_pixels_are_thinned_and_the_subtitle_says_so() -> None:
    spec = estimate_chart(estimate(np.arange(10_000.0)), title="t", subtitle="s").to_dict()
    assert [row["coordinate"] for row in rows(spec)[:3]] == [0, 3, 6]
    assert spec["title"]["subtitle"] == ["s. One coordinate in 3 is shown"]


def test_a_truth_of_another_shape_is_refused() -> None:
    with refusal("wrong-shape", "3", "4", error=ParameterError):
        estimate_chart(estimate(np.zeros(4)), truth=np.zeros(3), title="t")


@pytest.mark.long
def test_every_format_is_written_and_html_needs_no_network(tmp_path: Path) -> None:
    chart = estimate_chart(estimate(np.arange(30.0)), truth=np.arange(30.0), title="Some words")
    for suffix in DRAWABLE:
        save_chart(chart, tmp_path / f"picture{suffix}")
    png = (tmp_path / "picture.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") > 1400  # twice the pixels of a 760 wide plot
    svg = (tmp_path / "picture.svg").read_text()
    assert svg.startswith("<svg")
    assert "Some words" in svg
    html = (tmp_path / "picture.html").read_text()
    assert "Some words" in html
    assert not re.search(r"""<(script|link)[^>]*(src|href)=["']https?:""", html)
    assert len(html) > 300_000  # the drawing library itself is inside


def test_an_unknown_suffix_or_an_unwritable_place_is_refused(tmp_path: Path) -> None:
    chart = estimate_chart(estimate(np.arange(3.0)), title="t")
    with refusal("unknown-file-type", "'.gif'", error=FileError):
        save_chart(chart, tmp_path / "x.gif")
    with refusal("unwritable", error=FileError):
        save_chart(chart, tmp_path / "none" / "x.svg")


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_without_the_libraries_the_extra_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_plots()
    chart = estimate_chart(estimate(np.zeros(3)), title="t")
    monkeypatch.setattr(importlib.util, "find_spec", lambda library: None if library == missing else object())
    with refusal("missing-extra", "install 'shufflesum[plots]'", error=MissingExtraError):
        save_chart(chart, tmp_path / "x.svg")
    monkeypatch.delitem(sys.modules, "altair")
    with refusal("missing-extra", "install 'shufflesum[plots]'", error=MissingExtraError):
        estimate_chart(estimate(np.zeros(3)), title="t")


def test_altair_is_loaded_with_the_first_chart_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shufflesum, "plots", shufflesum.plots)  # put back at the end, as all modules are
    for name in [name for name in sys.modules if name.startswith(("altair", "shufflesum.plots"))]:
        monkeypatch.delitem(sys.modules, name)
    fresh = importlib.import_module("shufflesum.plots")
    assert "altair" not in sys.modules
    fresh.error_chart({"1": {"noise": 1.0}}, title="t")
    assert "altair" in sys.modules


def test_the_parts_of_the_error_are_stacked_and_their_sum_is_written_above() -> None:
    parts = {
        "1": {"sampling": 0.25, "rounding": 0.5, "noise": 0.25},
        "10": {"sampling": 0.0, "rounding": 0.1, "noise": 0.2},
    }
    spec = error_chart(parts, title="t", subtitle="s").to_dict()
    assert marks(spec) == ["bar", "text"]
    labels = spec["datasets"][spec["layer"][1]["data"]["name"]]
    assert [row["label"] for row in labels] == ["1", "0.3"]


# Estimates of vectors with a bounded norm are drawn as means of arrays of the same shape are


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (5, "Coordinate"),
        (50, "Coordinate"),
        ((4, 6), "90 % intervals: ±"),
        ({"weight": (4, 6), "bias": (4,)}, "Coordinate"),
    ],
    ids=["few", "many", "matrix", "layers"],
)
def test_a_ball_is_drawn_as_arrays_of_its_shape_are(shape: Any, said: str) -> None:
    plan = Plan(L2Ball(shape, 2.0, seed=bytes(16)), OneBit(3, 0.5, 3.0), no_guarantee(users=10))
    ones = np.random.default_rng(1).integers(0, 31, plan.cells // 2)
    estimate = estimate_of(plan, 10, 0, np.stack([30 - ones, ones], axis=1).reshape(-1), None, 1)
    assert isinstance(estimate, L2BallEstimate)
    svg, _ = rendered(estimate_chart(estimate, title="t", level=0.9, truth=estimate.mean))
    assert said in svg
