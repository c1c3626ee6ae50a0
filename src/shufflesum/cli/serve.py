"""`shufflesum serve`: the two servers of a deployment."""

from __future__ import annotations

from pathlib import Path

import click

from shufflesum.cli import serve_analyzer
from shufflesum.cli.server_options import clock_of, server_options
from shufflesum.service import require_service
from shufflesum.wire import Task

__all__ = ["command"]


@click.group("serve", short_help="Run a server of a deployment: shuffler or analyzer.")
def command() -> None:
    """Run one of the two servers of a deployment, on machines of parties that do not collude.

    Every option can be set by an environment variable instead. SIGTERM stops a server after the requests under way.
    """


command.add_command(serve_analyzer.command)


@command.command("shuffler", short_help="Take uploads, release whole batches, permuted.")
@server_options
@click.option(
    "--analyzer",
    "analyzer_url",
    required=True,
    metavar="URL",
    envvar="SHUFFLESUM_ANALYZER",
    show_envvar=True,
    help="Where batches are handed to.",
)
@click.option(
    "--analyzer-ca",
    type=click.Path(path_type=Path),
    envvar="SHUFFLESUM_ANALYZER_CA",
    show_envvar=True,
    help="Certificate authority of the analyzer, if it is not a public one.",
)
@click.option(
    "--allow-plain-http",
    is_flag=True,
    envvar="SHUFFLESUM_ALLOW_PLAIN_HTTP",
    show_envvar=True,
    help="Hand batches to another machine without TLS.",
)
@click.option(
    "--tokens",
    "digests",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="SHUFFLESUM_TOKENS",
    show_envvar=True,
    help="Digests from shufflesum tokens: only their tokens may upload, once a round.",
)
@click.option(
    "--release-at",
    type=int,
    metavar="USERS",
    envvar="SHUFFLESUM_RELEASE_AT",
    show_envvar=True,
    help="Release a round at so many users.  [the task's smallest batch]",
)
@click.option(
    "--max-pending",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    envvar="SHUFFLESUM_MAX_PENDING",
    show_envvar=True,
    help="Uploads that may wait to be written before others are told to come back.",
)
@click.pass_context
def shuffler(
    context: click.Context,
    task_file: Path,
    store: str,
    secret_file: Path,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    analyzer_url: str,
    analyzer_ca: Path | None,
    allow_plain_http: bool,
    digests: Path | None,
    release_at: int | None,
    max_pending: int,
) -> None:
    """Take uploads that it cannot read; hand each full round, permuted, to the analyzer; delete it for good.

    \b
    Example: shufflesum serve shuffler --task task.json --store sqlite:shuffler.db --secret-file secret \\
                 --analyzer https://analyzer.example.org
    """
    require_service()
    from shufflesum.service.http.addresses import check_url
    from shufflesum.service.http.secret import load_secret
    from shufflesum.service.http.server import ServerOptions
    from shufflesum.service.shuffler.release import AnalyzerAddress
    from shufflesum.service.shuffler.server import ShufflerOptions, run_shuffler
    from shufflesum.service.shuffler.tokens import Tokens

    url = check_url(analyzer_url, allow_plain_http=allow_plain_http)
    options = ShufflerOptions(
        analyzer=AnalyzerAddress(url, load_secret(secret_file), analyzer_ca),
        tokens=None if digests is None else Tokens.load(digests),
        release_at=release_at,
        max_pending=max_pending,
    )
    server = ServerOptions(host, port, tls_cert, tls_key)
    run_shuffler(Task.load(task_file), store, options, server, clock_of(context))
