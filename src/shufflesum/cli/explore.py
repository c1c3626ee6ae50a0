"""`shufflesum explore`: a local page that answers what a collection would cost."""

from __future__ import annotations

import secrets
import socket
import webbrowser

import click
from rich.text import Text

from shufflesum.cli.options.common import Command
from shufflesum.cli.output.card import card
from shufflesum.cli.output.printed import console
from shufflesum.errors import ParameterError
from shufflesum.plans import Plan
from shufflesum.service import require_explorer


@click.command("explore", cls=Command, short_help="A local page: what a collection would cost.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of this machine.  [a free one]")
@click.option("--no-browser", is_flag=True, help="Print the page's address and open nothing.")
def command(port: int, no_browser: bool) -> None:
    """Open a page on this machine that plans: users, what they hold, epsilon or an acceptable error, delta.

    It shows the plan, its statement, and the error against epsilon and against users: for both mechanisms, the paper's
    formula and a trusted curator. Only this machine can reach it, and only by the address that is printed. Ctrl-C ends
    it.
    """
    require_explorer()
    import uvicorn

    from shufflesum.explorer import Explorer, Pictures, explorer_app

    token = secrets.token_urlsafe(16)
    with _listen(port) as listener, Explorer(_plain_card) as explorer, Pictures() as pictures:
        port = listener.getsockname()[1]
        app = explorer_app(explorer, pictures, token=token, port=port)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off", server_header=False))
        address = f"http://127.0.0.1:{port}/{token}/"
        console.print(f"{address}\nCtrl-C ends it", markup=False)
        if not no_browser:
            webbrowser.open(address)
        server.run(sockets=[listener])


def _plain_card(plan: Plan) -> str:
    return Text.from_markup(card(plan)).plain


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ParameterError(
            "address-taken", f"cannot listen on port {port}: {error.strerror or error}; choose another --port"
        ) from error
