"""`shufflesum serve`: the two servers of a deployment."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import click

from shufflesum.cli.options.budget import enter_in_budget, store_beginner
from shufflesum.cli.options.common import Group
from shufflesum.cli.options.configured import ConfiguredCommand
from shufflesum.cli.options.servers import Serving, clock_of, serving_options
from shufflesum.errors import ParameterError
from shufflesum.service import require_service
from shufflesum.wire import Opener, load_private_key


@click.command("shuffler", cls=ConfiguredCommand, short_help="Take uploads, release whole batches, permuted.")
@serving_options
@click.option(
    "--analyzer",
    "analyzer_url",
    required=True,
    metavar="URL",
    help="Where batches are handed to.",
)
@click.option(
    "--analyzer-ca",
    type=click.Path(path_type=Path),
    help="Certificate authority of the analyzer, if it is not a public one.",
)
@click.option(
    "--client-cert",
    type=click.Path(path_type=Path),
    help="Certificate to show to an analyzer that asks for one (its --peer-ca), instead of a secret or beside it.",
)
@click.option(
    "--client-key",
    type=click.Path(path_type=Path),
    help="Its key.",
)
@click.option(
    "--operator-secret-file",
    type=click.Path(path_type=Path),
    help="The secret that opens POST /tasks/ID/release, unknown to the analyzer (mode 0600).  [nobody may ask]",
)
@click.option(
    "--allow-plain-http",
    is_flag=True,
    help="Hand batches to another machine without TLS.",
)
@click.option(
    "--tokens",
    "digests",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Digests from shufflesum tokens: only their tokens may upload, once a round.",
)
@click.option(
    "--release-at",
    type=int,
    metavar="USERS",
    help="Release a round at so many users.  [the task's smallest batch]",
)
@click.option(
    "--max-pending",
    type=click.IntRange(min=1),
    default=2000,
    show_default=True,
    help="Uploads that may wait to be written before others are told to come back.",
)
@click.option(
    "--show-progress",
    is_flag=True,
    help="Tell everybody how many users the open round has, rounded down to twentieths of the smallest batch.",
)
@click.option(
    "--allow-origin",
    "allowed_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let web pages of this origin send, as https://survey.example.org; once for each.  [none may]",
)
@click.option(
    "--uploads-per-address",
    type=click.IntRange(min=0),
    default=6000,
    show_default=True,
    help="Uploads a minute from one address, this machine's own aside; 0 for no limit.",
)
@click.option(
    "--address-header",
    metavar="NAME",
    help="Header in which a proxy in front writes the client's address, as X-Forwarded-For; its last entry counts.",
)
@click.pass_context
def shuffler(
    context: click.Context,
    serving: Serving,
    analyzer_url: str,
    analyzer_ca: Path | None,
    client_cert: Path | None,
    client_key: Path | None,
    operator_secret_file: Path | None,
    allow_plain_http: bool,
    digests: Path | None,
    release_at: int | None,
    max_pending: int,
    show_progress: bool,
    allowed_origins: tuple[str, ...],
    uploads_per_address: int,
    address_header: str | None,
) -> None:
    """Take uploads that it cannot read; hand each full round, permuted, to the analyzer; delete it for good.

    \b
    Example: shufflesum serve shuffler --task task.json --store sqlite:shuffler.db --secret-file secret \\
                 --analyzer https://analyzer.example.org
    """
    require_service()
    from shufflesum.service.http.access import Limits, SecretFile
    from shufflesum.service.http.messages import check_url
    from shufflesum.service.shuffler.release import AnalyzerAddress
    from shufflesum.service.shuffler.server import ShufflerOptions, run_shuffler
    from shufflesum.service.shuffler.tokens import Tokens
    from shufflesum.service.stores.store import sqlite_path

    url = check_url(analyzer_url, allow_plain_http=allow_plain_http)
    options = ShufflerOptions(
        analyzer=AnalyzerAddress(url, serving.secret(), analyzer_ca, client_cert, client_key),
        operator_secret=None if operator_secret_file is None else SecretFile(operator_secret_file),
        tokens=None if digests is None else Tokens.load(digests),
        release_at=release_at,
        max_pending=max_pending,
        show_progress=show_progress,
        allowed_origins=allowed_origins,
        limits=Limits(serving.connections_per_address, uploads_per_address, address_header),
    )
    listening = serving.listening()
    task = serving.load_task("shuffler")
    options.check(task)
    sqlite_path(serving.store)
    enter_in_budget(serving.budget_file, task)  # after what can be refused, and before a store is made
    begin = store_beginner(serving.budget_file, task)
    run_shuffler(task, serving.store, options, listening, clock_of(context), begin)


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
    from shufflesum.service.http.access import Limits
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


@click.group("serve", cls=Group, short_help="Run a server of a deployment: shuffler or analyzer.")
def command() -> None:
    """Run one of the two servers of a deployment, on machines of parties that do not collude.

    Every option can be set by an environment variable instead, or in a file (--config). SIGTERM stops a server after
    the requests under way.
    """


command.add_command(shuffler)
command.add_command(analyzer)
