"""`shufflesum plan`, `statement` and `explore`: from users, what they hold and privacy to a plan, or from an error."""

from __future__ import annotations

import secrets
import socket
import warnings
import webbrowser
from pathlib import Path
from typing import Any

import click

from shufflesum._format import counted, upwards
from shufflesum.cautions import ShufflesumWarning
from shufflesum.cli.commands import Command
from shufflesum.cli.options import PATH, plan_from_options, wanted_options
from shufflesum.cli.output import Outputs, console, print_card, table_of, warnings_as_notes
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.planning import alternatives
from shufflesum.plans import Plan
from shufflesum.plots import error_chart, save_chart
from shufflesum.service import require_explorer
from shufflesum.statement import statement

_USERS = (1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000)
"""For the table of epsilon by users."""


def _margins(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> float | dict[str, float] | None:
    """`X` for all means, or `NAME=X` for each."""
    if not texts:
        return None
    named = [text.rpartition("=")[::2] for text in texts]
    names = [name for name, _ in named]
    try:
        errors = [float(error) for _, error in named]
    except ValueError:
        errors = []
    if not errors or len(set(names)) < len(names) or ("" in names and len(names) > 1):
        raise ParameterError(
            "wrong-type", f"--margin is {' and '.join(texts)}; give one number for all, or NAME=X once for each column"
        )
    return errors[0] if names == [""] else dict(zip(names, errors, strict=True))


@click.command("plan", cls=Command)
@wanted_options
@click.option(
    "--margin",
    multiple=True,
    callback=_margins,
    metavar="X",
    help="Keep each mean within ± X at 95 %, in its unit, NAME=X for a column, or each label's share, such as 0.01: "
    "finds the least --users, or --epsilon, whichever is left out; without both, epsilon for several numbers of users.",
)
@click.option(
    "--target-error",
    type=float,
    metavar="X",
    help="Instead: squared error of the mean, summed over coordinates, in squared units of the values, of frequencies "
    "summed over labels, of one word's frequency.",
)
@click.option("--details", is_flag=True, help="Print all that follows from the plan, such as the parts of its error.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("-o", "--output", type=PATH, help="Write the plan file (.json).")
@click.option("--plot", type=PATH, help="Draw the predicted error by number of reports.")
def plan_command(
    margin: float | dict[str, float] | None,
    target_error: float | None,
    details: bool,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    **arguments: Any,
) -> None:
    """Plan a collection: what users send, what is guaranteed, what error to expect.

    \b
    Example: shufflesum plan --users 50000 --dimension 100 --epsilon 1 --delta 1e-6 -o plan.json
             shufflesum plan --users 50000 --bounds age=0:120 --bounds income=0:500000 --epsilon 1 --delta 1e-6
             shufflesum plan --users 5000 --bounds age=0:120 --margin age=1 --delta 1e-6
             shufflesum plan --target-error 0.001 --dimension 100 --epsilon 1 --delta 1e-6
             shufflesum plan --users 50000 --labels yes,no,unsure --epsilon 1 --delta 1e-6 -o plan.json
             shufflesum plan --users 6000 --dimension 7850 --clipping-norm 0.4 --rounds 30 --epsilon 2 --delta 1e-6

    --labels alone counts one label a user, with --max-choices S up to S labels, with --dimension or --shape it is for
    means of numbers in groups. --bins counts numbers in bins, --open-vocabulary any words.
    """
    with (outputs := Outputs()), warnings_as_notes():
        staged, staged_plot = outputs.file(output, ".json"), outputs.chart(plot)
        errors = {"target_error": target_error, "margin": margin}
        wanted = {name: error for name, error in errors.items() if error is not None}
        if wanted and arguments["users"] is None and arguments["epsilon"] is None:
            if output or plot or as_json:
                raise ParameterError(
                    "missing-argument", "--users or --epsilon is missing: without both there is a table, and no plan"
                )
            _print_epsilons(wanted, arguments)
            return
        plan = plan_from_options(wanted, **arguments)
        if staged:
            outputs.write(staged, plan.to_json())
        if staged_plot:
            _draw(plan, staged_plot)
    if as_json:
        click.echo(plan.to_json())
    else:
        print_card(plan, arguments.get("assumed_std"), details=details)
        outputs.say_written()


def _print_epsilons(wanted: dict[str, Any], arguments: dict[str, Any]) -> None:
    """The least epsilon for the error, by users."""
    table = table_of("users", "least epsilon", "each sends", words=(2,))
    for users in _USERS:
        try:
            with warnings.catch_warnings(action="ignore"):
                plan = plan_from_options(wanted, **{**arguments, "users": users})
        except PrivacyError:
            table.add_row(f"{users:,}", "out of reach", "")
        else:
            table.add_row(f"{users:,}", upwards(plan.epsilon), counted(plan.reports, "report"))
    console.print(table)
    console.print("--users N, or --epsilon E, makes the plan of one line.")


def _draw(plan: Plan, path: Path) -> None:
    parts = {
        f"{option.reports:,} {option.mechanism.kind}": {
            "sampling": option.expected_error.sampling,
            "rounding": option.expected_error.rounding,
            "noise": option.expected_error.noise,
        }
        for option in alternatives(plan)
    }
    chart = error_chart(
        parts,
        title="Predicted error by what a user sends",
        subtitle=f"{plan.users:,} users, {plan.domain.size_text()}, epsilon {upwards(plan.epsilon)}, "
        f"delta {upwards(plan.delta)}; worst data, certified noise",
    )
    save_chart(chart, path)


@click.command("statement", cls=Command)
@click.argument("plan_file", metavar="PLAN", type=PATH)
@click.option("-o", "--output", type=PATH, help="Write the page (.md) instead of printing it.")
def statement_command(plan_file: Path, output: Path | None) -> None:
    """Say for a privacy officer who sees what, what is guaranteed, on which assumptions, and what is left without them.

    The plan's claim is computed again first; a plan that claims too much is refused.
    """
    text = statement(Plan.load(plan_file))
    if output is None:
        click.echo(text)
        return
    with (outputs := Outputs()):
        outputs.write(outputs.stage(output, (".md",)), text)
    click.echo(f"wrote {output}")


@click.command("explore", cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of this machine.  [a free one]")
@click.option("--no-browser", is_flag=True, help="Print the page's address and open nothing.")
def explore_command(port: int, no_browser: bool) -> None:
    """Open a page on this machine that plans: users, what they hold, epsilon or a margin, delta.

    It shows the plan, its statement, and the error against epsilon and against users: for both mechanisms, the paper's
    formula and a trusted curator. Only this machine can reach it, and only by the address that is printed. Ctrl-C ends
    it.
    """
    require_explorer()
    import uvicorn

    from shufflesum.explorer import explorer_app

    token = secrets.token_urlsafe(16)
    warnings.simplefilter("ignore", ShufflesumWarning)  # the page's card says it
    with _listen(port) as listener:
        port = listener.getsockname()[1]
        app = explorer_app(token=token, port=port)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off", server_header=False))
        address = f"http://127.0.0.1:{port}/{token}/"
        console.print(f"{address}\nCtrl-C ends it", markup=False)
        if not no_browser:
            webbrowser.open(address)
        server.run(sockets=[listener])


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ParameterError(
            "address-taken", f"cannot listen on port {port}: {error.strerror or error}; choose another --port"
        ) from error
