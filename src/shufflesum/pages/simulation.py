"""One page for a simulation: the plan, the error to expect beside the observed one, and one try with the truth."""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version

import numpy as np

from shufflesum._format import counted, downwards, evenly, number
from shufflesum.pages.pieces import (
    Column,
    Table,
    estimate_svg,
    estimate_table,
    html_table,
    plan_words,
    question,
    statement_html,
)
from shufflesum.pages.render import page, picture, render
from shufflesum.simulation import Simulation, found


def simulation_page(simulation: Simulation, *, title: str, made: datetime, command: str = "") -> str:
    """A page that holds all it shows; `command` is shown as it is."""
    plan, level = simulation.plan, simulation.level
    svg = estimate_svg(simulation.estimate, title="", truth=simulation.truth, level=level)
    figures = [(what[0].upper() + what[1:], value) for what, value in found(simulation).items()]
    body = render(
        "simulation.html",
        title=title,
        question=question(plan),
        data=f"{counted(simulation.users, 'user')}, {simulation.data}",
        found=html_table(Table([Column("What", words=True), Column("Found", words=True)], figures)),
        repeats=f"{simulation.repeats:,}",
        picture=picture(svg, "The estimate of the first try with its intervals, and the truth"),
        table=html_table(estimate_table(simulation.estimate, level)),
        each=html_table(_by_entry(simulation)),
        words=plan_words(plan),
        command=command,
        again="Noise is drawn anew each time; made-up data is the same for the same seed.",
        statement=None if plan.accountant == "none" else statement_html(plan),
        version=version("shufflesum"),
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        plan=plan.id,
    )
    return page(f"{title} (shufflesum)", body)


def _by_entry(simulation: Simulation, most: int = 100) -> Table:
    """Truth, errors and intervals of each entry, of many the evenly spaced ones."""
    truth = simulation.truth.reshape(-1)
    places = evenly(truth.size, most)
    rows = []
    for name, place in zip(simulation.estimate.to_table().labels(places), places, strict=True):
        said, seen = simulation.predicted_each[place], simulation.observed_each[place]
        held = simulation.held_each[place]
        rows.append(
            [
                name,
                number(truth[place], said),
                number(said, said),
                number(seen, said),
                "" if np.isnan(held) else f"{downwards(100 * float(held), 4)} %",
            ]
        )
    heads = [Column("Entry", words=True), *map(Column, ("Truth", "Error bars say", "Observed", "Intervals that held"))]
    note = "" if len(rows) == truth.size else f"{len(rows)} of {truth.size:,} entries are shown, evenly spaced."
    return Table(heads, rows, note)
