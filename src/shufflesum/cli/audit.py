"""`shufflesum privacy` and `audit`: what is certified, and attacks on the randomizer that is installed here."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shufflesum._format import downwards, upwards
from shufflesum._search import GRID
from shufflesum.audit import AuditResult, Drawn, audit
from shufflesum.cells import MOST_CELLS
from shufflesum.cli.commands import Command, conflict
from shufflesum.cli.options import PATH, plan_of_file, plan_options, with_mechanism
from shufflesum.cli.output import console, print_json, progress_bar, warnings_as_notes
from shufflesum.domains import Arrays
from shufflesum.errors import ParameterError
from shufflesum.mechanisms import NoisyCounts
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee, PrivacyAccountant, RandomizedResponseAccountant

if TYPE_CHECKING:
    from shufflesum.loopback import ServiceAudit


_DEFAULTS: dict[str, Any] = {"users": 10_000, "dimension": 10, "epsilon": 1.0, "delta": 1e-6}
_SERVICE_DEFAULTS: dict[str, Any] = {"users": 200, "dimension": 4, "epsilon": 8.0, "delta": 1e-6, "rounds": 12}
# so that many batches fit
_FEW_REPORTS: dict[str, Any] = {"mechanism": "randomized-response", "coordinates": 4, "levels": 2}


@click.command("audit", cls=Command)
@click.option("--plan", "plan_file", type=PATH, help="Audit this plan.  [one is made]")
@click.option("--users", type=int, metavar="N", help="Users of the plan that is made.  [10000]")
@click.option("--dimension", type=int, metavar="D", help="Its dimension.  [10]")
@click.option("--epsilon", type=float, metavar="E", help="Its epsilon.  [1]")
@click.option("--delta", type=float, metavar="P", help="Its delta.  [1e-6]")
@plan_options
@click.option(
    "--confidence",
    type=float,
    default=0.999999,
    show_default=True,
    help="A randomizer that follows its plan passes at least this often.",
)
@click.option("--samples", type=int, metavar="N", help="Single reports to look at, at least.  [noise known within 1%]")
@click.option("--trials", type=int, default=2_000, show_default=True, help="Whole batches to tell apart.")
@click.option("--seconds", type=float, default=20.0, show_default=True, help="Stop sampling after about so long.")
@click.option(
    "--service",
    is_flag=True,
    help="Audit a whole deployment: real servers on this machine, with files of their own, that end with the audit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def audit_command(
    plan_file: Path | None,
    confidence: float,
    samples: int | None,
    trials: int,
    seconds: float,
    service: bool,
    as_json: bool,
    **plan_arguments: Any,
) -> None:
    """Attack the randomizer on the worst pair of data sets that differ in one user.

    The attack proves a lower bound on epsilon, which stands beside the certified upper bound, for many rows in one
    call. Counts of cells, of single users, neighbours, batches, calls and forked processes are compared with the plan's
    distribution: for many rows, for one row at a time, compiled and not, among the fewer users that there is time for,
    and of what one process counts for whole batches. For each path the result says how many users reported, and how
    much less noise would have shown. Exit code 1 if the bounds cross or a count deviates: the randomizer is broken.

    With --service known users go through a real shuffler and analyzer, sealed, and what comes out is looked at: tables
    of counts against the plan's distribution, sizes of uploads, and what the servers' files hold. --samples and
    --trials do not matter then.

    \b
    Example: shufflesum audit --plan plan.json --seconds 60
    """
    if service:
        _audit_service(plan_file, plan_arguments, confidence, seconds, as_json)
        return
    with warnings_as_notes():
        plan = _audited_plan(plan_file, plan_arguments)
        with progress_bar("attack", 100) as bar:
            result = audit(
                plan,
                confidence=confidence,
                samples=samples,
                trials=trials,
                seconds=seconds,
                progress=lambda part: bar(int(100 * part)),
            )
    if as_json:
        print_json(_document(result))
    else:
        _print_card(result)
    if not result.passed:
        click.echo(f"shufflesum: AUDIT FAILED: {result.verdict}", err=True)
        sys.exit(1)


def _audit_service(
    plan_file: Path | None, plan_arguments: dict[str, Any], confidence: float, seconds: float, as_json: bool
) -> None:
    from shufflesum.loopback import audit_service

    given = {name for name, value in plan_arguments.items() if value is not None}
    simple = given <= {"users", "epsilon", "delta", "rounds"}
    defaults = {**_SERVICE_DEFAULTS, **(_FEW_REPORTS if simple else {})}
    with warnings_as_notes():
        plan = _audited_plan(plan_file, plan_arguments, defaults)
        result = audit_service(plan, confidence=confidence, seconds=seconds)
    if as_json:
        document = {**_verdict_document(result), "batches": result.batches, "uploads": result.uploads}
        print_json(document)
    else:
        console.print(f"[bold]Audit of a deployment of plan {result.plan.id[:16]}[/bold]")
        console.print(
            f"  sent         {result.uploads:,} uploads of known users, in {result.batches:,} released batches"
        )
        console.print(f"  counted      {_listed(result)}")
        verdict = "consistent: nothing that was counted deviates from the plan" if result.passed else "FAILED"
        console.print(f"  verdict      [bold]{verdict}[/bold]")
    if not result.passed:
        click.echo(
            f"shufflesum: AUDIT FAILED: {'; '.join(result.findings)}. Release nothing of this service.", err=True
        )
        sys.exit(1)


def _audited_plan(plan_file: Path | None, arguments: dict[str, Any], defaults: dict[str, Any] | None = None) -> Plan:
    given = {name: value for name, value in arguments.items() if value is not None}
    if plan_file is None:
        settings = {**(defaults or _DEFAULTS), **given}
        return make_plan(shape=settings.pop("dimension"), **with_mechanism(settings))
    return plan_of_file(plan_file, given)


def _listed(result: AuditResult | ServiceAudit) -> str:
    return ", ".join(f"{tested.kind} ({tested.counts:,})" for tested in result.tested)


def _drawn(drawn: Drawn) -> str:
    """Who reported along a path, and what they would have shown."""
    who = f"{drawn.path}: {drawn.users:,} users who held {drawn.held:,} rows"
    if drawn.less_noise is None:
        return f"{who}, too few to show even that they have no noise"
    return f"{who}; {upwards(100 * drawn.less_noise, 2)} % less noise for all of them would have shown"


def _print_card(result: AuditResult) -> None:
    plan, reports, batches = result.plan, result.report_attack, result.batch_attack
    evidence = f"{reports.reports:,} reports, with at most {upwards(reports.noise, 4)} times the plan's noise"
    apart = f"by telling {batches.batches:,} whole batches apart"
    verb = "brings" if plan.noise_by == "curator" else "sends"
    spent = "" if batches.epsilon_lower else " (too few to show anything at this delta)"
    by_batches = f"epsilon >= {downwards(batches.epsilon_lower, 4)}, {apart}{spent}"
    by_reports = {
        "proved": f"epsilon >= [bold]{downwards(reports.epsilon_lower, 4)}[/bold], by {evidence},",
        "  ": "if they are independent, of one distribution for equal data (docs/privacy.md, lower bounds)",
        "": by_batches,
    }
    lines = {
        "plan": f"{plan.users:,} users, each {verb} {plan.mechanism.describe(plan.encoding)}",
        "at delta": f"{upwards(plan.delta)}, with confidence {result.confidence:.15g}:",
        "certified": f"epsilon <= [bold]{upwards(result.epsilon_upper, 4)}[/bold], for every data set",
        **(by_reports if reports.reports else {"proved": by_batches}),
        "counted": f"{_listed(result)};",
        **{"   " + " " * number: f"by {_drawn(each)}" for number, each in enumerate(result.paths)},
        "verdict": f"[bold]{result.verdict if result.passed else 'FAILED'}[/bold]",
    }
    if result.passed and result.epsilon_lower < result.epsilon_upper / 2:
        lines[" "] = "but much less is proved than certified: " + (
            "under uniform sampling single reports prove no epsilon; their distribution was tested"
            if not result.lower_bound_known
            else "too few reports to notice small defects; give more --seconds"
        )
    console.print(f"[bold]Audit of plan {plan.id[:16]}[/bold]")
    for label, text in lines.items():
        console.print(f"  {label:<12} {text}")


def _document(result: AuditResult) -> dict[str, Any]:
    return {
        **_verdict_document(result),
        "delta": result.plan.delta,
        "epsilon_upper": result.epsilon_upper if math.isfinite(result.epsilon_upper) else None,
        "epsilon_lower": result.epsilon_lower,
        "crossed": result.crossed,
        "paths": [each._asdict() for each in result.paths],
        "report_attack": asdict(result.report_attack) if result.report_attack.reports else None,
        "batch_attack": asdict(result.batch_attack),
    }


def _verdict_document(result: AuditResult | ServiceAudit) -> dict[str, Any]:
    return {
        "plan_id": result.plan.id,
        "confidence": result.confidence,
        "passed": result.passed,
        "findings": list(result.findings),
        "tested": {each.kind: {"counts": each.counts, "events": each.events} for each in result.tested},
    }


def _numbers(_: click.Context, parameter: click.Parameter, text: str | None) -> list[float] | None:
    whole = parameter.name == "trials"
    try:
        numbers = None if text is None else [int(number) if whole else float(number) for number in text.split(",")]
    except ValueError:
        numbers = [math.nan]
    if numbers is not None and not all(map(math.isfinite, numbers)):
        shape = "whole numbers with commas, such as 10,5,3" if whole else "numbers with commas, such as 0.02,0.01"
        raise ParameterError("wrong-type", f"--{parameter.name} is {text!r}; write {shape}")
    return numbers


@click.command("privacy", cls=Command)
@click.option("--plan", "plan_file", type=PATH, help="That of this plan; instead of all below.")
@click.option("--users", type=int, metavar="N", help="Users in a batch.")
@click.option("--dimension", type=int, metavar="D", help="Coordinates of all; needed but for stratified sampling.")
@click.option("--levels", type=int, metavar="K", help="randomized-response: rounding steps of a value.")
@click.option("--noise-probability", type=float, metavar="G", help="randomized-response: chance of a random report.")
@click.option("--coordinates", type=int, metavar="T", help="randomized-response: coordinates a user reports.  [1]")
@click.option("--sampling", type=click.Choice(["stratified", "uniform"]), help="randomized-response.  [stratified]")
@click.option("--trials", callback=_numbers, metavar="Q,...", help="noisy-counts: a user's trials, digit by digit.")
@click.option("--probabilities", callback=_numbers, metavar="P,...", help="noisy-counts: their chances.")
@click.option("--cap", type=int, metavar="C", help="noisy-counts: most dummy reports of a user.  [none]")
@click.option("--rounds", type=int, default=1, show_default=True, metavar="R", help="Rounds each user takes part in.")
@click.option("--honest-fraction", type=float, default=1.0, show_default=True, metavar="F")
@click.option("--epsilon", type=float, help="Ask for delta at this epsilon.")
@click.option("--delta", type=float, help="Ask for epsilon at this delta.")
@click.option("--json", "as_json", is_flag=True)
def privacy_command(epsilon: float | None, delta: float | None, as_json: bool, **given: Any) -> None:
    """Bound delta at an epsilon, or epsilon at a delta, from both sides.

    The upper bound holds for every data set; the lower bound is shown by concrete data sets, so nothing can beat it.

    \b
    Example: shufflesum privacy --plan plan.json --epsilon 0.5
             shufflesum privacy --users 50000 --levels 3 --noise-probability 0.004 --delta 1e-6
             shufflesum privacy --users 50000 --dimension 100 --trials 2 --probabilities 0.0205 --delta 1e-6
    """
    if (epsilon is None) == (delta is None):
        raise conflict("give exactly one of --epsilon (to ask for delta) and --delta (to ask for epsilon)")
    accountant = _accountant({name: value for name, value in given.items() if value is not None})
    if epsilon is not None:
        asked, found = "delta", accountant.delta(epsilon)
        answer = {"epsilon": epsilon, "delta_upper": found.upper, "delta_lower": found.lower}
    else:
        assert delta is not None
        asked, found = "epsilon", accountant.epsilon(delta)
        answer = {"delta": delta, "epsilon_upper": found.upper, "epsilon_lower": found.lower}
    if as_json:
        click.echo(json.dumps({name: value if value < float("inf") else None for name, value in answer.items()}))
        return
    at = f"epsilon {upwards(epsilon)}" if epsilon is not None else f"delta {upwards(delta or 0.0)}"
    console.print(f"at {at}: {asked} is at most [bold]{upwards(found.upper, 4)}[/bold] for every data set,")
    console.print(f"and at least {downwards(found.lower, 4)} for some")
    alone = accountant.local_epsilon
    console.print(f"without the shuffler: {'none' if alone is None else f'epsilon {upwards(alone, 4)}, delta 0'}")


def _accountant(given: dict[str, Any]) -> PrivacyAccountant:
    usual = {"rounds": 1, "honest_fraction": 1.0}
    if plan_file := given.pop("plan_file", None):
        return plan_of_file(plan_file, (name for name, value in given.items() if usual.get(name) != value)).privacy
    guarantee = Guarantee(1.0, 1.0, _needed(given, "users"), given["honest_fraction"], given["rounds"], "none")
    if "trials" in given or "probabilities" in given:
        trials, chances = _needed(given, "trials"), _needed(given, "probabilities")
        if others := given.keys() & {"levels", "noise_probability", "coordinates", "sampling"}:
            name = min(others).replace("_", "-")
            raise conflict(f"--trials means mechanism 'noisy-counts', and --{name} 'randomized-response'")
        drawn = tuple(math.floor(chance * GRID) / GRID for chance in chances)  # no more noise than was asked about
        mechanism = NoisyCounts(len(trials), tuple(trials), drawn, given.get("cap", MOST_CELLS))
        numbers = Arrays(_needed(given, "dimension"))
        return Plan(numbers, mechanism, guarantee).privacy
    return RandomizedResponseAccountant(
        users=guarantee.users,
        levels=_needed(given, "levels"),
        noise_probability=_needed(given, "noise_probability"),
        coordinates=given.get("coordinates", 1),
        rounds=guarantee.rounds,
        dimension=given.get("dimension"),
        sampling=given.get("sampling", "stratified"),
        honest_fraction=guarantee.honest_fraction,
    )


def _needed(given: dict[str, Any], name: str) -> Any:
    if name not in given:
        raise ParameterError("missing-argument", f"--{name.replace('_', '-')} is missing; give it, or a --plan")
    return given[name]
