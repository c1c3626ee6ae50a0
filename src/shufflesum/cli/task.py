"""`shufflesum task`, `keygen` and `tokens`: what the parties of a deployment need before it starts."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from shufflesum._format import counted, upwards
from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.cli.budget import budget_option, enter_in_budget
from shufflesum.cli.commands import Command, Group
from shufflesum.cli.options import PATH
from shufflesum.cli.output import console
from shufflesum.errors import FileError, ParameterError
from shufflesum.keys import MOST_KEYED_ROUNDS, RoundKeys, generate_private_key, load_public_keys, write_key_pair
from shufflesum.noise_keys import NoiseKey
from shufflesum.plans import Plan
from shufflesum.service.shuffler.tokens import write_tokens
from shufflesum.statement import fallback
from shufflesum.tables.writers import StagedOutputs
from shufflesum.wire import Task, parse_time

_DEFAULT_DAYS = 30


@click.group("task", cls=Group)
def task_command() -> None:
    """What a deployment agrees on: a file that client, shuffler and analyzer share and nobody changes."""


@task_command.command("create", short_help="Make a task from a plan.")
@click.option("--plan", "plan_file", type=PATH, required=True, help="From shufflesum plan -o.")
@click.option("--shuffler", required=True, metavar="URL", help="Where clients send their reports.")
@click.option(
    "--analyzer-key",
    "key_file",
    type=PATH,
    required=True,
    metavar="PUB",
    help="The analyzer's public key, from shufflesum keygen.",
)
@budget_option
@click.option("--name", required=True, help="What people call it.")
@click.option("--expires", metavar="TIME", help=f"In UTC, such as 2031-05-01T12:00:00Z.  [in {_DEFAULT_DAYS} days]")
@click.option("-o", "--output", type=PATH, required=True, help="Write the task file (.json).")
def create(
    plan_file: Path,
    shuffler: str,
    key_file: Path,
    budget_file: Path | None,
    name: str,
    expires: str | None,
    output: Path,
) -> None:
    """Make a task. Its id covers all of it: to change anything, make another one.

    \b
    Example: shufflesum task create --plan plan.json --shuffler https://shuffler.example.org \\
                 --analyzer-key analyzer.pub --name "resting heart rate" -o task.json
    """
    now = SYSTEM_CLOCK.now().replace(microsecond=0)
    end = now + timedelta(days=_DEFAULT_DAYS) if expires is None else parse_time(expires)
    if end <= now:
        raise ParameterError("expired", f"--expires {expires} has passed; give a time in the future")
    if os.path.lexists(output):
        raise FileError("exists", f"{output} exists and a task is never changed; choose another output file")
    with StagedOutputs() as outputs:
        staged = outputs.stage(output, (".json",))
        task = Task(
            name=name,
            plan=Plan.load(plan_file),
            analyzer_key=load_public_keys(key_file),
            shuffler=shuffler,
            expires=end,
        )
        enter_in_budget(budget_file, task)
        outputs.write(staged, task.to_json() + "\n")
    console.print(card(task), markup=False)
    console.print(f"wrote {output}", markup=False)


@task_command.command("show", short_help="Check a task and say what it means.")
@click.argument("task_file", type=PATH, metavar="TASK")
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON object.")
def show(task_file: Path, as_json: bool) -> None:
    """Check a task file as every role does, its guarantee included, and say what it means."""
    task = Task.load(task_file)
    expired = task.expired_at(SYSTEM_CLOCK.now())
    if as_json:
        document: dict[str, Any] = json.loads(task.to_json())
        click.echo(json.dumps(document | {"expired": expired, "upload_bytes": task.upload_bytes}, indent=2))
    else:
        console.print(card(task, expired=expired), markup=False)


def card(task: Task, *, expired: bool = False) -> str:
    """The task for a person."""
    plan = task.plan
    rounds = "one round" if task.rounds == 1 else f"all {task.rounds:,} rounds together"
    lines = {
        "id": task.id,
        "shuffler": task.shuffler,
        "analyzer key": task.key_of(1).hex()
        + (f" in round 1, another in each of {task.rounds:,}" if task.keys > 1 else ""),
        "expires": f"{task.expires:%Y-%m-%d %H:%M:%S} UTC{' (it has expired)' if expired else ''}",
        "users": f"at least {task.smallest_batch:,}; nothing is released below",
        "each sends": f"one upload of {task.upload_bytes:,} bytes per round: {counted(plan.reports, 'sealed report')}",
        "guarantee": f"epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} for one user in {rounds} "
        f"({plan.accountant} accountant), computed again just now",
        "collusion": f"if shuffler and analyzer collude: {fallback(plan)}",
    }
    return "\n".join([f"Task {task.name}", *(f"  {label:<12} {text}" for label, text in lines.items())])


@click.command("keygen", cls=Command)
@click.option("-o", "--output", "name", type=PATH, metavar="NAME", help="Names the analyzer's NAME.key and NAME.pub.")
@click.option(
    "--rounds",
    type=click.IntRange(1, MOST_KEYED_ROUNDS),
    help="A key for each of so many rounds, destroyed when the round is released.  [one key for all]",
)
@click.option("--noise", type=PATH, metavar="NAME", help="Write NAME.noise instead, the key of a server's noise.")
def keygen_command(name: Path | None, rounds: int | None, noise: Path | None) -> None:
    """Write NAME.key, which stays with the analyzer, and NAME.pub, which goes into tasks.

    Where servers draw the noise, each needs a noise key of its own (--noise). NAME.noise.used beside it lists what it
    was used for. Both stay outside of backups of the server's store, and are never put back from an older copy.

    Files that exist are never overwritten. Keys are replaced by making a new task with a new key.

    \b
    Example: shufflesum keygen -o analyzer
             shufflesum keygen -o analyzer --rounds 10
             shufflesum keygen --noise shuffler
    """
    if (name is None) == (noise is None):
        raise ParameterError(
            "missing-argument", "say which keys are wanted: --output NAME for an analyzer's, or --noise NAME"
        )
    if noise is not None:
        if rounds is not None:
            raise ParameterError("conflicting-arguments", "--rounds is for an analyzer's keys, not for --noise")
        key, used = NoiseKey.write(noise)
        console.print(f"wrote {key} (secret: it stays with one server) and {used}, its list of uses", markup=False)
        return
    assert name is not None
    private, public = write_key_pair(name, generate_private_key()) if rounds is None else RoundKeys.write(name, rounds)
    console.print(f"wrote {private} (secret: it stays with the analyzer) and {public}", markup=False)


@click.command("tokens", cls=Command)
@click.option("--count", type=int, required=True, metavar="N", help="How many: one for each person.")
@click.option("-o", "--output", type=PATH, required=True, help="The tokens, to be handed out.")
@click.option("--digests", type=PATH, required=True, help="What the shuffler needs of them.")
def tokens_command(count: int, output: Path, digests: Path) -> None:
    """Make upload tokens: hand one to each person, and give the digests to the shuffler.

    A token works once in every round. Whoever hands them out knows whose they are, so that should be neither the
    shuffler nor the analyzer. Files that exist are never overwritten.

    \b
    Example: shufflesum tokens --count 1000 -o tokens.txt --digests tokens.sha256
             shufflesum serve shuffler --tokens tokens.sha256 ...
    """
    write_tokens(count, output, digests)
    console.print(f"wrote {output} (hand out, one each) and {digests} (for serve shuffler --tokens)", markup=False)
