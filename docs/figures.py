"""Draws the figures of the documentation: `python docs/figures.py` (needs the extra `plots`; some seconds)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import altair as alt
import numpy as np

from shufflesum._search import bisect, geometric_mean
from shufflesum.plots import save_chart
from shufflesum.plots.look import BLACK, BLUE, GREEN, RED, WIDTH, as_data, config, heading
from shufflesum.privacy import local_epsilon
from shufflesum.privacy.randomized_response import blanket
from shufflesum.privacy.randomized_response.published import improved_noise_probability

SETTING: dict[str, Any] = {"levels": 3, "epsilon": 0.95, "delta": 1e-6}
DIMENSION = 100  # only the published formula depends on it
TITLE = "How much noise the same guarantee needs"
SUBTITLE = "One report per user, 4 values (k = 3), epsilon = 0.95, delta = 0.000001"
IMAGES = Path(__file__).parent / "images"
PAPER, CLONES, CERTIFIED = COLOURS = (RED, GREEN, BLUE)
DASHES = ([10, 5], [3, 4], [1, 0])
LABELS: tuple[
    tuple[str, list[str], int, tuple[int, int], Literal["left", "right"]], ...
] = (  # text, users where it stands, offset in pixels, side
    (PAPER, [f"Published formula, d = {DIMENSION}"], 10**6, (12, -12), "left"),
    (CLONES, ["Clones, closed form"], 10**6, (12, -12), "left"),
    (CERTIFIED, ["Certified here", "line: enough, circles: too little"], 10**6, (-16, 18), "right"),
)


def clones_epsilon(users: int, local: float, delta: float) -> float:
    """Return epsilon of shuffled reports, each `local`-private: the closed form of Feldman, McMillan, Talwar (2021).

    ln(1 + (e^e0 - 1)/(e^e0 + 1) (8 sqrt(e^e0 ln(4/delta)/n) + 8 e^e0/n)) for e0 <= ln(n/(16 ln(4/delta))); else e0.
    """
    log = math.log(4 / delta)
    if local > math.log(users / (16 * log)):
        return local
    growth = math.exp(local)
    return math.log1p((growth - 1) / (growth + 1) * (8 * math.sqrt(growth * log / users) + 8 * growth / users))


def clones_noise_probability(users: int, levels: int, epsilon: float, delta: float) -> float:
    """Return the least noise probability for which that closed form gives epsilon: it falls with the noise."""

    def enough(noise_probability: float) -> bool:
        local = local_epsilon(levels=levels, noise_probability=noise_probability)
        return clones_epsilon(users, local, delta) <= epsilon

    return bisect(enough, 1e-15, 1.0, tolerance=1e-9, middle=geometric_mean)[1]


def noise_by_users() -> alt.LayerChart:
    """Noise probability against number of users, three analyses of the same protocol."""
    lines: list[dict[str, Any]] = []
    for users in sorted({round(float(n)) for n in np.geomspace(1e3, 1e8, 61)} | {10**6}):
        curves = {
            PAPER: improved_noise_probability(dimension=DIMENSION, users=users, **SETTING),
            CLONES: clones_noise_probability(users=users, **SETTING),
            CERTIFIED: blanket.smallest_noise_probability(users, **SETTING),
        }
        # above 1 there is no such protocol
        lines += [{"users": users, "noise": y, "analysis": name} for name, y in curves.items() if y <= 1]
    circles = [
        {"users": users, "noise": blanket.noise_probability_lower_bound(users, **SETTING), "analysis": CERTIFIED}
        for users in np.geomspace(1e3, 1e8, 11).round().astype(int).tolist()
    ]
    x = alt.X(
        "users:Q",
        title="Users",
        scale=alt.Scale(type="log", domain=[1e3, 1e8], nice=False),
        axis=alt.Axis(values=[10.0**i for i in range(3, 9)], format=",.0f", labelFlush=False),
    )
    y = alt.Y(
        "noise:Q",
        title="Noise probability",
        scale=alt.Scale(type="log", domain=[1e-6, 1], nice=False),
        axis=alt.Axis(values=[10.0**i for i in range(-6, 1)], format="~r"),
    )
    colour = alt.Color("analysis:N", scale=alt.Scale(domain=COLOURS, range=COLOURS), legend=None)
    dash = alt.StrokeDash("analysis:N", scale=alt.Scale(domain=COLOURS, range=DASHES), legend=None)
    layers = [
        alt.Chart(as_data(lines)).mark_line(strokeWidth=3.5).encode(color=colour, strokeDash=dash),
        alt.Chart(as_data(circles)).mark_point(size=170, strokeWidth=2.5, opacity=1, color=BLACK),
    ]
    for name, text, users, (right, down), align in LABELS:
        place = [row for row in lines if row["analysis"] == name and row["users"] == users]
        label = alt.Chart(as_data(place)).mark_text(
            align=align, dx=right, dy=down, fontSize=18, text=text, lineHeight=23
        )
        layers.append(label.encode(color=colour))
    return alt.LayerChart(
        layer=layers,
        encoding={"x": x, "y": y},
        width=WIDTH,
        height=480,
        title=heading(TITLE, SUBTITLE),
        config=config(),
    )


def main() -> None:
    """Draw all figures."""
    IMAGES.mkdir(exist_ok=True)
    chart = noise_by_users()
    for kind in ("png", "svg"):
        save_chart(chart, IMAGES / f"noise_by_users.{kind}")


if __name__ == "__main__":
    main()
