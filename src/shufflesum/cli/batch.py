"""`shufflesum randomize`, `shuffle` and `analyze`: the three roles on files."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from shufflesum._format import counted
from shufflesum.cli import options
from shufflesum.cli.budget import budget_option, spending
from shufflesum.cli.commands import DEPLOYED, Command, conflict
from shufflesum.cli.options import PATH, PLACE
from shufflesum.cli.output import Results, console, print_json, progress_bar, result_options, warnings_as_notes
from shufflesum.cli.table import MIDPOINT, TableOptions, clip_options, table_options
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.estimate import BaseEstimate
from shufflesum.keys import load_private_key
from shufflesum.plans import Plan
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.tables.paths import PathOrUrl
from shufflesum.wire import Task

if TYPE_CHECKING:
    from shufflesum.batch.files import Dataset
    from shufflesum.batch.once import Counted
    from shufflesum.batch.targets import Target


_F = TypeVar("_F", bound=Callable[..., object])
_UNITS = ("", "K", "M", "G", "T")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", re.IGNORECASE)


def memory_size(text: str | int) -> int:
    """A number of bytes from text such as 200MB, 2GB or 1GiB."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is no amount of memory; write it as 200MB, 2GB or 1GiB")
    power = _UNITS.index(match[2].upper())
    return int(float(match[1]) * (1024**power if match[3] else 1000**power))


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What the reports are made for: a plan, or a task where they are sealed."""

    plan: Path | None
    task: Path | None

    def load(self, *, round_number: int | None = None, key: Path | None = None) -> Target:
        """The target of a round; a plan or a task must be given, and only a task has a key."""
        from shufflesum.batch.targets import PlainTarget, SealedTarget

        if (self.plan is None) == (self.task is None):
            given = "neither was" if self.plan is None else "both were"
            raise ParameterError(
                "missing-argument" if self.plan is None else "conflicting-arguments",
                f"--plan or --task must be given, and {given}; a task holds its plan",
            )
        number = 1 if round_number is None else round_number
        if self.task is not None:
            return SealedTarget(Task.load(self.task), number, None if key is None else load_private_key(key))
        assert self.plan is not None
        return PlainTarget(Plan.load(self.plan), number)


target_options = options.option_group(
    "given",
    TargetOptions,
    click.option("--plan", type=PATH, help="From shufflesum plan."),
    click.option("--task", type=PATH, help="A task instead of a plan: reports are sealed."),
)


@dataclass(frozen=True, slots=True)
class Engine:
    """Where the work is done, by how many, and within which memory; options that it would not heed are refused."""

    memory: int
    workers: int | None
    engine: str
    master: str | None
    conf: Mapping[str, str]

    def __post_init__(self) -> None:
        """Refuse what belongs to the other engine."""
        for option, given in {"--master": self.master, "--conf": self.conf}.items():
            if given and not self.is_spark:
                raise conflict(f"{option} is for --engine spark; say so, or leave {option} out")
        context = click.get_current_context()
        for name in ("memory", "workers"):
            if self.is_spark and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
                raise conflict(f"--{name} is for --engine local; give Spark its own, with its configuration")

    @property
    def is_spark(self) -> bool:
        """Whether Spark does the work."""
        return self.engine == "spark"

    @property
    def session(self) -> dict[str, Any]:
        """What Spark is started with."""
        return {"master": self.master, "conf": self.conf}

    @property
    def local(self) -> dict[str, Any]:
        """What this machine may use."""
        return {"memory": self.memory, "workers": self.workers}


def _settings(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(f"{text!r} is no setting of Spark's; write it as spark.executor.memory=4g")
        if settings.setdefault(key, value) != value:
            raise click.BadParameter(f"{key} is given twice, with different values; give it once")
    return settings


engine_options = options.option_group(
    "engine",
    Engine,
    click.option(
        "--memory",
        type=memory_size,
        metavar="SIZE",
        default="1GB",
        show_default=True,
        help="At most so much beside the program itself.",
    ),
    click.option("--workers", type=click.IntRange(1, 1 << 10), help="How many share the work.  [one for each core]"),
    click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True),
    click.option("--master", metavar="URL", help="The Spark master.  [local[*]]"),
    click.option(
        "--conf",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_settings,
        help="A setting of Spark's, such as spark.executor.memory=4g; may be repeated.",
    ),
)
format_option = click.option("--format", type=click.Choice(["parquet", "arrow"]), default="parquet", show_default=True)


@contextmanager
def taking_up(output: Path, *, restart: bool) -> Iterator[None]:
    """Say where a run that is interrupted leaves its work, and that the next one has found it."""
    from shufflesum._machine import is_interruption
    from shufflesum.batch.files import partial_path

    partial = partial_path(output)
    if partial.exists() and not restart:
        click.echo(f"note: found {partial}, which an interrupted run left", err=True)
    try:
        yield
    except BaseException as error:
        if is_interruption(error) and partial.exists():
            click.echo(
                f"note: {partial} keeps what is done, and the same command goes on from there; remove it if you give "
                "the work up: it may hold reports in the order they came",
                err=True,
            )
        raise


@click.command("randomize", cls=Command, context_settings=DEPLOYED)
@options.file_argument("users")
@target_options
@click.option("--round", type=int, help="The round of the plan that the reports are for.  [1]")
@budget_option
@click.option("-o", "--output", type=PATH, required=True, help="The folder to make.")
@clip_options("Move values to the nearest bound, or scale vectors down to the clipping norm,", MIDPOINT)
@options.planned_column_options
@table_options
@format_option
@click.option(
    "--restart",
    is_flag=True,
    help="Throw away what an interrupted run has done; draw anew what a finished one wrote, where that is gone.",
)
@engine_options
def randomize_command(
    users: PathOrUrl,
    given: TargetOptions,
    round: int | None,
    budget_file: Path | None,
    output: Path,
    clip: bool,
    missing: Any,
    chosen: options.Chosen | None,
    reading: TableOptions,
    format: Any,
    restart: bool,
    engine: Engine,
) -> None:
    """Randomize the rows of USERS, a file or a folder of files, into a folder of reports; each row is one user.

    Files are CSV (.csv or .tsv, also compressed as .csv.gz), Parquet, Arrow IPC, .npy or .npz, in a folder all of one
    kind; empty ones are skipped, and - is standard input. With --task each report is sealed, so that only the analyzer
    can read it. The folder is for the shuffler alone: in it, a user's reports are still together. A run that was
    interrupted goes on where it was when the same command is given again, and one that has finished is not done again.
    Labels are in the column that the plan names, in the only one there is, or in the one that --categories,
    --multi-choice, --group-by or --open-vocabulary says.

    \b
    Example: shufflesum randomize beats.parquet --plan plan.json -o reports
             shufflesum randomize survey.csv --plan plan.json --categories answer -o reports
    """
    repeated = os.path.lexists(output)  # what is there is refused, unless the same work made it
    target = given.load(round_number=round)
    plan = target.plan
    column = options.column_for(plan.domain, chosen)
    if engine.is_spark:
        if target.task is not None or format != "parquet" or reading.says_how_it_is_written:
            raise conflict(
                "--task, --format arrow, --array and what says how a CSV is written are for --engine local; leave them "
                "out, or randomize there"
            )
        from shufflesum.batch import spark

        with warnings_as_notes(), spending(budget_file) as budget:
            dataset = spark.randomize_folder(
                users,
                output,
                plan,
                **engine.session,
                clip=clip,
                missing=missing,
                columns=reading.columns,
                label_column=column,
                user_column=reading.user_column,
                round_number=target.round_number,
                restart=restart,
                begin=budget.runs_of(plan),
            )
            _say_randomized(output, dataset, plan, repeated=repeated)
        return
    from shufflesum.batch.local import open_users, randomize

    with warnings_as_notes(), spending(budget_file) as budget, taking_up(output, restart=restart):
        rows = open_users(users, replace(reading, column=column).for_domain(plan.domain))
        with progress_bar("rows", rows.rows) as progress:
            dataset = randomize(
                rows,
                output,
                target,
                clip=clip,
                missing=missing,
                format=format,
                **engine.local,
                restart=restart,
                progress=progress,
                begin=budget.runs_of(plan, task=target.task),
            )
        options.note_missing_header(rows.names, rows.paths[0], reading.header)
        options.note_assumed_columns(rows.names, rows.paths[0], plan.domain)
        _say_randomized(output, dataset, plan, repeated=repeated)


def _say_randomized(output: Path, dataset: Dataset, plan: Plan, *, repeated: bool) -> None:
    users = dataset.rows // plan.reports
    if users < plan.users:
        warnings.warn(
            f"{users} rows, but nothing is released for fewer than {plan.users} users; the shuffler waits for the "
            "reports of others under the same plan",
            stacklevel=1,
        )
    did = "finished before, with the same input and options: nothing was drawn again;" if repeated else "wrote"
    amount = f"{counted(dataset.rows, 'report')} of {counted(users, 'user')} in {counted(len(dataset.files), 'file')}"
    console.print(f"{did} {output}: {amount}", markup=False)


@click.command("shuffle", cls=Command, context_settings=DEPLOYED)
@click.argument("reports", nargs=-1, required=True, type=PLACE)
@click.option("-o", "--output", type=PATH, required=True, help="The folder to make.")
@click.option("--task", type=PATH, help="The task of sealed reports; needed for uploads.")
@format_option
@click.option("--restart", is_flag=True, help="Throw away what an interrupted run has done.")
@click.option(
    "--released",
    type=PATH,
    help="The shuffler's list of the batches it released.  [default: _released.db in each folder of REPORTS]",
)
@engine_options
def shuffle_command(
    reports: tuple[PathOrUrl, ...],
    output: Path,
    task: Path | None,
    format: Any,
    restart: bool,
    released: Path | None,
    engine: Engine,
) -> None:
    """Write the reports of REPORTS to a new folder in a uniformly random order, so that no trace of theirs is left.

    REPORTS is a folder from shufflesum randomize, plain or sealed, or several such folders of one plan, one from each
    data owner: together they are one batch. With --task they may be folders of uploads as clients send them (*.upload).
    What does not fit into --memory is spilled beside the output and removed in the end. Nothing is written for a batch
    smaller than the plan's, nor for one that shares some but not all reports with an earlier one: late files wait for
    the next batch, in a folder of their own, and --released names the list of what was released. A run that was
    interrupted goes on where it was when the same command is given again, and one that has finished is not done again.

    \b
    Example: shufflesum shuffle reports -o shuffled --memory 2GB
             shufflesum shuffle hospital-a hospital-b hospital-c -o shuffled
    """
    finished = os.path.lexists(output)  # what is there is refused, unless it is this batch, shuffled
    sealed = None if task is None else Task.load(task)
    if engine.is_spark:
        if task is not None or restart or format != "parquet":
            raise conflict(
                "--task, --restart and --format arrow are for --engine local; leave them out, or shuffle there"
            )
        from shufflesum.batch import spark

        with warnings_as_notes():
            dataset = spark.shuffle_folder(reports, output, **engine.session, released=released)
        _say_shuffled(output, dataset, finished=finished)
        return
    from shufflesum.batch.shuffle import FileSource, open_source, shuffle

    with warnings_as_notes(), taking_up(output, restart=restart):
        source = open_source(*reports, task=sealed)
        if isinstance(source, FileSource) and not source.dataset.whole:
            click.echo("note: where a folder has no _shufflesum.json, nobody notices files that it lacks", err=True)
        with progress_bar("reports", source.rows) as progress:
            dataset = shuffle(
                source, output, **engine.local, format=format, restart=restart, released=released, progress=progress
            )
    if source.repeated:
        console.print(f"{source.repeated:,} of the uploads came before and do not count again")
    _say_shuffled(output, dataset, finished=finished)


def _say_shuffled(output: Path, dataset: Dataset, *, finished: bool) -> None:
    did = "finished before, with the same input: nothing was done;" if finished else "wrote"
    amount = f"{counted(dataset.rows, 'report')} in {counted(len(dataset.files), 'file')}"
    console.print(f"{did} {output}: {amount}", markup=False)


class _NotYetError(Exception):
    """Too few reports so far, or not all of a batch; nothing is to be written but the state."""


@click.command("analyze", cls=Command, context_settings=DEPLOYED)
@click.argument("shuffled", type=PLACE, required=False)
@target_options
@click.option("--key", type=PATH, help="With --task: the analyzer's private key.")
@click.option("--state", type=PATH, help="Add to the counts in this file, and remember there what was counted.")
@click.option(
    "--without-guarantee", is_flag=True, help="Insist on an estimate where the plan's guarantee cannot be confirmed."
)
@options.candidates_option
@result_options
@engine_options
def analyze_command(
    shuffled: PathOrUrl | None,
    given: TargetOptions,
    key: Path | None,
    state: Path | None,
    without_guarantee: bool,
    candidates: Path | None,
    results: Results,
    engine: Engine,
) -> None:
    """Estimate what the plan is for from SHUFFLED, a folder of shufflesum shuffle or one of its files.

    Files that come day by day are counted with --state counts.db, which grows by all of SHUFFLED or by nothing, and
    never takes a file or a batch a second time; the same command again adds nothing. As long as it has too few reports
    there is no estimate, and none where the reports contradict the plan's honest users or are only some of a batch's.
    Without SHUFFLED, --state shows what it has.

    \b
    Example: shufflesum analyze shuffled --plan plan.json -o mean.csv
    """
    results = replace(results, asked=options.words_of(candidates))
    target = given.load(key=key)
    if (key is None) != (given.task is None):
        raise conflict("--task and --key belong together: sealed reports need both, others neither")
    if engine.is_spark and given.task is not None:
        raise conflict("sealed reports are opened by --engine local; leave --engine spark out")
    plan = target.plan
    results.check_plan(plan)
    if shuffled is None and (state is None or not state.exists()):
        missing = "" if state is None else f"{state} does not exist; "
        raise ParameterError(
            "missing-argument",
            f"{missing}give SHUFFLED, the folder to count, or --state with a file of counts from before",
        )
    inputs = (shuffled, given.plan, given.task, key, state, candidates)
    from shufflesum.batch.once import Counted

    found: BaseEstimate | None = None
    with nullcontext() if state is None else Counted(state, plan) as kept:
        try:
            with results.staged(*inputs) as write, warnings_as_notes():
                whole, flaws = True, list[str]()
                if shuffled is not None:
                    counts, whole = _count(shuffled, target, kept, engine, insist=without_guarantee)
                if kept is not None:
                    counts, whole, flaws = kept.counts, kept.whole, list(kept.flaws.values())
                _note(counts, kept)
                if kept is not None and not (counts.users >= plan.users and (whole or without_guarantee)):
                    raise _NotYetError
                found = results.answer(release(counts, whole=whole, flaws=flaws, without_guarantee=without_guarantee))
                write(found, (shuffled or state or Path()).name, None)
        except _NotYetError:
            pass
        if kept is not None and shuffled is not None:
            kept.save()  # last: if it fails, the same files can be given again
    if found is not None:
        results.show(found)
    else:
        _show_missing(counts, results.json)


def _count(
    shuffled: PathOrUrl, target: Target, state: Counted | None, engine: Engine, *, insist: bool
) -> tuple[Counts, bool]:
    """Count a folder, and add it to the state if there is one; also whether it is all that a shuffle wrote."""
    from shufflesum.batch.files import file_digests, open_dataset
    from shufflesum.batch.local import count

    plan = target.plan
    dataset = open_dataset(shuffled, stage="shuffled")
    target.check(dataset.identity)
    if state is not None:
        state.check(dataset.identity)
        if state.has(shuffled, partial(file_digests, dataset)):
            click.echo(f"note: {state.path} has counted all of {shuffled} before; nothing is added", err=True)
            return state.counts, state.whole
    else:
        _refuse_few(dataset.rows, plan)
    if engine.is_spark:
        from shufflesum.batch import spark

        digests = file_digests(dataset)
        counts = spark.count_folder(dataset.path, plan, **engine.session)
    else:
        with progress_bar("reports", dataset.rows) as progress:
            counts, digests = count(dataset, target, **engine.local, progress=progress)
    if state is not None:
        parts = [file.part for file in dataset.files if file.rows]
        state.add(counts, dataset.identity, digests, parts, shuffled)
        why = state.flaws.get(str(dataset.identity.shuffle_id))
        if why is not None and not insist:
            raise ReportsError("guarantee-broken", f"{why}; {state.path} stays as it was")
    return counts, dataset.whole


def _refuse_few(reports: int, plan: Plan) -> None:
    if reports < plan.least_reports:
        raise ReportsError(
            "too-few-users",
            f"{reports} reports, but the plan hides a user among {plan.users} users with {plan.reports} reports each: "
            f"at least {plan.least_reports}; give all files, or collect them over days with --state counts.db",
        )


def _note(counts: Counts, state: Counted | None) -> None:
    if counts.rejected:
        click.echo(f"note: {counts.rejected} reports are unreadable or name no cell, and were rejected", err=True)
    rounds = counts.plan.rounds
    if state is not None and state.shuffles > rounds:
        click.echo(
            f"note: {state.path} has counts of {state.shuffles} batches; the guarantee holds only if no user is in "
            f"more than {rounds} of them",
            err=True,
        )


def _show_missing(counts: Counts, as_json: bool) -> None:
    received = counts.received
    missing = max(0, counts.plan.least_reports - received)
    if as_json:
        document = {"plan": counts.plan.summary(), "estimate": None, "reports": received, "missing": missing}
        print_json(document)
    elif missing:
        console.print(f"{received:,} reports so far; {missing:,} more are needed before there is an estimate")
    else:
        console.print(
            f"{received:,} reports so far, but not all of every batch; give the rest, for of a part nobody can see "
            "whether enough users were honest (--without-guarantee insists)"
        )
