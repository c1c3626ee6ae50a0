"""What commands print for people, write and draw."""

from __future__ import annotations

import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from shufflesum._format import counted
from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.cli.commands import conflict, in_options
from shufflesum.cli.options import PATH, option_group
from shufflesum.domains.counts import QUANTILE_BINS, Top
from shufflesum.errors import FileError, ParameterError
from shufflesum.estimate import AnyEstimate, BaseEstimate
from shufflesum.pages import report_page, require_pages
from shufflesum.plans import Plan
from shufflesum.plots import DRAWABLE, estimate_chart, require_plots, save_chart
from shufflesum.statement import card, fallback
from shufflesum.tables.paths import PathOrUrl
from shufflesum.tables.writers import WRITABLE, StagedOutputs, estimate_to_json, write_estimate

_ONE_LINE = 10_000
# Rows of a table wrap on a narrow terminal; in a pipe or a log, which has no width, each is one line.
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _ONE_LINE)
_notes = Console(stderr=True, highlight=False, soft_wrap=True)


def table_of(*titles: str, words: Container[int] = (0,)) -> Table:
    """An empty table for people: words in these columns; in the others numbers, to the right."""
    table = Table(box=None, header_style="bold")
    for place, title in enumerate(titles):
        table.add_column(title, justify="left" if place in words else "right")
    return table


def print_json(document: Any) -> None:
    """One JSON object, for a program."""
    click.echo(json.dumps(document, allow_nan=False))


def print_card(plan: Plan, assumed_std: float | None = None, *, details: bool = False) -> None:
    """The card of a plan."""
    title, _, facts = card(plan, assumed_std, details=details).partition("\n")
    console.print(title, style="bold", markup=False)
    console.print(facts, markup=False)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, silence in a pipe; yields the function that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Not `_notes.is_terminal`: FORCE_COLOR asks for colours, not for a bar in a log.
    with Progress(*columns, console=_notes, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """The library's warnings, as lines a person can read on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        click.echo(f"note: {in_options(text)}", err=True)


_HIDDEN = "(hidden)"


def command_line() -> str:
    """This command as a line of a shell, with what environment variables gave.

    Never a secret: not who asks for an address, nor its query, nor the value of a setting of Spark's.
    """
    context = click.get_current_context()
    words = list(_given(sys.argv[1:]))
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
            words += _as_option(parameter, context.params[name])
    return shlex.join(["shufflesum", *words])


def _given(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        option, equals, value = word.partition("=")
        if before == "--conf":
            yield f"{option}={_HIDDEN}"
        elif option == "--conf" and equals:
            yield f"--conf={value.partition('=')[0]}={_HIDDEN}"
        else:
            yield _without_secrets(word)
        before = word


def _as_option(parameter: click.Parameter, value: Any) -> list[str]:
    """A value as it would be typed: a flag alone, what may be given several times once for each."""
    name = parameter.opts[0]
    if isinstance(value, bool):
        return [name] if value else []
    if isinstance(value, Mapping):
        return [word for key in value for word in (name, f"{key}={_HIDDEN}")]
    several = value if isinstance(value, tuple | list) else [value]
    return [word for each in several for word in (name, _without_secrets(str(each)))]


def _without_secrets(word: str) -> str:
    if "://" not in word:
        return word
    return re.sub(r"\?.*", f"?{_HIDDEN}", re.sub(r"//[^/]*@", "//", word))


_SHOWN = 12  # rows of a table; of more, ten are shown
_SOME = 10
_PROMPT = "the counts of any words can be asked for: give a file of them, --candidates words.txt"


def print_estimate(
    estimate: BaseEstimate,
    level: float,
    names: tuple[str, ...] | None = None,
    *,
    in_process: bool = False,
    top: Top | None = None,
) -> None:
    """A few lines and a small table; `in_process` says that nobody sent anything, though under this plan they could."""
    plan = estimate.plan
    in_process = in_process or plan.noise_by == "curator"
    sending = "" if in_process else f", each sending {plan.mechanism.describe(plan.encoding)}"
    which = f", round {estimate.round_number} of {plan.rounds}" if plan.rounds > 1 else ""
    console.print(f"[bold]{counted(estimate.users, 'user')}[/bold]{which}{sending}")
    if estimate.broken is None:
        left = "this process saw the data" if in_process else f"if shuffler and analyzer collude: {fallback(plan)}"
        console.print(
            f"guarantee for one row: [bold]{plan.guarantee.describe()}[/bold] ({plan.accountant} accountant); {left}"
        )
    else:
        console.print(f"[bold]NO GUARANTEE[/bold]: {escape(estimate.broken)}")
    *others, last = (*estimate.beside, estimate)
    for other in others:
        print_rows(other, level, names, top=top)
    print_rows(last, level, names, top=None if others else top)
    if estimate.adjustment:
        console.print(estimate.adjustment)


def shown_whole(estimate: BaseEstimate) -> bool:
    """Whether a person sees all of it."""
    return estimate.prompt is not None or len(estimate.to_table()) <= _SHOWN


def print_rows(
    estimate: BaseEstimate,
    level: float,
    names: Sequence[str] | None = None,
    *,
    hint: str = "",
    prompt: str = _PROMPT,
    top: Top | None = None,
) -> None:
    """The estimate as a table, of many rows some, with what is to be said of it; or what must be asked for first.

    With `top` these rows are its labels, the most frequent first.
    """
    if estimate.prompt is not None:
        console.print(prompt)
        return
    found = estimate.to_table(level).with_names(names)
    places = found.some(_SHOWN if len(found) <= _SHOWN else _SOME) if top is None else found.largest(len(top.rows))
    table = table_of(*found.heads())
    for row in found.cells(places):
        table.add_row(*map(escape, row))
    console.print(table)
    said = estimate.remarks(level)
    if top is not None:
        said[0] = top.statement  # the first is on the ranks of ten
    for line in ([f"{left_out}{hint}"] if (left_out := found.left_out(places)) else []) + said:
        console.print(line, markup=False)


@dataclass(slots=True)
class Outputs(StagedOutputs):
    """The files that options ask for: each is staged once it is clear that it can be made, or None if not given."""

    paths: list[Path] = field(default_factory=list)

    def file(self, path: Path | None, *suffixes: str) -> Path | None:
        """Where a file is written until the block ends."""
        if path is None:
            return None
        self.paths.append(path)
        return self.stage(path, suffixes)

    def chart(self, path: Path | None) -> Path | None:
        """The same for a picture."""
        if path:
            require_plots()
        return self.file(path, *DRAWABLE)

    def page(self, path: Path | None) -> Path | None:
        """The same for a page with pictures."""
        if path:
            require_plots()
            require_pages()
        return self.file(path, ".html")

    def say_written(self) -> None:
        """Name all of them to a person."""
        for path in self.paths:
            console.print(f"wrote {path}", markup=False)


# ---- What a command that ends in an estimate prints, writes and draws.

_Names = tuple[str, ...] | None

report_option = click.option(
    "--report", type=PATH, help="Write one page with question, guarantee, result, statement and this command (.html)."
)
keep_option = click.option("--keep", type=PATH, help="Keep the whole estimate, for shufflesum ask (.json).")
top_option = click.option(
    "--top", type=click.IntRange(1), metavar="N", help="Show the N most frequent labels or words."
)


@dataclass(frozen=True, slots=True)
class Results:
    """The options of `result_options`, checked, words that are asked about, and whether the command draws noise."""

    json: bool
    output: Path | None
    plot: Path | None
    report: Path | None
    confidence: float = 0.95
    quantiles: tuple[float, ...] = ()
    top: int | None = None
    keep: Path | None = None
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
            raise conflict(
                "--quantiles are of numbers counted in bins, without --other: give their edges, --bins 0,18,65,120"
            )
        if self.top is not None and not plan.domain.counts_users:
            raise conflict(f"--top is for labels and words; the plan is for {type(plan.domain).__name__}")
        if self.top is not None and self.quantiles and plan.domain.bin_edges == QUANTILE_BINS:
            raise conflict("--top shows the fullest bins, and --quantiles alone shows none: give --bins 0,18,65,120")
        if self.asked is not None and not plan.domain.needs_candidates:
            raise conflict(f"--candidates is for words, and the plan is for {type(plan.domain).__name__}")
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
        for path in self.written:
            _keep_inputs(path, *inputs)
        with (outputs := Outputs()):
            staged_output, staged_plot = outputs.file(self.output, *WRITABLE), outputs.chart(self.plot)
            staged_report, staged_keep = outputs.page(self.report), outputs.file(self.keep, ".json")

            def write(estimate: BaseEstimate, what: str, labels: _Names = None) -> None:
                if staged_output:
                    write_estimate(staged_output, estimate, self.confidence, labels)
                if staged_keep:
                    estimate.save(staged_keep)
                if staged_plot:
                    drawn = next(iter(estimate.beside), estimate)
                    save_chart(_chart(drawn, what, self.confidence), staged_plot)
                if staged_report:
                    text = report_page(
                        [estimate],
                        title=f"{estimate.what} of {what}",
                        made=SYSTEM_CLOCK.now(),
                        command=command_line(),
                        fresh_noise=self.draws_noise,
                        level=self.confidence,
                    )
                    outputs.write(staged_report, text)

            yield write

    def answer(self, estimate: AnyEstimate) -> AnyEstimate:
        """The estimate, or the counts of the words, or the quantiles, that are asked about."""
        if self.quantiles:
            return estimate.quantiles(self.quantiles)
        return estimate if self.asked is None else estimate.counts_of(self.asked)

    def show(self, estimate: BaseEstimate, labels: _Names = None, names: _Names = None) -> None:
        """Print the estimate: for a program with labels, or for a person with names."""
        if self.json:
            document: dict[str, Any] = {
                "plan": estimate.plan.summary(),
                "estimate": estimate_to_json(estimate, self.confidence, labels),
            }
            if (ranked := self.ranked(estimate)) is not None:
                document["top"] = [asdict(row) for row in ranked.rows]
            print_json(document)
            return
        ranked = self.ranked(estimate)
        print_estimate(estimate, self.confidence, names, in_process=self.draws_noise, top=ranked)
        if self.output is None and ranked is None and not all(map(shown_whole, (estimate, *estimate.beside))):
            console.print("-o OUT writes all of them")
        self.say_written()

    @property
    def written(self) -> list[Path]:
        """The files that are asked for."""
        return [path for path in (self.output, self.plot, self.report, self.keep) if path is not None]

    def say_written(self) -> None:
        """Name all of them to a person."""
        for path in self.written:
            console.print(f"wrote {path}", markup=False)

    def ranked(self, estimate: AnyEstimate) -> Top | None:
        """The most frequent labels, if they are asked for; all of them where there are no more."""
        counts = next(iter(estimate.beside), estimate)
        if self.top is None or counts.prompt is not None or not (rows := len(counts.to_table())):
            return None
        found: Top = counts.top(min(self.top, rows), self.confidence)
        return found


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


result_options = option_group(
    "results",
    Results,
    click.option("--json", is_flag=True, help="Print plan and estimate as one JSON object."),
    click.option(
        "-o",
        "--output",
        type=PATH,
        help=f"Write all that is printed as a table, every row of it: {', '.join(WRITABLE)}.",
    ),
    click.option("--plot", type=PATH, help=f"Draw it, with --bins and --quantiles the bins: {', '.join(DRAWABLE)}."),
    report_option,
    keep_option,
    click.option("--confidence", type=float, default=0.95, show_default=True, help="Level of the intervals."),
    click.option(
        "--quantiles",
        callback=_quantiles,
        metavar="Q,Q,...",
        help="Quantiles of numbers in --bins, or else in fine logarithmic ones: 0.25,0.5,0.75; 0.5 is the median.",
    ),
    top_option,
)
"""Where the estimate goes, and at which level, as `results`."""


def _chart(estimate: BaseEstimate, what: str, level: float) -> Any:
    promise = estimate.plan.guarantee.describe() if estimate.guarantee_holds else "WITHOUT the plan's guarantee"
    subtitle = f"{counted(estimate.users, 'user')}, {promise}"
    return estimate_chart(estimate, title=f"{estimate.what} of {what}", subtitle=subtitle, level=level)


def _keep_inputs(output: Path | None, *inputs: PathOrUrl | None) -> None:
    for path in inputs:
        if output and path and output.resolve() == path.resolve():
            raise FileError(
                "conflicting-arguments", f"{output}: is an input, and would be replaced; choose another output file"
            )
