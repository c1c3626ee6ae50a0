"""One page for a simulation: the plan, the error to expect beside the observed one, and one try with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version

import numpy as np

from shufflesum._rounding import downwards, evenly, number
from shufflesum.estimate import CountEstimate, GroupEstimate, Released, WordCounts
from shufflesum.pages.pictures import estimate_svg
from shufflesum.pages.plan import plan_words, question, statement_html
from shufflesum.pages.render import page, picture, render
from shufflesum.pages.tables import Column, Table, estimate_table, table_html
from shufflesum.plots.names import entry_names
from shufflesum.simulation import Simulation, found

__all__ = ["simulation_page"]


def simulation_page(simulation: Simulation, *, title: str, made: datetime, command: str = "") -> str:
    """A page that holds all it shows; `command` is shown as it is."""
    plan, level = simulation.plan, simulation.level
    svg = estimate_svg(simulation.estimate, title="", truth=simulation.truth, level=level)
    figures = [(what[0].upper() + what[1:], value) for what, value in found(simulation).items()]
    body = render(
        "simulation.html",
        title=title,
        question=question(plan),
        data=f"{simulation.users:,} users, {simulation.data}",
        found=table_html(Table([Column("What", words=True), Column("Found", words=True)], figures)),
        repeats=f"{simulation.repeats:,}",
        picture=picture(svg, "The estimate of the first try with its intervals, and the truth"),
        table=table_html(estimate_table(simulation.estimate, level)),
        each=table_html(_by_entry(simulation)),
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
    estimate, truth = simulation.estimate, simulation.truth.reshape(-1)
    places = evenly(truth.size, most)
    rows = []
    for name, place in zip(_names(estimate, places), places, strict=True):
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


def _names(estimate: Released, places: Sequence[int]) -> list[str]:
    if isinstance(estimate, CountEstimate | WordCounts):
        return [estimate.names[place] for place in places]
    if isinstance(estimate, GroupEstimate):
        size = estimate.mean[0].size
        entries = entry_names(estimate, [place % size for place in places])
        groups = [estimate.names[place // size] for place in places]
        return [f"{group}, {entry}" if size > 1 else group for group, entry in zip(groups, entries, strict=True)]
    return entry_names(estimate, places)
