"""What a command that ends in an estimate prints, writes and draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from shufflesum.cli.options import console
from shufflesum.cli.printed import guarantee_of, print_estimate, shown_whole
from shufflesum.domain import Hashed
from shufflesum.errors import FileError, ParameterError
from shufflesum.estimate import CountEstimate, Estimate, GroupEstimate, HashedEstimate, Released, WordCounts
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, count_chart, estimate_chart, require_plots, save_chart
from shufflesum.tables import WRITABLE, StagedOutputs, estimate_to_json, write_estimate

__all__ = ["Results", "result_options"]

_F = TypeVar("_F", bound=Callable[..., object])
_Names = tuple[str, ...] | None


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
    """The options of `result_options`, checked, and the words that are asked about, if any are."""

    as_json: bool
    output: Path | None
    plot: Path | None
    confidence: float
    candidates: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Refuse a level that is none."""
        if not 0 < self.confidence < 1:
            raise ParameterError(
                "out-of-range", f"--confidence is {self.confidence}; it must lie strictly between 0 and 1"
            )

    def check_plan(self, plan: Plan) -> None:
        """Refuse words under a plan that lists its labels, and a picture of words that nobody named."""
        if self.candidates is not None and not isinstance(plan.domain, Hashed):
            raise ParameterError(
                "conflicting-arguments", f"--candidates is for words, and the plan is for {type(plan.domain).__name__}"
            )
        if self.candidates is None and isinstance(plan.domain, Hashed) and self.plot is not None:
            raise ParameterError(
                "missing-argument", "--plot draws the counts of words: give a file of them, --candidates words.txt"
            )

    @contextmanager
    def staged(self, *inputs: Path | None) -> Iterator[Callable[[Released, str, _Names], None]]:
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

            def write(estimate: Released, what: str, labels: _Names = None) -> None:
                if staged_output:
                    write_estimate(staged_output, estimate, self.confidence, labels)
                if staged_plot:
                    save_chart(_chart(estimate, what, self.confidence), staged_plot)

            yield write

    def answer(self, estimate: Released) -> Released:
        """The estimate, or the counts of the words that are asked about."""
        if isinstance(estimate, HashedEstimate) and self.candidates is not None:
            return estimate.counts_of(self.candidates)
        return estimate

    def show(self, estimate: Released, labels: _Names = None, names: _Names = None) -> None:
        """Print the estimate: for a program with labels, or for a person with names."""
        if self.as_json:
            document = {
                "plan": estimate.plan.summary(),
                "estimate": estimate_to_json(estimate, self.confidence, labels),
            }
            click.echo(json.dumps(document, allow_nan=False))
            return
        print_estimate(estimate, self.confidence, names)
        if self.output is None and not shown_whole(estimate):
            console.print("-o OUT writes all of them")
        for path in (self.output, self.plot):
            if path:
                console.print(f"wrote {path}", markup=False)


def _chart(estimate: Released, what: str, level: float) -> Any:
    promise = guarantee_of(estimate.plan) if estimate.guarantee_holds else "WITHOUT the plan's guarantee"
    subtitle = f"{estimate.users:,} users, {promise}"
    match estimate:
        case CountEstimate() | WordCounts():
            return count_chart(estimate, title=f"Private counts of {what}", subtitle=subtitle, level=level)
        case GroupEstimate():
            title = f"Private means of the groups of {what}"
            return estimate_chart(estimate, title=title, subtitle=subtitle, level=level)
        case Estimate():
            return estimate_chart(estimate, title=f"Private mean of {what}", subtitle=subtitle, level=level)
    raise ParameterError("missing-argument", "there is nothing to draw: name words with --candidates words.txt")


def _keep_inputs(output: Path | None, *inputs: Path | None) -> None:
    for path in inputs:
        if output and path and output.resolve() == path.resolve():
            raise FileError(
                "conflicting-arguments", f"{output}: is an input, and would be replaced; choose another output file"
            )
