"""A private survey on this machine: shufflers, analyzers, a web page to take part in, and a crowd that does.

Three questions are three collections, each with a task, a shuffler and an analyzer of its own. Open the survey in a
browser and contribute; the crowd's visitors use the same browser module, in Node. With the last of them each analyst's
page shows its estimate.

    python examples/survey/run.py            # until Ctrl-C
    python examples/survey/run.py --once     # the crowd alone, and the end
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

import shufflesum as ss
from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.keys import generate_private_key
from shufflesum.pages import asset
from shufflesum.planning import PlanOptions
from shufflesum.sealing import Opener
from shufflesum.service.analyzer.server import AnalyzerServer
from shufflesum.service.logs import configure_logging
from shufflesum.service.shuffler.release import AnalyzerAddress
from shufflesum.service.shuffler.server import ShufflerOptions, shuffler_app
from shufflesum.service.stores.store import open_store
from shufflesum.service.stores.tables import open_tables
from shufflesum.wire import Task

FOLDER = Path(__file__).parent
CLIENT = FOLDER.parents[1] / "clients" / "browser"
EPSILON, DELTA = 2.0, 1e-6  # for each of the three questions
MOST_REPORTS = 64  # so that a browser has sealed them in a moment
DAY = {"hours of sleep": (0, 12), "cups of coffee": (0, 8), "mood, 0 to 10": (0, 10), "minutes outside": (0, 180)}
CURVE = 32
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
SECONDS = 300.0


@dataclass(frozen=True)
class Collection:
    """A question's task, with its servers."""

    task: Task
    analyzer: str
    servers: Sequence[uvicorn.Server]


class Server(uvicorn.Server):
    """Leaves signals to whoever runs several servers in one process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def plans(users: int) -> dict[str, tuple[str, ss.Plan]]:
    """What is asked, and how it is hidden."""
    wanted: PlanOptions = {"max_reports": MOST_REPORTS}
    low, high = zip(*DAY.values(), strict=True)
    travel = ss.Categories(["walking", "bicycle", "bus", "train", "car"])
    common: dict[str, Any] = {"users": users, "epsilon": EPSILON, "delta": DELTA, **wanted}
    return {
        "travel": ("How people travelled today", ss.plan(domain=travel, **common)),
        "day": ("People's day in numbers", ss.plan(shape=len(DAY), bounds=(low, high), columns=[*DAY], **common)),
        "curve": ("People's energy over the day", ss.plan(shape=CURVE, **common)),
    }


def listening() -> tuple[socket.socket, str]:
    """A free port of this machine, and its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def serve(app: Starlette, listener: socket.socket, running: list[asyncio.Task[None]]) -> uvicorn.Server:
    """A server that has begun to start."""
    server = Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="on", server_header=False))
    running.append(asyncio.create_task(server.serve(sockets=[listener])))
    return server


def collection(name: str, plan: ss.Plan, folder: Path, page: str, running: list[asyncio.Task[None]]) -> Collection:
    """A shuffler and an analyzer that share a secret, and nothing else, for one question."""
    key, secret = generate_private_key(), secrets.token_hex(16)
    at_shuffler, shuffler = listening()
    at_analyzer, analyzer = listening()
    task = Task(
        name=name,
        plan=plan,
        analyzer_key=key.public_key().public_bytes_raw(),
        shuffler=shuffler,
        expires=SYSTEM_CLOCK.now().replace(microsecond=0) + timedelta(hours=12),
    )
    folder.mkdir()
    tables = open_tables(f"sqlite:{folder}/tables.db", task)
    counting = AnalyzerServer(task, Opener(key, processes=1), tables, secret=secret)
    options = ShufflerOptions(AnalyzerAddress(analyzer, secret), allowed_origins=(page,), show_progress=True)
    mixing = shuffler_app(task, open_store(f"sqlite:{folder}/uploads.db", task), options)
    servers = [serve(counting.app(), at_analyzer, running), serve(mixing, at_shuffler, running)]
    return Collection(task, analyzer, servers)


def survey(collections: dict[str, Collection]) -> Starlette:
    """The page that visitors open, which may talk to the shufflers and to nobody else."""
    shufflers = " ".join(one.task.shuffler for one in collections.values())
    headers = {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        f"connect-src 'self' {shufflers}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }

    async def tasks(_: Request) -> Response:
        addresses = {name: f"{one.task.shuffler}/tasks/{one.task.id}" for name, one in collections.items()}
        analysts = {one.task.name: f"{one.analyzer}/" for one in collections.values()}
        return JSONResponse({"tasks": addresses, "analysts": analysts}, headers=headers)

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name in ("style.css", "icon.svg"):
            return Response(asset(name), media_type=TYPES[Path(name).suffix], headers=headers)
        if name not in ("index.html", "survey.css", "survey.js", "curve.js"):
            return Response(status_code=404)
        return FileResponse(FOLDER / name, media_type=TYPES[Path(name).suffix], headers=headers)

    async def client(_: Request) -> Response:
        return FileResponse(CLIENT / "shufflesum.min.js", media_type=TYPES[".js"], headers=headers)

    routes = [Route("/", file), Route("/tasks.json", tasks), Route("/client/shufflesum.min.js", client)]
    return Starlette(routes=[*routes, Route("/{name}", file)])


@contextlib.asynccontextmanager
async def crowd(collections: dict[str, Collection], visitors: int, seconds: float) -> AsyncIterator[asyncio.Task[int]]:
    """Simulated visitors, who come within so many seconds; they are sent home at the end."""
    texts = json.dumps({name: one.task.to_json() for name, one in collections.items()})
    node = shutil.which("node") or "node"
    process = await asyncio.create_subprocess_exec(node, FOLDER / "crowd.mjs", texts, str(visitors), str(seconds))
    try:
        yield asyncio.create_task(process.wait())
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def estimated(collections: dict[str, Collection], seconds: float | None) -> None:
    """Say what every analyzer has estimated, once it has."""
    import httpx

    async with asyncio.timeout(seconds), httpx.AsyncClient(trust_env=False) as http:
        for one in collections.values():
            address = f"{one.analyzer}/tasks/{one.task.id}/estimate"
            while (answer := await http.get(address)).status_code != 200:
                await asyncio.sleep(0.3)
            (found,) = answer.json()["rounds"]
            figures = found.get("counts", found.get("mean"))
            shown = ", ".join(f"{figure:.3g}" for figure in figures[:5]) + (", ..." if len(figures) > 5 else "")
            print(f"{one.task.name}: {found['users']} users: {shown}", flush=True)


async def run(users: int, *, once: bool, port: int, seconds: float) -> None:
    """All parties, until an interrupt, or until the crowd alone has filled every batch (`once`)."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running: list[asyncio.Task[None]] = []
    asked = await asyncio.to_thread(plans, users)
    with (
        tempfile.TemporaryDirectory(prefix="shufflesum-survey-") as name,
        socket.create_server(("127.0.0.1", port)) as listener,
    ):
        page = f"http://127.0.0.1:{listener.getsockname()[1]}"
        collections = {
            kind: collection(title, plan, Path(name) / kind, page, running) for kind, (title, plan) in asked.items()
        }
        servers = [server for one in collections.values() for server in one.servers]
        servers.append(serve(survey(collections), listener, running))
        try:
            while not all(server.started for server in servers):
                await asyncio.sleep(0.05)
            print(f"survey: {page}/", flush=True)
            for one in collections.values():
                print(f"analyst's page, {one.task.name}: {one.analyzer}/", flush=True)
            visitors = users if once else users - 1
            async with crowd(collections, visitors, seconds) as gone:
                if once:
                    await _first(gone, stop)
                    if not stop.is_set() and gone.result() == 0:
                        await _first(asyncio.create_task(estimated(collections, SECONDS)), stop)
                else:
                    print(f"{visitors} simulated visitors are on their way; you are the one who completes the batch")
                    print("Ctrl-C ends it and removes everything", flush=True)
                    await _first(asyncio.create_task(estimated(collections, None)), stop)
                    await stop.wait()
        finally:
            for server in servers:
                server.should_exit = True
            await asyncio.gather(*running)
    print("all servers have stopped, and their files are gone")
    if once and not stop.is_set() and gone.result() != 0:
        sys.exit("the crowd could not take part")


async def _first(work: asyncio.Task[Any], stop: asyncio.Event) -> None:
    """Until the work is done, or somebody has had enough."""
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        work.cancel()
    elif not work.cancelled() and work.exception() is not None:
        waiting.cancel()
        raise work.exception() or AssertionError
    waiting.cancel()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="A private survey on this machine.")
    parser.add_argument("--users", type=int, default=400, help="visitors in a batch, you among them (default 400)")
    parser.add_argument("--port", type=int, default=8765, help="of the survey's page (default 8765; 0: a free one)")
    parser.add_argument("--seconds", type=float, default=30, help="within which the crowd comes (default 30)")
    parser.add_argument("--once", action="store_true", help="let the crowd fill the batch, and end")
    given = parser.parse_args()
    if shutil.which("node") is None:
        sys.exit("the crowd needs Node 20 or newer: make setup-browser")
    configure_logging()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # what goes well is seen
    try:
        asyncio.run(run(given.users, once=given.once, port=given.port, seconds=given.seconds))
    except OSError as error:
        sys.exit(f"cannot listen: {error}; choose another --port")


if __name__ == "__main__":
    main()
