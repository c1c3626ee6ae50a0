"""What a command that ends in an estimate prints, writes and draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
import numpy as np
from numpy.typing import ArrayLike
from rich.markup import escape
from rich.table import Table as RichTable

from shufflesum._rounding import upwards
from shufflesum.cli.options import console
from shufflesum.errors import FileError, ParameterError
from shufflesum.estimate import Estimate
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, estimate_chart, require_plots, save_chart
from shufflesum.tables import WRITABLE, StagedOutputs, estimate_to_json, write_estimate

__all__ = ["Results", "fallback", "guarantee_of", "print_estimate", "print_table", "result_options"]

_F = TypeVar("_F", bound=Callable[..., object])
_Names = tuple[str, ...] | None
_SHOWN = 12


def result_options(function: _F) -> _F:
    """Where the estimate goes, and at which level; the arguments of `Results`."""
    path = click.Path(path_type=Path)
    for option in (
        click.option("--confidence", type=float, default=0.95, show_default=True, help="Level of the intervals."),
        click.option("--plot", type=path, help=f"Draw the estimate: {', '.join(DRAWABLE)}."),
        click.option("-o", "--output", type=path, help=f"Write the estimate: {', '.join(WRITABLE)}."),
        click.option("--json", "as_json", is_flag=True, help="Print plan and estimate as one JSON object."),
    ):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Results:
    """The options of `result_options`, checked."""

    as_json: bool
    output: Path | None
    plot: Path | None
    confidence: float

    def __post_init__(self) -> None:
        """Refuse a level that is none."""
        if not 0 < self.confidence < 1:
            raise ParameterError(
                "out-of-range", f"--confidence is {self.confidence}; it must lie strictly between 0 and 1"
            )

    @contextmanager
    def staged(self, *inputs: Path | None) -> Iterator[Callable[[Estimate, str, _Names], None]]:
        """A function that writes and draws an estimate of something, with labels; files appear when the block ends.

        That they can be written is seen to at once, and that they are none of the inputs.
        """
        for path in (self.output, self.plot):
            _keep_inputs(path, *inputs)
        with StagedOutputs() as outputs:
            staged_output = outputs.stage(self.output, WRITABLE) if self.output else None
            if self.plot:
                require_plots()
            staged_plot = outputs.stage(self.plot, DRAWABLE) if self.plot else None

            def write(estimate: Estimate, what: str, labels: _Names = None) -> None:
                if staged_output:
                    write_estimate(staged_output, estimate, self.confidence, labels)
                if staged_plot:
                    chart = estimate_chart(
                        estimate,
                        title=f"Private mean of {what}",
                        subtitle=f"{estimate.users:,} users, "
                        + (guarantee_of(estimate.plan) if estimate.guarantee_holds else "WITHOUT the plan's guarantee"),
                        level=self.confidence,
                    )
                    save_chart(chart, staged_plot)

            yield write

    def show(self, estimate: Estimate, labels: _Names = None, names: _Names = None) -> None:
        """Print the estimate: for a program with labels, or for a person with names."""
        if self.as_json:
            document = {
                "plan": estimate.plan.summary(),
                "estimate": estimate_to_json(estimate, self.confidence, labels),
            }
            click.echo(json.dumps(document, allow_nan=False))
            return
        print_estimate(estimate, self.confidence, names)
        if self.output is None and estimate.mean.size > _SHOWN:
            console.print("-o OUT writes all coordinates")
        for path in (self.output, self.plot):
            if path:
                console.print(f"wrote {path}", markup=False)


def _keep_inputs(output: Path | None, *inputs: Path | None) -> None:
    for path in inputs:
        if output and path and output.resolve() == path.resolve():
            raise FileError(
                "conflicting-arguments", f"{output}: is an input, and would be replaced; choose another output file"
            )


def guarantee_of(plan: Plan) -> str:
    """Never without the conditions it rests on, where they are not the usual ones."""
    rounds = "" if plan.rounds == 1 else f" over {plan.rounds:,} rounds"
    honest = "" if plan.honest_fraction == 1 else f" if {plan.honest_users:,} users are honest"
    return f"epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)}{rounds}{honest}"


def fallback(plan: Plan) -> str:
    """What is left of the guarantee without a shuffler."""
    return "none" if plan.local_epsilon is None else f"epsilon {upwards(plan.local_epsilon)}"


def print_estimate(estimate: Estimate, level: float, names: tuple[str, ...] | None = None) -> None:
    """A few lines and a small table for a person."""
    plan = estimate.plan
    console.print(f"[bold]{estimate.users:,} users[/bold], each sending {plan.mechanism.describe(plan.domain)}")
    if estimate.broken is None:
        console.print(
            f"guarantee for one row: [bold]{guarantee_of(plan)}[/bold] ({plan.accountant} accountant); "
            f"if the shuffler colludes: {fallback(plan)}"
        )
    else:
        console.print(f"[bold]NO GUARANTEE[/bold]: {escape(estimate.broken)}")
    interval = estimate.confidence_interval(level)
    print_table(estimate.mean, estimate.standard_error, interval, estimate.sum, level, names)


def print_table(
    mean: ArrayLike,
    standard_error: ArrayLike,
    interval: Sequence[ArrayLike],
    total: ArrayLike,
    level: float,
    names: Sequence[str] | None = None,
    *,
    hint: str = "",
) -> None:
    """An estimate as a table for a person: all coordinates, or some of many."""
    columns = [np.asarray(column, dtype=np.float64).reshape(-1) for column in (mean, standard_error, *interval, total)]
    size = len(columns[0])
    table = RichTable(box=None, header_style="bold")
    for title in ("coordinate", "mean", "standard error", f"{100 * level:g}% interval", "sum"):
        table.add_column(title, justify="left" if title == "coordinate" else "right")
    shown = range(size) if size <= _SHOWN else [round(i * (size - 1) / 9) for i in range(10)]
    for i in shown:
        label = escape(names[i]) if names and len(names) == size else str(i)
        middle, error, lower, upper, whole = (column[i] for column in columns)
        table.add_row(label, f"{middle:.5g}", f"{error:.2g}", f"{lower:.5g} to {upper:.5g}", f"{whole:.6g}")
    console.print(table)
    if len(shown) < size:
        console.print(f"{len(shown)} of {size:,} coordinates shown{hint}")
