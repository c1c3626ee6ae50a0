"""`shufflesum analyze`: shuffled reports in; private means, counts or means of groups out."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shufflesum.cli.options.batch import check_engine, engine_options, load_target, target_options
from shufflesum.cli.options.common import PLACE
from shufflesum.cli.options.configured import ConfiguredCommand
from shufflesum.cli.options.wanted import candidates_option
from shufflesum.cli.output.printed import console, progress_bar, warnings_as_notes
from shufflesum.cli.output.results import Results, result_options
from shufflesum.domains.options import read_words
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.estimate import BaseEstimate
from shufflesum.plans import Plan
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.tables import PathOrUrl

if TYPE_CHECKING:
    from shufflesum.batch.once import Counted
    from shufflesum.batch.targets import Target


class _NotYetError(Exception):
    """Too few reports so far, or not all of a batch; nothing is to be written but the state."""


@click.command("analyze", cls=ConfiguredCommand, short_help="Private means, counts or group means of shuffled reports.")
@click.argument("shuffled", type=PLACE, required=False)
@target_options
@click.option("--key", "key_file", type=click.Path(path_type=Path), help="With --task: the analyzer's private key.")
@click.option(
    "--state",
    "state_file",
    type=click.Path(path_type=Path),
    help="Add to the counts in this file, and remember there what was counted.",
)
@click.option(
    "--without-guarantee", is_flag=True, help="Insist on an estimate where the plan's guarantee cannot be confirmed."
)
@candidates_option
@result_options
@engine_options
def command(
    shuffled: PathOrUrl | None,
    plan_file: Path | None,
    task_file: Path | None,
    key_file: Path | None,
    state_file: Path | None,
    without_guarantee: bool,
    candidates: Path | None,
    results: Results,
    memory: int,
    workers: int | None,
    engine: str,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Estimate what the plan is for from SHUFFLED, a folder of shufflesum shuffle or one of its files.

    Files that come day by day are counted with --state counts.json, which grows by all of SHUFFLED or by nothing, and
    never takes a file or a batch a second time; the same command again adds nothing. As long as it has too few reports
    there is no estimate, and none where the reports contradict the plan's honest users or are only some of a batch's.
    Without SHUFFLED, --state shows what it has.

    \b
    Example: shufflesum analyze shuffled --plan plan.json -o mean.csv
    """
    asked = None if candidates is None else read_words(candidates, "candidates")
    results = replace(results, asked=asked)
    check_engine(engine, master, conf)
    target = load_target(plan_file, task_file, key_file=key_file)
    if (key_file is None) != (task_file is None):
        raise ParameterError(
            "conflicting-arguments", "--task and --key belong together: sealed reports need both, others neither"
        )
    if engine == "spark" and task_file is not None:
        raise ParameterError(
            "conflicting-arguments", "sealed reports are opened by --engine local; leave --engine spark out"
        )
    plan = target.plan
    results.check_plan(plan)
    if shuffled is None and (state_file is None or not state_file.exists()):
        missing = "" if state_file is None else f"{state_file} does not exist; "
        raise ParameterError(
            "missing-argument",
            f"{missing}give SHUFFLED, the folder to count, or --state with a file of counts from before",
        )
    inputs = (shuffled, plan_file, task_file, key_file, state_file, candidates)
    work = _Work(engine, master, conf, memory, workers, without_guarantee)
    from shufflesum.batch.once import Counted

    found: BaseEstimate | None = None
    with nullcontext() if state_file is None else Counted(state_file, plan) as state:
        try:
            with results.staged(*inputs) as write, warnings_as_notes():
                whole, flaws = True, list[str]()
                if shuffled is not None:
                    counts, whole = _count(shuffled, target, state, work)
                if state is not None:
                    counts, whole, flaws = state.counts, state.whole, list(state.flaws.values())
                _note(counts, state)
                if state is not None and not (counts.users >= plan.users and (whole or without_guarantee)):
                    raise _NotYetError
                found = results.answer(release(counts, whole=whole, flaws=flaws, without_guarantee=without_guarantee))
                write(found, (shuffled or state_file or Path()).name, None)
        except _NotYetError:
            pass
        if state is not None and shuffled is not None:
            state.save()  # last: if it fails, the same files can be given again
    if found is not None:
        results.show(found)
    else:
        _show_missing(counts, results.as_json)


@dataclass(frozen=True, slots=True)
class _Work:
    """Where the counting is done, and whether somebody insists on it."""

    engine: str
    master: str | None
    conf: dict[str, str]
    memory: int
    workers: int | None
    without_guarantee: bool


def _count(shuffled: PathOrUrl, target: Target, state: Counted | None, work: _Work) -> tuple[Counts, bool]:
    """Count a folder, and add it to the state if there is one; also whether it is all that a shuffle wrote."""
    from shufflesum.batch.count import count
    from shufflesum.batch.files import file_digests, open_dataset

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
    if work.engine == "spark":
        from shufflesum.batch import spark

        digests = file_digests(dataset)
        counts = spark.count_folder(dataset.path, plan, master=work.master, conf=work.conf)
    else:
        with progress_bar("reports", dataset.rows) as progress:
            counts, digests = count(dataset, target, memory=work.memory, workers=work.workers, progress=progress)
    if state is not None:
        parts = [file.part for file in dataset.files if file.rows]
        state.add(counts, dataset.identity, digests, parts, shuffled)
        why = state.flaws.get(str(dataset.identity.shuffle_id))
        if why is not None and not work.without_guarantee:
            raise ReportsError("guarantee-broken", f"{why}; {state.path} stays as it was")
    return counts, dataset.whole


def _refuse_few(reports: int, plan: Plan) -> None:
    if reports < plan.least_reports:
        raise ReportsError(
            "too-few-users",
            f"{reports} reports, but the plan hides a user among {plan.users} users with {plan.reports} reports each: "
            f"at least {plan.least_reports}; give all files, or collect them over days with --state counts.json",
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
        click.echo(json.dumps(document, allow_nan=False))
    elif missing:
        console.print(f"{received:,} reports so far; {missing:,} more are needed before there is an estimate")
    else:
        console.print(
            f"{received:,} reports so far, but not all of every batch; give the rest, for of a part nobody can see "
            "whether enough users were honest (--without-guarantee insists)"
        )
