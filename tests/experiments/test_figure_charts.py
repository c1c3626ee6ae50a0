from typing import Any

import pytest

from experiments.charts import beats_chart, panel_chart, parts_chart, sweep_chart
from shufflesum.plots import rendered


def marks(spec: dict[str, Any]) -> list[str]:
    return [layer["mark"]["type"] for layer in spec["layer"]]


PANEL: dict[str, Any] = {"symbol": "t", "axis": "Reports t", "repeats": 3, "title": "A panel", "subtitle": ["s", "s2"]}


def panel_rows() -> list[dict[str, Any]]:
    measured = {"measured": 0.5, "predicted": 0.4, "measured, paper's metric": 0.3, "published bound": 2.0}
    return [
        {"t": 1, "possible": True, "standard error": 0.1, **measured},
        {"t": 2, "possible": True, "standard error": None, **measured},
        {"t": 5, "possible": False},
    ]


def sweep_rows() -> list[dict[str, Any]]:
    return [
        {"n": n, "line": line, "possible": possible, **({"predicted": 0.1, "measured": 0.2} if possible else {})}
        for n in (100, 400)
        for line, possible in (*((f"line {i}", True) for i in range(6)), ("the paper's", n > 100))
    ]


def drawn(chart: Any) -> dict[str, Any]:
    """The chart's document, checked against the schema, without the key, which comes first."""
    document: dict[str, Any] = chart.to_dict()
    return {**document, "vconcat": document["vconcat"][1:]}


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_panel_has_bars_or_on_a_logarithmic_axis_points(logarithmic: bool) -> None:
    spec = drawn(
        panel_chart(panel_rows(), logarithmic=logarithmic, curves={"a curve": [{"t": 1, "error": 1}]}, **PANEL)
    )
    kinds = marks(spec["vconcat"][0])
    assert kinds == ["rect", "text", "point" if logarithmic else "bar", "line", "line", "line", "errorbar", "point"]
    possible = spec["datasets"][spec["data"]["name"]]
    assert [(row["t"], row["high"]) for row in possible] == [(1, 0.7), (2, 0.5)]
    assert possible[0]["low"] == pytest.approx(0.3)


def test_an_error_bar_that_would_reach_below_the_axis_ends_on_it() -> None:
    rows = [{**row, "standard error": 1.0} for row in panel_rows()]
    for logarithmic, lowest in ((False, 0.0), (True, 0.05)):
        spec = drawn(panel_chart(rows, logarithmic=logarithmic, curves={}, **PANEL))
        assert {row["low"] for row in spec["datasets"][spec["data"]["name"]]} == {lowest}


def test_an_impossible_value_is_a_grey_column_that_says_so() -> None:
    svg, png = rendered(panel_chart(panel_rows(), logarithmic=False, curves={}, **PANEL))
    assert svg.count("published γ ≥ 1: impossible") == 1
    assert png.startswith(b"\x89PNG")
    possible = [row for row in panel_rows() if row["possible"]]
    assert "impossible" not in rendered(panel_chart(possible, logarithmic=False, curves={}, **PANEL))[0]


def test_a_sweep_is_a_line_and_points_for_everything_that_is_compared() -> None:
    lines = list(dict.fromkeys(row["line"] for row in sweep_rows()))
    chart = sweep_chart(sweep_rows(), symbol="n", axis="Users n", lines=lines, title="t", subtitle=["s"])
    (spec,) = drawn(chart)["vconcat"]
    assert marks(spec) == ["rect", "text", "line", "point"]
    svg, _ = rendered(chart)
    assert all(line in svg for line in lines)
    assert svg.count('aria-roledescription="line mark"') == len(lines)
    assert "NaN" not in svg


def test_a_sweep_over_one_line_has_a_second_plot_and_a_key_of_what_is_drawn() -> None:
    lines = list(dict.fromkeys(row["line"] for row in sweep_rows()))
    rows = [
        {**row, "predicted over line 1": 1.5, "measured over line 1": 2.5} if row["possible"] else row
        for row in sweep_rows()
        if row["line"] in ("line 1", "line 2", "the paper's")
    ]
    chart = sweep_chart(rows, symbol="n", axis="Users n", lines=lines, title="t", subtitle=["s"], over="line 1")
    spec = drawn(chart)
    above, below = spec["vconcat"]
    assert marks(above) == marks(below) == ["rect", "text", "line", "point"]
    points = {row.get("point over line 1") for row in spec["datasets"][spec["data"]["name"]]}
    assert points == {2.5, None}
    svg, _ = rendered(chart)
    assert "Times that of a line 1" in svg
    assert "line 2" in svg
    assert "line 3" not in svg


def test_the_parts_of_the_error_are_stacked_above_both_metrics() -> None:
    columns = {f"{kind}{metric}": 1.0 for kind in ("predicted", "measured") for metric in ("", ", paper's metric")}
    rows = [{"t": t, "sampling": 0.25, "rounding": 0.5, "noise": 0.25, **columns} for t in (1, 10)]
    both = drawn(parts_chart(rows, title="t", subtitle=["s"]))
    assert [marks(plot) for plot in both["vconcat"]] == [["bar", "text"], ["line", "point", "line", "point"]]


def test_beats_are_bands_with_the_lines_above_them() -> None:
    row = {"sample": 0, "truth": 0.5, "estimate": 0.4, "lower": 0.3, "upper": 0.6}
    one = drawn(beats_chart({"The paper's": [row], "Ours": [row]}, [], title="t", subtitle=["s"]))
    assert [marks(plot) for plot in one["vconcat"]] == 2 * [["area", "line", "line"]]
    classes = {"Ours": [{**row, "class": "a"}, {**row, "class": "b"}]}
    (two,) = drawn(beats_chart(classes, ["a", "b"], title="t", subtitle=["s"]))["vconcat"]
    assert marks(two) == ["area", "area", "line", "line", "line", "line"]
