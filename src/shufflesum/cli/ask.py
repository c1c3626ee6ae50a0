"""`shufflesum ask`: questions to an estimate that was kept; asking spends nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from shufflesum._format import plus_minus
from shufflesum.cli import options
from shufflesum.cli.commands import Command, conflict
from shufflesum.cli.options import PATH
from shufflesum.cli.output import Results, console, result_options, table_of, warnings_as_notes
from shufflesum.errors import ParameterError
from shufflesum.estimate import AnyEstimate, BaseEstimate

_MOST_COLUMNS = 12  # of a table that a terminal shows as one


def _conditions(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """`QUESTION=ANSWER`, or `QUESTION=ANSWER,ANSWER` for any of several."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, answer = (part.strip() for part in text.partition("="))
        if not (name and equals and answer) or name in found:
            raise ParameterError(
                "wrong-type", f"--where is {text!r}; write QUESTION=ANSWER, once for each question, as country=DE,FR"
            )
        found[name] = answer
    return found


@click.command("ask", cls=Command)
@click.argument("file", type=PATH)
@click.option("--rows", metavar="QUESTION", help="A survey: counts by the answers to this question.")
@click.option("--columns", metavar="QUESTION", help="And, beside each other, by the answers to this one.")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    callback=_conditions,
    metavar="QUESTION=ANSWER",
    help="Only users who gave this answer, or one of several: country=DE,FR. Once for each question.",
)
@click.option("--mean", metavar="QUESTION", help="The mean of this number, for each answer of --rows.")
@click.option("--shares", is_flag=True, help="Shares within each of --rows, instead of counts.")
@options.candidates_option
@result_options
def ask_command(
    file: Path,
    rows: str | None,
    columns: str | None,
    conditions: dict[str, Any],
    mean: str | None,
    shares: bool,
    candidates: Path | None,
    results: Results,
) -> None:
    """Ask an estimate that was kept: a survey's cross-tables, or the counts of words.

    FILE is what --keep or estimate.save(...) wrote. Everything is computed from the noisy tables that were
    released: asking spends nothing, however often.

    \b
    Example: shufflesum ask estimate.json --rows age --columns country --where plan=pro
             shufflesum ask estimate.json --rows country --mean income
             shufflesum ask words.json --candidates words.txt --top 20
    """
    results = replace(results, asked=options.words_of(candidates))
    with warnings_as_notes(), results.staged(file, candidates) as write:
        kept = BaseEstimate.load(file)
        estimate: AnyEstimate = kept if candidates is None else kept.read_as(kept.plan.domain.estimate_type)
        survey = hasattr(estimate, "where")
        given = {"--rows": rows, "--columns": columns, "--where": conditions, "--mean": mean, "--shares": shares}
        named = [option for option, value in given.items() if value]
        if named and not survey:
            raise conflict(f"{named[0]} is for surveys, and {file} is of {type(estimate.plan.domain).__name__}")
        if candidates is not None or estimate.words is None:
            results.check_plan(estimate.plan)
        asked = _asked(estimate, rows, columns, conditions, mean, shares=shares) if survey else None
        found: AnyEstimate = asked or results.answer(estimate)
        write(found, file.name, None)
    if not results.json and columns is not None and not shares and len(found.answers[1]) <= _MOST_COLUMNS:
        _show_crossed(found, results)
        return
    results.show(found)


def _asked(
    estimate: AnyEstimate,
    rows: str | None,
    columns: str | None,
    conditions: dict[str, Any],
    mean: str | None,
    *,
    shares: bool,
) -> BaseEstimate:
    """The table that the options ask for."""
    if columns is not None and rows is None:
        raise ParameterError("missing-argument", "--columns goes with --rows; name the one question with --rows")
    among = estimate.where({name: _answers(estimate, name, text) for name, text in conditions.items()})
    if mean is not None:
        if rows is None or columns is not None or shares:
            raise conflict("--mean goes with --rows, and with none of --columns and --shares")
        table: BaseEstimate = among.means(mean, rows)
        return table
    if rows is None:
        if conditions or shares:
            raise ParameterError("missing-argument", "--rows is missing: the question to count by")
        whole: BaseEstimate = estimate
        return whole
    crossed = among[(rows,) if columns is None else (rows, columns)]
    if shares:
        if columns is None:
            raise conflict("--shares goes with --rows and --columns: shares of the columns within each row")
        within: BaseEstimate = crossed.within(rows)
        return within
    found: BaseEstimate = crossed
    return found


def _answers(estimate: AnyEstimate, name: str, text: str) -> str | list[str]:
    """One answer, which may have commas in it, or several with commas between."""
    known = estimate.survey.question(name).answers
    return text if text in known or "," not in text else [part.strip() for part in text.split(",")]


def _show_crossed(table: AnyEstimate, results: Results) -> None:
    """Rows and columns as such, each count with what it may be off."""
    level = results.confidence
    by_row, by_column = table.questions
    answers, others = table.answers
    lower, upper = table.interval(level)
    shown = table_of(f"{by_row} \\ {by_column}", *others)
    for place, answer in enumerate(answers):
        cells = zip(table.counts[place], lower[place], upper[place], strict=True)
        told = (
            plus_minus(float(count), float(max(high - count, count - low)), whole=True) for count, low, high in cells
        )
        shown.add_row(escape(answer), *told)
    console.print(shown)
    for line in table.remarks(level):
        console.print(line, markup=False)
    results.say_written()
