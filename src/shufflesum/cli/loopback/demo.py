"""All three parties on this machine: two servers as processes, a crowd of made-up users, and what each party saw."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from shufflesum._clock import SYSTEM_CLOCK
from shufflesum._rounding import upwards
from shufflesum.cli.loopback.servers import Server, deployed
from shufflesum.cli.output.terminal import table_of
from shufflesum.planning import plan as make_plan
from shufflesum.service import require_service
from shufflesum.service.client import Client, fetch_estimate
from shufflesum.service.client.web import web_client
from shufflesum.synthetic import heartbeats
from shufflesum.wire import SEALED_BYTES, Task

__all__ = ["run_service_demo"]

_SAMPLES, _COORDINATES = 20, 4
_SECONDS = 120.0


def run_service_demo(console: Console, *, users: int) -> None:
    """Start shuffler and analyzer, send a synthetic crowd, print the estimate and what each party saw, stop all."""
    require_service()
    plan = make_plan(users=users, shape=_SAMPLES, epsilon=1.0, delta=1e-6, coordinates=_COORDINATES)
    beats = heartbeats(users, _SAMPLES)
    with deployed("demo", plan) as deployment:
        task = deployment.task
        console.print(f"analyzer, shuffler and {users:,} users run on this machine, each with files of its own")
        start = SYSTEM_CLOCK.monotonic()
        with Client(task, contributions=deployment.contributions) as client:
            client.upload_many(beats, [f"user {i}" for i in range(users)])
        console.print(
            f"{users:,} uploads randomized, sealed and acknowledged in {SYSTEM_CLOCK.monotonic() - start:.1f} s"
        )
        document = fetch_estimate(task, deployment.analyzer_url, wait=_SECONDS)
        _print_estimate(console, task, document["rounds"][0], beats.mean(axis=0, dtype=np.float64))
        _print_views(console, task, document["rounds"][0], deployment.shuffler)
    console.print("both servers have stopped, and their files are gone")


def _print_estimate(console: Console, task: Task, found: dict[str, Any], truth: NDArray[np.float64]) -> None:
    plan = task.plan
    console.print(
        f"\n[bold]What the analyzer publishes[/bold]: {found['users']:,} users, epsilon {upwards(plan.epsilon)}, "
        f"delta {upwards(plan.delta)}"
    )
    table = table_of("sample", "mean", "standard error", "true mean", words=())
    for i in range(0, _SAMPLES, 3):
        table.add_row(str(i), f"{found['mean'][i]:.3f}", f"{found['standard_error'][i]:.3f}", f"{truth[i]:.3f}")
    console.print(table)
    console.print("(the true mean is known only because the crowd is made up)")


def _print_views(console: Console, task: Task, found: dict[str, Any], shuffler: Server) -> None:
    end = SYSTEM_CLOCK.monotonic() + _SECONDS
    while not any(event["event"] == "batch released" for event in shuffler.events()) and SYSTEM_CLOCK.monotonic() < end:
        SYSTEM_CLOCK.wait(0.05)
    with web_client(task.shuffler) as http:
        metrics = http.get(f"{task.shuffler}/metrics").text.splitlines()
    console.print("\n[bold]What the shuffler saw[/bold]: sizes only")
    console.print(
        f"  {found['uploads']:,} uploads of exactly {task.upload_bytes} bytes, every report sealed for the analyzer; "
        "after the release it keeps upload ids and no reports",
        markup=False,
    )
    for line in metrics:
        if line.startswith(("shufflesum_uploads_total", "shufflesum_batches_released_total")):
            console.print(f"  metric: {line}", markup=False)
    for event in shuffler.events():
        console.print(f"  log: {json.dumps(event)}", markup=False)
    console.print("[bold]What the analyzer saw[/bold]: unlinked reports")
    console.print(
        f"  one batch of {found['uploads'] * task.plan.reports:,} reports of {SEALED_BYTES} bytes in random order, "
        f"{found['rejected_reports']} rejected; it keeps only how often each value came for each sample\n"
        f"  reports for each sample: {found['report_counts']}",
        markup=False,
    )
