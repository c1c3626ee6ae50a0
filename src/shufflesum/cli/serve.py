"""`shufflesum serve`: the two servers of a deployment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.cli.budget import budget_option, enter_in_budget, store_beginner
from shufflesum.cli.commands import DEPLOYED, Command, Group
from shufflesum.cli.options import PATH, option_group, task_option
from shufflesum.errors import ParameterError
from shufflesum.keys import load_analyzer_keys
from shufflesum.noise_keys import NoiseKey
from shufflesum.sealing import Opener
from shufflesum.service import require_service
from shufflesum.wire import Task

if TYPE_CHECKING:
    from shufflesum.service.http.app import SecretFile
    from shufflesum.service.http.server import ServerOptions


def clock_of(context: click.Context) -> Clock:
    """The clock that whoever runs the command handed in (`obj=`), else this machine's."""
    return context.obj or SYSTEM_CLOCK


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, where it is kept, and where the server listens."""

    task_file: Path
    budget_file: Path | None
    store: str
    secret_file: Path | None
    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    connections_per_address: int

    def listening(self, peer_ca: Path | None = None) -> ServerOptions:
        """Address and certificates; `peer_ca` has signed those of whom batches are taken from."""
        from shufflesum.service.http.server import ServerOptions

        return ServerOptions(self.host, self.port, self.tls_cert, self.tls_key, peer_ca)

    def secret(self) -> SecretFile | None:
        """What shuffler and analyzer share, if anything."""
        from shufflesum.service.http.app import SecretFile

        return None if self.secret_file is None else SecretFile(self.secret_file)

    def load_task(self, role: str) -> Task:
        """The server's task; its plan is verified first, which takes a while, and the log says so."""
        from shufflesum.service.logs import configure_logging, log

        configure_logging()
        log.info("task is read and its plan verified", role=role, file=self.task_file.name)
        return Task.load(self.task_file)


def _limit(name: str, least: int, default: int, about: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(least), default=default, show_default=True, help=about)


serving_options = option_group(
    "serving",
    Serving,
    task_option,
    budget_option,
    click.option("--store", required=True, metavar="STORE", help="sqlite:PATH or postgresql://user@host/database."),
    click.option(
        "--secret-file",
        type=PATH,
        help="The secret that shuffler and analyzer share (mode 0600); a second line is valid, too.",
    ),
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8080,
        show_default=True,
        help="Port to listen on; 0 takes a free one, named in the log.",
    ),
    click.option("--tls-cert", type=PATH, help="Certificate chain."),
    click.option("--tls-key", type=PATH, help="Its key."),
    _limit(
        "--connections-per-address",
        0,
        256,
        "Open connections that one address may have, this machine's own aside; 0 for no limit.",
    ),
)
"""They reach a command as one `Serving`."""

noise_key_option = click.option(
    "--noise-key",
    type=PATH,
    metavar="NAME.noise",
    help="This server's noise key, from shufflesum keygen --noise; for plans under which servers draw the noise.",
)


@click.command(
    "shuffler", cls=Command, context_settings=DEPLOYED, short_help="Take uploads, release whole batches, permuted."
)
@serving_options
@click.option("--analyzer", required=True, metavar="URL", help="Where batches are handed to.")
@click.option("--analyzer-ca", type=PATH, help="Certificate authority of the analyzer, if it is not a public one.")
@click.option(
    "--client-cert",
    type=PATH,
    help="Certificate to show to an analyzer that asks for one (its --peer-ca), instead of a secret or beside it.",
)
@click.option("--client-key", type=PATH, help="Its key.")
@noise_key_option
@click.option(
    "--operator-secret-file",
    type=PATH,
    help="The secret that opens POST /tasks/ID/release, unknown to the analyzer (mode 0600).  [nobody may ask]",
)
@click.option("--allow-plain-http", is_flag=True, help="Hand batches to another machine without TLS.")
@click.option(
    "--tokens",
    type=PATH,
    metavar="FILE",
    help="Digests from shufflesum tokens: only their tokens may upload, once a round.",
)
@click.option(
    "--release-at", type=int, metavar="USERS", help="Release a round at so many users.  [the task's smallest batch]"
)
@_limit("--max-pending", 1, 2000, "Uploads that may wait to be written before others are told to come back.")
@click.option(
    "--show-progress",
    is_flag=True,
    help="Tell everybody how many users the open round has, rounded down to twentieths of the smallest batch.",
)
@click.option(
    "--allow-origin",
    multiple=True,
    metavar="ORIGIN",
    help="Let web pages of this origin send, as https://survey.example.org; once for each.  [none may]",
)
@_limit(
    "--uploads-per-address", 0, 6000, "Uploads a minute from one address, this machine's own aside; 0 for no limit."
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
    analyzer: str,
    analyzer_ca: Path | None,
    client_cert: Path | None,
    client_key: Path | None,
    noise_key: Path | None,
    operator_secret_file: Path | None,
    allow_plain_http: bool,
    tokens: Path | None,
    release_at: int | None,
    max_pending: int,
    show_progress: bool,
    allow_origin: tuple[str, ...],
    uploads_per_address: int,
    address_header: str | None,
) -> None:
    """Take uploads that it cannot read; hand each full round, permuted, to the analyzer; delete it for good.

    \b
    Example: shufflesum serve shuffler --task task.json --store sqlite:shuffler.db --secret-file secret \\
                 --analyzer https://analyzer.example.org
    """
    require_service()
    from shufflesum.service.http.app import Limits, SecretFile
    from shufflesum.service.http.messages import check_url
    from shufflesum.service.shuffler.release import AnalyzerAddress
    from shufflesum.service.shuffler.server import ShufflerOptions, run_shuffler
    from shufflesum.service.shuffler.tokens import Tokens
    from shufflesum.service.stores.database import sqlite_path

    url = check_url(analyzer, allow_plain_http=allow_plain_http)
    options = ShufflerOptions(
        analyzer=AnalyzerAddress(url, serving.secret(), analyzer_ca, client_cert, client_key),
        operator_secret=None if operator_secret_file is None else SecretFile(operator_secret_file),
        noise_key=None if noise_key is None else NoiseKey(noise_key),
        tokens=None if tokens is None else Tokens.load(tokens),
        release_at=release_at,
        max_pending=max_pending,
        show_progress=show_progress,
        allowed_origins=allow_origin,
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
    "analyzer",
    cls=Command,
    context_settings=DEPLOYED,
    short_help="Take batches from the shuffler and answer with estimates.",
)
@serving_options
@click.option("--key", type=PATH, required=True, help="The analyzer's private key, from shufflesum keygen.")
@noise_key_option
@click.option("--processes", type=click.IntRange(min=1), help="Processes that open reports.  [one per core]")
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
    type=PATH,
    help="Take batches from a certificate that this authority has signed, instead of a secret or beside it.",
)
@click.option(
    "--peer-name", metavar="NAME", help="The name in that certificate.  [the host in the task's shuffler address]"
)
@click.pass_context
def analyzer(
    context: click.Context,
    serving: Serving,
    key: Path,
    noise_key: Path | None,
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
    from shufflesum.service.http.app import Limits
    from shufflesum.service.http.server import run_server
    from shufflesum.service.logs import log
    from shufflesum.service.stores.database import sqlite_path
    from shufflesum.service.stores.tables import open_tables

    listening = serving.listening(peer_ca)
    if peer_name is not None and peer_ca is None:
        raise ParameterError(
            "missing-argument", "--peer-name is a name in a certificate; give its authority (--peer-ca)"
        )
    secret = serving.secret()
    task = serving.load_task("analyzer")
    opener = Opener(load_analyzer_keys(key), processes=processes)
    draws_with = None if noise_key is None else NoiseKey(noise_key)
    peer = None if peer_ca is None else peer_name or urlsplit(task.shuffler).hostname
    check_serving(task, opener, secret, peer, draws_with)
    sqlite_path(serving.store)
    enter_in_budget(serving.budget_file, task)  # after what can be refused, and before a store is made
    server = AnalyzerServer(
        task,
        opener,
        open_tables(serving.store, task),
        secret=secret,
        peer=peer,
        noise_key=draws_with,
        without_guarantee=without_guarantee,
        page=page == "on",
        limits=Limits(serving.connections_per_address),
        clock=clock_of(context),
    )
    log.info("analyzer starts", task=task.id, rounds=task.rounds)
    if task.expired_at(clock_of(context).now()):
        log.warning("task has expired already, no new rounds are to be expected")
    run_server(server.app(), listening, role="analyzer")


@click.group("serve", cls=Group)
def serve_command() -> None:
    """Run one of the two servers of a deployment, on machines of parties that do not collude.

    Every option can be set by an environment variable instead, or in a file (--config). SIGTERM stops a server after
    the requests under way.
    """


serve_command.add_command(shuffler)
serve_command.add_command(analyzer)
