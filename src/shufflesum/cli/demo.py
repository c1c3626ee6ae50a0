"""`shufflesum demo`: a synthetic crowd, aggregated privately, with the truth beside it."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from click.core import ParameterSource

from shufflesum._format import upwards
from shufflesum.aggregation import aggregate_batches
from shufflesum.cli.loopback import run_service_demo
from shufflesum.cli.options.common import Command
from shufflesum.cli.output.printed import console, print_estimate, progress_bar, warnings_as_notes
from shufflesum.errors import FileError, ParameterError
from shufflesum.planning import plan as make_plan
from shufflesum.plots import DRAWABLE, estimate_chart, require_plots, save_chart
from shufflesum.synthetic import heartbeats
from shufflesum.tables import StagedOutputs

_SAMPLES = 100
_SERVICE_USERS = 2000


@click.command("demo", cls=Command, short_help="Aggregate a synthetic crowd privately and draw the result.")
@click.option(
    "--users",
    type=click.IntRange(min=100),
    default=50_000,
    show_default=True,
    help=f"Size of the crowd; with --service {_SERVICE_USERS} unless given.",
)
@click.option("--epsilon", type=float, default=1.0, show_default=True)
@click.option("--delta", type=float, default=1e-6, show_default=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("demo-output"), help="Folder for the picture."
)
@click.option("--service", is_flag=True, help="Run shuffler and analyzer as servers on this machine instead.")
def command(users: int, epsilon: float, delta: float, output: Path, service: bool) -> None:
    """Make a crowd of synthetic heartbeats, learn their mean beat privately, and draw it beside the true one.

    The beats come from a model of the P, Q, R, S and T waves, so the truth is known and nobody's data is used.
    """
    if service:
        context = click.get_current_context()
        given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
        if unheeded := sorted(given - {"service", "users"}):
            raise ParameterError(
                "conflicting-arguments",
                f"--{unheeded[0]} is not for --service, which draws nothing and has its own plan",
            )
        run_service_demo(console, users=users if "users" in given else _SERVICE_USERS)
        return
    require_plots()
    console.print(f"{users:,} people, each with one heartbeat of {_SAMPLES} samples that nobody else may see.")
    with warnings_as_notes():
        plan = make_plan(
            users=users, shape=_SAMPLES, epsilon=epsilon, delta=delta, bounds=(0.0, 1.0), noise_by="curator"
        )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise FileError("unwritable", f"cannot make the folder {output}: {problem.strerror}") from problem
    picture = output / "heartbeat.png"
    with StagedOutputs() as outputs, warnings_as_notes():
        staged = outputs.stage(picture, DRAWABLE)
        beats = heartbeats(users, _SAMPLES)
        truth = beats.mean(axis=0, dtype=np.float64)
        with progress_bar("people", users) as progress:
            batches = (beats[start : start + 10_000] for start in range(0, users, 10_000))
            estimate = aggregate_batches(batches, plan, progress=progress)
        squared_error = float(np.sum((estimate.mean - truth) ** 2))
        print_estimate(estimate, 0.95)
        console.print(
            f"squared error of the whole mean beat: {squared_error:.3g} "
            f"(expected: {plan.expected_error.total:.3g} on the worst data, less on most)"
        )
        times = plan.times_curator
        console.print(
            f"a trusted curator's would be {plan.curator_error:.3g}: ours is expected {upwards(times)} times it"
        )
        chart = estimate_chart(
            estimate,
            truth=truth,
            title="The mean heartbeat of a synthetic crowd, learned privately",
            subtitle=f"{users:,} made-up people, epsilon {upwards(epsilon)}, "
            f"delta {upwards(delta)}; expected squared error {upwards(times)} times a trusted curator's",
        )
        save_chart(chart, staged)
    console.print(f"picture: {picture}", markup=False)
