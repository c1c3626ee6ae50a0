"""`shufflesum analyze`: shuffled reports in, a private mean and sum out."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shufflesum.cli.batch_options import check_engine, engine_options, load_target, target_options
from shufflesum.cli.options import console, progress_bar, warnings_as_notes
from shufflesum.cli.results import Results, result_options
from shufflesum.contract import Plan
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.estimation import Estimate, estimate
from shufflesum.honesty import refuse_broken
from shufflesum.protocol import Counts
from shufflesum.wire import Task, load_private_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from shufflesum.batch.once import Counted

__all__ = ["command"]


class _NotYetError(Exception):
    """Too few reports so far; nothing is to be written but the state."""


@click.command("analyze", short_help="Private mean and sum of shuffled reports.")
@click.argument("shuffled", type=click.Path(path_type=Path), required=False)
@target_options
@click.option("--key", "key_file", type=click.Path(path_type=Path), help="With --task: the analyzer's private key.")
@click.option(
    "--state",
    "state_file",
    type=click.Path(path_type=Path),
    help="Add to the counts in this file, and remember there what was counted.",
)
@result_options
@engine_options
def command(
    shuffled: Path | None,
    plan_file: Path | None,
    task_file: Path | None,
    key_file: Path | None,
    state_file: Path | None,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    confidence: float,
    memory: int,
    workers: int | None,
    engine: str,
    master: str | None,
) -> None:
    """Estimate mean and sum from SHUFFLED, a folder of shufflesum shuffle or one of its files.

    Files that come day by day are counted with --state counts.json, which grows by all of SHUFFLED or by nothing, and
    never takes a file or a batch a second time. As long as it has too few reports there is no estimate. Without
    SHUFFLED, --state shows what it has.

    \b
    Example: shufflesum analyze shuffled --plan plan.json -o mean.csv
    """
    results = Results(as_json, output, plot, confidence)
    check_engine(engine, master)
    target = load_target(plan_file, task_file)
    if (key_file is None) != (task_file is None):
        raise ParameterError("--task and --key belong together: sealed reports need both, others neither")
    if engine == "spark" and task_file is not None:
        raise ParameterError("sealed reports are opened by --engine local; leave --engine spark out")
    private_key = None if key_file is None else load_private_key(key_file)
    plan = target if isinstance(target, Plan) else target.plan
    if shuffled is None and (state_file is None or not state_file.exists()):
        missing = "" if state_file is None else f"{state_file} does not exist; "
        raise ParameterError(
            f"{missing}give SHUFFLED, the folder to count, or --state with a file of counts from before"
        )
    work = _Work(engine, master, memory, workers)
    from shufflesum.batch.once import Counted

    found: Estimate | None = None
    with nullcontext() if state_file is None else Counted(state_file, plan) as state:
        try:
            with results.staged(shuffled, plan_file, task_file, key_file, state_file) as write, warnings_as_notes():
                if shuffled is not None:
                    counts = _count(shuffled, target, private_key, state, work)
                if state is not None:
                    counts = state.counts
                _note(counts, state)
                if state is not None and counts.accepted < plan.least_reports:
                    raise _NotYetError
                found = estimate(counts)
                write(found, (shuffled or state_file or Path()).name, None)
        except _NotYetError:
            pass
        if state is not None and shuffled is not None:
            state.save()  # last: if it fails, the same files can be given again
    if found is not None:
        results.show(found)
    else:
        _show_missing(counts, as_json)


@dataclass(frozen=True, slots=True)
class _Work:
    """Where the counting is done."""

    engine: str
    master: str | None
    memory: int
    workers: int | None


def _count(
    shuffled: Path,
    target: Plan | Task,
    private_key: X25519PrivateKey | None,
    state: Counted | None,
    work: _Work,
) -> Counts:
    """Count a folder, and add it to the state if there is one."""
    from shufflesum.batch.count import count, file_digests
    from shufflesum.batch.files import open_dataset
    from shufflesum.batch.steps import check_target, plan_of

    plan = plan_of(target)
    dataset = open_dataset(shuffled, stage="shuffled")
    check_target(dataset.identity, target)
    if state is not None:
        state.check(dataset.identity)
    else:
        _refuse_few(dataset.rows, plan)
    if work.engine == "spark":
        from shufflesum.batch import spark

        digests = file_digests(dataset)
        counts = spark.count_folder(dataset.path, plan, master=work.master)
    else:
        with progress_bar("reports", dataset.rows) as progress:
            counts, digests = count(
                dataset, target, private_key=private_key, memory=work.memory, workers=work.workers, progress=progress
            )
    if dataset.whole:
        refuse_broken(counts, dataset.rows // plan.reports)
    if state is not None:
        parts = [file.part for file in dataset.files if file.rows]
        state.add(counts, dataset.identity, digests, parts, whole=dataset.whole)
    elif not dataset.whole:
        _note_parts()
    return counts


def _refuse_few(reports: int, plan: Plan) -> None:
    if reports < plan.least_reports:
        raise ReportsError(
            f"{reports} reports, but the plan hides a user among {plan.users} users with {plan.reports} reports each: "
            f"at least {plan.least_reports}; give all files, or collect them over days with --state counts.json"
        )


def _note_parts() -> None:
    """Of parts of a batch, which have no manifest, nobody can say from how many honest users it came."""
    click.echo(
        "note: without the folder's _shufflesum.json nobody can see whether enough users were honest; "
        "the guarantee rests on that",
        err=True,
    )


def _note(counts: Counts, state: Counted | None) -> None:
    if counts.rejected:
        click.echo(f"note: {counts.rejected} reports are unreadable or outside the domain, and were rejected", err=True)
    if state is not None and not state.whole:
        _note_parts()
    rounds = counts.plan.rounds
    if state is not None and state.shuffles > rounds:
        click.echo(
            f"note: {state.path} has counts of {state.shuffles} batches; the guarantee holds only if no user is in "
            f"more than {rounds} of them",
            err=True,
        )


def _show_missing(counts: Counts, as_json: bool) -> None:
    missing = counts.plan.least_reports - counts.accepted
    if as_json:
        document = {"plan": counts.plan.summary(), "estimate": None, "reports": counts.accepted, "missing": missing}
        click.echo(json.dumps(document, allow_nan=False))
    else:
        console.print(f"{counts.accepted:,} reports so far; {missing:,} more are needed before there is an estimate")
