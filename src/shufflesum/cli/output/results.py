"""What a command that ends in an estimate prints, writes and draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from shufflesum._format import counted
from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.cli.options.common import option_group
from shufflesum.cli.output.printed import (
    command_line,
    console,
    guarantee_of,
    print_estimate,
    print_quantiles,
    shown_whole,
)
from shufflesum.errors import FileError, ParameterError
from shufflesum.estimate import QUANTILE_BINS, AnyEstimate, BaseEstimate, Quantile, Top
from shufflesum.pages import report_page, require_pages
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, estimate_chart, require_plots, save_chart
from shufflesum.tables import WRITABLE, PathOrUrl, StagedOutputs, estimate_to_json, write_estimate

_Names = tuple[str, ...] | None

REPORT_HELP = "Write one page with question, guarantee, result, statement and this command (.html)."


@dataclass(frozen=True, slots=True)
class Results:
    """The options of `result_options`, checked, words that are asked about, and whether the command draws noise."""

    json: bool
    output: Path | None
    plot: Path | None
    report: Path | None
    confidence: float
    quantiles: tuple[float, ...] = ()
    top: int | None = None
    asked: Sequence[str] | None = None
    draws_noise: bool = False

    def __post_init__(self) -> None:
        """Refuse a level that is none."""
        if not 0 < self.confidence < 1:
            raise ParameterError(
                "out-of-range", f"--confidence is {self.confidence}; it must lie strictly between 0 and 1"
            )

    def check_plan(self, plan: Plan) -> None:
        """Refuse words under a plan that lists its labels, and a picture of words that nobody named."""
        if self.quantiles and plan.domain.bin_edges is None:
            raise ParameterError(
                "conflicting-arguments",
                "--quantiles are of numbers counted in bins, without --other: give their edges, --bins 0,18,65,120",
            )
        if self.top is not None and not plan.domain.counts_users:
            raise ParameterError(
                "conflicting-arguments", f"--top is for labels and words; the plan is for {type(plan.domain).__name__}"
            )
        if self.asked is not None and not plan.domain.needs_candidates:
            raise ParameterError(
                "conflicting-arguments", f"--candidates is for words, and the plan is for {type(plan.domain).__name__}"
            )
        if self.asked is None and plan.domain.needs_candidates and (self.plot or self.report):
            raise ParameterError(
                "missing-argument",
                "--plot and --report show the counts of words: give a file of them, --candidates words.txt",
            )

    @contextmanager
    def staged(self, *inputs: PathOrUrl | None) -> Iterator[Callable[[BaseEstimate, str, _Names], None]]:
        """A function that writes and draws an estimate of something, with labels; files appear when the block ends.

        That they can be written is seen to at once, and that they are none of the inputs.
        """
        for path in (self.output, self.plot, self.report):
            _keep_inputs(path, *inputs)
        with StagedOutputs() as outputs:
            staged_output = outputs.stage(self.output, WRITABLE) if self.output else None
            staged_plot, staged_report = stage_pictures(outputs, self.plot, self.report)

            def write(estimate: BaseEstimate, what: str, labels: _Names = None) -> None:
                if staged_output:
                    write_estimate(staged_output, estimate, self.confidence, labels)
                if staged_plot:
                    save_chart(_chart(estimate, what, self.confidence), staged_plot)
                if staged_report:
                    title = f"{estimate.what} of {what}"
                    text = report_page(
                        [estimate],
                        title=title,
                        made=SYSTEM_CLOCK.now(),
                        command=command_line(),
                        fresh_noise=self.draws_noise,
                        level=self.confidence,
                    )
                    outputs.write(staged_report, text)

            yield write

    def answer(self, estimate: AnyEstimate) -> AnyEstimate:
        """The estimate, or the counts of the words that are asked about."""
        return estimate if self.asked is None else estimate.counts_of(self.asked)

    def show(self, estimate: BaseEstimate, labels: _Names = None, names: _Names = None) -> None:
        """Print the estimate: for a program with labels, or for a person with names."""
        if self.json:
            document: dict[str, Any] = {
                "plan": estimate.plan.summary(),
                "estimate": estimate_to_json(estimate, self.confidence, labels),
            }
            if self.quantiles:
                document["quantiles"] = [asdict(each) for each in self._asked_quantiles(estimate)]
            if self.top is not None:
                document["top"] = [asdict(row) for row in self._top(estimate).rows]
            click.echo(json.dumps(document, allow_nan=False))
            return
        ranked = None if self.top is None or estimate.prompt is not None else self._top(estimate)
        automatic = bool(self.quantiles) and estimate.plan.domain.bin_edges == QUANTILE_BINS  # nobody asked for these
        if automatic:
            console.print(f"{estimate.users:,} users\nguarantee for one row: {guarantee_of(estimate.plan)}")
        else:
            print_estimate(estimate, self.confidence, names, in_process=self.draws_noise, top=ranked)
        if self.quantiles:
            print_quantiles(self._asked_quantiles(estimate), self.confidence)
        if self.output is None and ranked is None and not shown_whole(estimate):
            console.print("-o OUT writes all of them")
        for path in (self.output, self.plot, self.report):
            if path:
                console.print(f"wrote {path}", markup=False)

    def _top(self, estimate: AnyEstimate) -> Top:
        """The most frequent labels; all of them where there are no more."""
        found: Top = estimate.top(min(self.top or 1, len(estimate.to_table())), self.confidence)
        return found

    def _asked_quantiles(self, estimate: AnyEstimate) -> list[Quantile]:
        return [estimate.quantile(q, self.confidence) for q in self.quantiles]


def _quantiles(_: click.Context, __: click.Parameter, text: str | None) -> tuple[float, ...]:
    try:
        found = tuple(float(q) for q in text.split(",")) if text else ()
    except ValueError:
        found = (-1.0,)
    if not all(0 < q < 1 for q in found):
        raise ParameterError(
            "out-of-range", f"--quantiles is {text!r}; write numbers between 0 and 1 with commas, such as 0.25,0.5,0.75"
        )
    return found


_PATH = click.Path(path_type=Path)

result_options = option_group(
    "results",
    Results,
    click.option("--json", is_flag=True, help="Print plan and estimate as one JSON object."),
    click.option("-o", "--output", type=_PATH, help=f"Write the estimate: {', '.join(WRITABLE)}."),
    click.option("--plot", type=_PATH, help=f"Draw the estimate: {', '.join(DRAWABLE)}."),
    click.option("--report", type=_PATH, help=REPORT_HELP),
    click.option("--confidence", type=float, default=0.95, show_default=True, help="Level of the intervals."),
    click.option(
        "--quantiles",
        callback=_quantiles,
        metavar="Q,Q,...",
        help="Quantiles of numbers in --bins, or else in fine logarithmic ones: 0.25,0.5,0.75; 0.5 is the median.",
    ),
    click.option("--top", type=click.IntRange(1), metavar="N", help="Show the N most frequent labels or words."),
)
"""Where the estimate goes, and at which level, as `results`."""


def stage_pictures(outputs: StagedOutputs, plot: Path | None, report: Path | None) -> tuple[Path | None, Path | None]:
    """Where a picture and a page are written, once it is clear that they can be made."""
    if plot or report:
        require_plots()
    if report:
        require_pages()
    return (
        outputs.stage(plot, DRAWABLE) if plot else None,
        outputs.stage(report, (".html",)) if report else None,
    )


def _chart(estimate: BaseEstimate, what: str, level: float) -> Any:
    promise = guarantee_of(estimate.plan) if estimate.guarantee_holds else "WITHOUT the plan's guarantee"
    subtitle = f"{counted(estimate.users, 'user')}, {promise}"
    return estimate_chart(estimate, title=f"{estimate.what} of {what}", subtitle=subtitle, level=level)


def _keep_inputs(output: Path | None, *inputs: PathOrUrl | None) -> None:
    for path in inputs:
        if output and path and output.resolve() == path.resolve():
            raise FileError(
                "conflicting-arguments", f"{output}: is an input, and would be replaced; choose another output file"
            )
