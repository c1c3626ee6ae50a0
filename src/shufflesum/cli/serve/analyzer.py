"""`shufflesum serve analyzer`: the server that opens, counts and estimates."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import click

from shufflesum.cli.options.budget import enter_in_budget
from shufflesum.cli.options.configured import ConfiguredCommand
from shufflesum.cli.options.servers import Serving, clock_of, serving_options
from shufflesum.errors import ParameterError
from shufflesum.service import require_service
from shufflesum.wire import Opener, load_private_key

__all__ = ["analyzer"]


@click.command(
    "analyzer", cls=ConfiguredCommand, short_help="Take batches from the shuffler and answer with estimates."
)
@serving_options
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    required=True,
    help="The analyzer's private key, from shufflesum keygen.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Processes that open reports.  [one per core]",
)
@click.option(
    "--without-guarantee",
    is_flag=True,
    help="Answer with estimates, marked as such, even where the guarantee no longer holds.",
)
@click.option(
    "--page",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="A page at / that shows people what GET /tasks/ID/estimate answers with.",
)
@click.option(
    "--peer-ca",
    type=click.Path(path_type=Path),
    help="Take batches from a certificate that this authority has signed, instead of a secret or beside it.",
)
@click.option(
    "--peer-name",
    metavar="NAME",
    help="The name in that certificate.  [the host in the task's shuffler address]",
)
@click.pass_context
def analyzer(
    context: click.Context,
    serving: Serving,
    key_file: Path,
    processes: int | None,
    without_guarantee: bool,
    page: str,
    peer_ca: Path | None,
    peer_name: str | None,
) -> None:
    """Take whole batches from the shuffler, keep their tables of counts, answer GET /tasks/ID/estimate.

    What it answers with is shown to people at /, unless --page off.

    \b
    Example: shufflesum serve analyzer --task task.json --key analyzer.key --secret-file secret \\
                 --store sqlite:analyzer.sqlite --port 8081
    """
    require_service()
    from shufflesum.service.analyzer.server import AnalyzerServer, check_serving
    from shufflesum.service.http.limits import Limits
    from shufflesum.service.http.server import run_server
    from shufflesum.service.logs import log
    from shufflesum.service.stores.store import sqlite_path
    from shufflesum.service.stores.tables import open_tables

    listening = serving.listening(peer_ca)
    if peer_name is not None and peer_ca is None:
        raise ParameterError(
            "missing-argument", "--peer-name is a name in a certificate; give its authority (--peer-ca)"
        )
    secret = serving.secret()
    task = serving.load_task("analyzer")
    opener = Opener(load_private_key(key_file), processes=processes)
    peer = None if peer_ca is None else peer_name or urlsplit(task.shuffler).hostname
    check_serving(task, opener, secret, peer)
    sqlite_path(serving.store)
    enter_in_budget(serving.budget_file, task)  # after what can be refused, and before a store is made
    server = AnalyzerServer(
        task,
        opener,
        open_tables(serving.store, task),
        secret=secret,
        peer=peer,
        without_guarantee=without_guarantee,
        page=page == "on",
        limits=Limits(serving.connections_per_address),
        clock=clock_of(context),
    )
    log.info("analyzer starts", task=task.id, rounds=task.rounds)
    if task.expired_at(clock_of(context).now()):
        log.warning("task has expired already, no new rounds are to be expected")
    run_server(server.app(), listening, role="analyzer")
