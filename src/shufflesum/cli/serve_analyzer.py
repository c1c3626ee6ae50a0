"""`shufflesum serve analyzer`: the server that opens, counts and estimates."""

from __future__ import annotations

from pathlib import Path

import click

from shufflesum.cli.server_options import clock_of, server_options
from shufflesum.service import require_service
from shufflesum.wire import Opener, Task, load_private_key

__all__ = ["command"]


@click.command("analyzer", short_help="Take batches from the shuffler and answer with estimates.")
@server_options
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    required=True,
    envvar="SHUFFLESUM_KEY",
    show_envvar=True,
    help="The analyzer's private key, from shufflesum keygen.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    envvar="SHUFFLESUM_PROCESSES",
    show_envvar=True,
    help="Processes that open reports.  [one per core]",
)
@click.option(
    "--without-guarantee",
    is_flag=True,
    envvar="SHUFFLESUM_WITHOUT_GUARANTEE",
    show_envvar=True,
    help="Answer with estimates, marked as such, even where the guarantee no longer holds.",
)
@click.pass_context
def command(
    context: click.Context,
    task_file: Path,
    store: str,
    secret_file: Path,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    key_file: Path,
    processes: int | None,
    without_guarantee: bool,
) -> None:
    """Take whole batches from the shuffler, keep their tables of counts, answer GET /tasks/ID/estimate.

    \b
    Example: shufflesum serve analyzer --task task.json --key analyzer.key --secret-file secret \\
                 --store sqlite:analyzer.sqlite --port 8081
    """
    require_service()
    from shufflesum.service.analyzer.server import AnalyzerServer
    from shufflesum.service.http.secret import load_secret
    from shufflesum.service.http.server import ServerOptions, run_server
    from shufflesum.service.logs import configure_logging, log
    from shufflesum.service.stores.tables import open_tables

    options = ServerOptions(host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)
    task = Task.load(task_file)
    server = AnalyzerServer(
        task,
        Opener(load_private_key(key_file), processes=processes),
        open_tables(store, task),
        secret=load_secret(secret_file),
        without_guarantee=without_guarantee,
    )
    configure_logging()
    log.info("analyzer starts", task=task.id, rounds=task.rounds)
    if task.expired_at(clock_of(context).now()):
        log.warning("task has expired already, no new rounds are to be expected")
    run_server(server.app(), options, role="analyzer")
