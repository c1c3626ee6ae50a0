"""Points with intervals under their names, one panel for each unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shufflesum._format import percent
from shufflesum.plots.axes import needs_log, symlog_axis
from shufflesum.plots.look import BLACK, BLUE, WIDTH, Rows, alt, as_data, config, heading

_SHORT, _FEW = 12, 12  # letters of a name, and names, that stand beside each other
_ROW, _LETTER = 26, 8  # pixels of a name that lies, and of one letter
_HEIGHT = 220
_LABEL_WIDTH = 460
_AXIS = 90  # pixels beside a panel that stands


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows of label, value, lower, upper, and perhaps truth and note; numbers may be None."""

    rows: Rows
    title: str = ""


def panels_chart(
    panels: Sequence[Panel], *, axis: str, level: float, title: str, subtitle: Sequence[str]
) -> alt.VConcatChart | alt.ConcatChart:
    """Each panel on a scale of its own, logarithmic where parts of it would vanish; names lie where they are long."""
    rows = [row for panel in panels for row in panel.rows]
    lying = max(len(row["label"]) for row in rows) > _SHORT or max(len(panel.rows) for panel in panels) > _FEW
    titled = panels[-1:] if lying else panels  # below each other one axis says it for all
    drawn = [_panel(panel, axis if panel in titled else None, lying, len(panels)) for panel in panels]
    notes = [*subtitle, f"{percent(level)} % intervals" + ("; black: the truth" if "truth" in rows[0] else "")]
    if len(panels) > 1:
        notes[-1] += "; each panel has a scale of its own"
    if any(logarithmic for _, logarithmic in drawn):
        notes.append("Logarithmic scale, linear around 0")
    charts = [chart for chart, _ in drawn]
    if lying:
        words = heading(title, notes, WIDTH + _LETTER * max(len(row["label"]) for row in rows))
        return alt.VConcatChart(vconcat=charts, spacing=16, title=words, config=config())
    columns = max(1, min(3, len(charts), WIDTH // max(chart.width for chart in charts)))
    words = heading(title, notes, sum(chart.width + _AXIS for chart in charts[:columns]))
    return alt.ConcatChart(concat=charts, columns=columns, spacing=24, title=words, config=config())


def _panel(panel: Panel, axis: str | None, lying: bool, beside: int) -> tuple[alt.LayerChart, bool]:
    rows = panel.rows
    known = [row for row in rows if row["value"] is not None and row["lower"] is not None and row["upper"] is not None]
    logarithmic = needs_log(*([row[name] for row in known] for name in ("value", "lower", "upper")))
    scale, look = alt.Scale(zero=False), alt.Axis(tickCount=5, format=",f")
    if logarithmic:
        numbers = [row[name] for row in known for name in ("value", "lower", "upper", "truth") if name in row]
        scale, look = symlog_axis(numbers, [(row["upper"] - row["lower"]) / 2 for row in known])
    along, across = ("x", "y") if lying else ("y", "x")
    channel: Any = alt.X if lying else alt.Y
    named: Any = alt.Y if lying else alt.X

    def value(field: str) -> dict[str, Any]:
        return {along: channel(f"{field}:Q", title=axis, scale=scale, axis=look)}

    names = alt.Axis(labelAngle=0, labelLimit=_LABEL_WIDTH, labelOverlap=False, ticks=False, grid=lying, domain=False)
    labels = [row["label"] for row in rows]
    base = alt.Chart().encode(**{across: named("label:N", sort=labels, title=None, axis=names)})
    until = {"x2": alt.X2("upper:Q")} if lying else {"y2": alt.Y2("upper:Q")}
    layers = [
        base.mark_rule(strokeWidth=3, color=BLUE).encode(**value("lower"), **until),
        base.mark_point(filled=True, size=80, opacity=1, color=BLUE).encode(**value("value")),
    ]
    if any("truth" in row for row in rows):
        layers.append(base.mark_tick(thickness=3, size=18, opacity=1, color=BLACK).encode(**value("truth")))
    if any(row.get("note") for row in rows):
        place = {along: (alt.XValue if lying else alt.YValue)(4 if lying else _HEIGHT - 8)}
        words: dict[str, Any] = {"align": "left"} if lying else {}
        layers.append(base.mark_text(fontSize=13, color="#555555", **words).encode(text=alt.Text("note:N"), **place))
    # Panels that stand are as wide as their names need; a single one takes all the room there is.
    letters = max(len(label) for label in labels)
    width = WIDTH if lying or beside == 1 else max(150, min(WIDTH, (24 + _LETTER * letters) * len(rows)))
    chart = alt.LayerChart(
        data=as_data(rows),
        layer=layers,
        width=width,
        height=_ROW * len(rows) if lying else (_HEIGHT if beside > 1 else 1.7 * _HEIGHT),
        # Over the plot alone: over its axis, too, titles stand higher where a number is at the very top.
        title=alt.TitleParams(panel.title, fontSize=16, frame="group", offset=12, limit=max(width, 240))
        if panel.title
        else alt.Undefined,
    )
    return chart, logarithmic
