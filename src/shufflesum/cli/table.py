"""A file of users' rows: which of it is read and how, by options, and put through a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from shufflesum.aggregation import aggregate_rows, without_rows
from shufflesum.cli.commands import conflict
from shufflesum.cli.options import all_of, columns_option, note_missing_header, option_group
from shufflesum.cli.output import progress_bar
from shufflesum.discovery import Holdings
from shufflesum.domains import Domain, Missing, UnlistedLabels
from shufflesum.domains.labels import without_case
from shufflesum.errors import DataError
from shufflesum.estimate import AnyEstimate
from shufflesum.plans import Plan
from shufflesum.tables import readers
from shufflesum.tables.paths import PathOrUrl
from shufflesum.tables.sources import DataSource, ReadOptions

_F = TypeVar("_F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class TableOptions(ReadOptions):
    """The options of `table_options`."""

    ignore_case: bool = False

    @property
    def says_how_it_is_written(self) -> bool:
        """Whether anything was said that a file of text, or of several arrays, needs."""
        return any(getattr(self, name) is not None for name in TEXT_PARAMETERS)

    def open(self, file: PathOrUrl, domain: Domain | None = None, column: str | None = None) -> DataSource:
        """The file as a table, for a plan of this domain with labels in this column."""
        options = self if domain is None else replace(self, column=column).for_domain(domain)
        return readers.open_table(file, options)

    def rows(self, table: DataSource, domain: Domain) -> Iterator[Any]:
        """The batches of a table as a domain takes them."""
        batches = readers.rows_of(table, domain)
        if isinstance(domain, UnlistedLabels):  # how labels are read is the plan's to say
            if self.ignore_case > domain.ignore_case:
                raise conflict("--ignore-case cannot be given with this --plan, which says how labels are read")
            return batches
        if not self.ignore_case:
            return batches
        return map(without_case(getattr(domain, "labels", None)), batches)

    def note_detected(self, table: DataSource, file: PathOrUrl, *, quiet: bool) -> None:
        """Say how a file of text was read, as far as nobody said it, each with the option that says otherwise.

        For programs, which are `quiet`, there is only the note that the first line counts as a user.
        """
        note_missing_header(table.column_names, file, self.header)
        said = {"separator": self.separator, "decimal": self.decimal, "encoding": self.encoding, "header": self.header}
        given = {f"--{name}" for name, value in said.items() if value is not None}
        given |= {"--header"} if self.header is None else {"--no-header"}  # a note says that there are no names
        found = [f"{words} ({option})" for option, words in table.detected.items() if option not in given]
        if found and not quiet:
            click.echo(f"{file} was read with {', '.join(found)}")


TEXT_PARAMETERS = ("header", "separator", "decimal", "encoding", "array")


def text_options(before: str = "") -> tuple[Callable[[Any], Any], ...]:
    """How a file of text is written, and which array of a file is meant; `before` begins each help text."""

    def said(text: str) -> str:
        return f"{before}{text[0].lower()}{text[1:]}" if before else text

    return (
        click.option(
            "--header/--no-header", default=None, help=said("Whether a CSV starts with names.  [auto-detected]")
        ),
        click.option(
            "--separator", metavar="C", help=said("What separates columns of a CSV: , ; | or tab.  [auto-detected]")
        ),
        click.option("--decimal", metavar="C", help=said("What begins a fraction in a CSV: . or ,  [auto-detected]")),
        click.option("--encoding", metavar="NAME", help=said("How a CSV writes letters, such as latin-1.  [UTF-8]")),
        click.option("--array", help=said("The array of an .npz file that holds several.")),
    )


table_options = option_group(
    "reading",
    TableOptions,
    columns_option("Columns of numbers to use: names or positions, separated by commas; ranges as 0:100."),
    *text_options(),
    click.option("--ignore-case", is_flag=True, help="Read labels without regard to capitals."),
    click.option("--user-column", metavar="NAME", help="The column that says whose row it is; each user may have one."),
    parameters=(*TEXT_PARAMETERS, "columns", "ignore_case", "user_column"),
)
"""Which columns and rows of a file are the users' arrays, and how a file of text is written, as `reading`."""


MIDPOINT = "refuse the file, or put the middle of the bounds there"
DROPPED = f"{MIDPOINT}, which pulls the mean there by the missing fraction, or leave such rows out"


def clip_options(clip: str, missing: str, *choices: str) -> Callable[[_F], _F]:
    """What becomes of values out of bounds and of missing ones, in words; `choices` beyond refuse and midpoint."""

    return all_of(
        click.option("--clip", is_flag=True, help=f"{clip} instead of refusing the file."),
        click.option(
            "--missing",
            type=click.Choice(["refuse", "midpoint", *choices]),
            default="refuse",
            show_default=True,
            help=f"NaN and empty cells: {missing}.",
        ),
    )


def named_columns(table: DataSource) -> tuple[str, ...] | None:
    """What a plan may call the columns: their names, where all have one and no two the same."""
    names = table.names or ()
    return names if names and all(names) and len(set(names)) == len(names) else None


def check_table(file: PathOrUrl, table: DataSource, plan: Plan) -> None:
    """Refuse a file with too few rows for a plan, or with rows of another shape."""
    if table.rows < plan.smallest_batch:
        left = "" if table.left_out is None else " without missing values"
        raise DataError(
            "too-few-users",
            f"{file}: has {table.rows} rows{left}, but the plan needs at least {plan.smallest_batch} users; add rows, "
            "or give a --plan for fewer users",
        )
    readers.check_shape(file, table.shape, plan.domain)


def prepared(table: DataSource, rows: Callable[[Any, int], Any]) -> Iterator[Any]:
    """Each batch of a table as a plan takes it; `rows` is told which row is the first."""
    first_row = 0
    for batch in table.batches():
        yield rows(batch, first_row)
        first_row += len(batch)


def aggregate_table(
    file: PathOrUrl,
    table: DataSource,
    batches: Callable[[], Iterable[Any]],
    plan: Plan,
    *,
    begin: Callable[[], int] | None,
    **choices: Any,
) -> AnyEstimate:
    """The estimate of a plan, with a bar on the way; what is wrong in a row is said with its line.

    `begin` is what `aggregate_rows` asks for the round, once the file is known to be valid.
    """
    with progress_bar("rows", table.rows) as progress:
        try:
            if plan.domain.finds_labels:
                estimate = _found(batches(), plan, begin=begin, progress=progress, **choices)
            else:
                estimate = aggregate_rows(batches, plan, begin=begin, progress=progress, **choices)
        except DataError as error:
            raise readers.located(error, file, table) from None
    return without_rows(estimate, "refuse" if table.left_out is None else "drop", table.left_out or 0)


def _found(
    batches: Iterable[Any],
    plan: Plan,
    *,
    begin: Callable[[], int] | None,
    progress: Callable[[int], None],
    **choices: Any,
) -> AnyEstimate:
    """The labels that are found in all rows."""
    plan.domain.check_options(**choices)
    holdings = Holdings(plan)
    for rows in batches:
        holdings.add(rows)
        progress(holdings.users)
    return holdings.find(begin=begin)


def apply_missing_policy(file: PathOrUrl, table: DataSource, missing: str) -> tuple[DataSource, Missing]:
    """What `--missing` leaves of a table, and what is to be done about missing values in it."""
    if missing == "drop":
        return readers.complete_table(file, table), "refuse"
    return table, "midpoint" if missing == "midpoint" else "refuse"
