"""The analyst's page: the task in words, its progress, and the estimate of every round.

It shows what `GET /tasks/ID/estimate` answers with, for people, and nothing beyond. It can be read without scripts; one
small script of our own asks for it again and puts in what has changed.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
from starlette.responses import JSONResponse

from shufflesum import pages
from shufflesum._format import counted, upwards
from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import MissingExtraError, ReportsError, ShufflesumError
from shufflesum.estimate import AnyEstimate, BaseEstimate
from shufflesum.pages import picture
from shufflesum.plots import require_plots, svg_to_png
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.service.http import messages as web
from shufflesum.service.stores.tables import BatchStore, CountedBatch
from shufflesum.statement import guessing, if_they_collude
from shufflesum.tables.writers import write_estimate
from shufflesum.wire import Task

if TYPE_CHECKING:
    from markupsafe import Markup


_KEPT_SECONDS = 10.0
_ANSWER_SECONDS = 1.0
_MOST_BYTES = 4096
_MOST_USERS = 10**12


class ShufflerProgress:
    """Asks a task's shuffler, at most once in ten seconds and only while somebody looks; None for no answer.

    The analyzer asks, not the page: a reader's browser then tells the shuffler nothing about who reads.
    """

    def __init__(self, task: Task, clock: Clock = SYSTEM_CLOCK) -> None:
        self._task = task
        self._clock = clock
        self._asking = asyncio.Lock()
        self._until = -1.0
        self._known: web.OpenRound | None = None

    async def latest(self) -> web.OpenRound | None:
        """What the shuffler said last."""
        async with self._asking:
            if self._clock.monotonic() >= self._until:
                self._known = await self._ask()
                self._until = self._clock.monotonic() + _KEPT_SECONDS
        return self._known

    async def _ask(self) -> web.OpenRound | None:
        try:
            url = web.check_url(self._task.shuffler, allow_plain_http=False)
            client = httpx.AsyncClient(trust_env=False, verify=await asyncio.to_thread(web.trust, None))
            async with client:
                path = f"/tasks/{self._task.id}/round"
                answer = await web.ask(client, "GET", url + path, seconds=_ANSWER_SECONDS, most=_MOST_BYTES)
        except (web.BadAnswerError, TimeoutError, httpx.HTTPError, ShufflesumError):
            return None
        found = web.read_answer(answer.body, web.OpenRound) if answer.status == 200 else None
        if found is None or found.task != self._task.id:
            return None
        possible = (found.open_round or 1) <= self._task.rounds and (found.users_at_least or 0) <= _MOST_USERS
        return found if possible else None


DOWNLOADS = {"csv": "text/csv; charset=utf-8", "json": "application/json", "svg": "image/svg+xml", "png": "image/png"}
"""What a round can be had as, and of which type that is."""

_AT_ONCE = 4  # rounds on one page; older ones are a link away
_IN_FILE = 12  # rounds in the page as a file
_ROUNDS_KEPT = 64  # pictures and tables
_FILES_KEPT = 8
_MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class _Shown:
    """A round as the template wants it."""

    number: int
    users: str
    uploads: str
    picture: Markup | None
    table: Markup
    rejected: int
    unreadable: int
    no_cell: int
    words: bool


class AnalystPage:
    """The page of one task, and its files. Methods block and may be called from several threads."""

    def __init__(self, task: Task, estimates: Estimates) -> None:
        pages.require_pages()
        self._task = task
        self._estimates = estimates
        self._drawing = Lock()  # one picture at a time: the others wait for it instead of drawing it again
        self._svg = lru_cache(_ROUNDS_KEPT)(self._draw)
        self._png = lru_cache(_FILES_KEPT)(svg_to_png)
        self._table = lru_cache(_ROUNDS_KEPT)(_table)

    def live(self, now: datetime, progress: web.OpenRound | None, *, root: str, newest: int | None) -> str:
        """The page as it is served; `root` is the way from its address to the server's, `newest` the round on top."""
        task = self._task

        def how_far(counted: int) -> Markup:
            return pages.render(
                "progress.html",
                open_round=progress.open_round if progress else None,
                closed=counted == task.rounds or (progress is not None and progress.open_round is None),
                rounds=task.rounds,
                users=progress.users_at_least if progress else None,
                smallest=task.smallest_batch,
                expires=f"{task.expires:%Y-%m-%d %H:%M} UTC",
                stamp=f"{task.expires:%Y-%m-%dT%H:%MZ}",
                left=_left(task.expires - now),
            )

        folder = f"{root}tasks/{task.id}"

        def draw(estimate: BaseEstimate) -> Markup:
            address = f"{folder}/rounds/{estimate.round_number}/estimate.svg"
            return pages.render("drawn.html", address=address, alt=_alt(estimate), coloured=_matrices(estimate))

        return self._whole(
            how_far, draw, root=root, folder=folder, newest=newest, at_once=_AT_ONCE, stylesheet=f"{root}style.css"
        )

    def alone(self, now: datetime) -> str:
        """The page as one file that needs nothing else, with up to twelve rounds."""

        def how_far(_: int) -> Markup:
            expires = f"{self._task.expires:%Y-%m-%d %H:%M} UTC"
            return pages.render("saved.html", now=f"{now:%Y-%m-%d %H:%M} UTC", expires=expires)

        def draw(estimate: BaseEstimate) -> Markup:
            svg = self.file(estimate.round_number, "svg").decode()
            return picture(svg, _alt(estimate))

        return self._whole(how_far, draw, root=None, folder="", newest=None, at_once=_IN_FILE, stylesheet=None)

    def _whole(
        self,
        how_far: Callable[[int], Markup],
        draw: Callable[[BaseEstimate], Markup],
        *,
        root: str | None,
        folder: str,
        newest: int | None,
        at_once: int,
        stylesheet: str | None,
    ) -> str:
        refused, rounds = None, None
        try:
            rounds = self._estimates.rounds()
        except web.Refusal as refusal:
            if refusal.problem not in ("no-estimate-yet", "guarantee-broken", "wrong-key", "batch-too-small"):
                raise
            refused = refusal
        shown = [] if rounds is None else _chosen(rounds, newest, at_once)
        counted = len(rounds.batches) if rounds else 0
        body = pages.render(
            "analyst.html",
            task=self._task,
            plan=pages.plan_words(self._task.plan),
            statement=self._statement,
            collude=if_they_collude(self._task.plan),
            guarantee=self._guarantee(rounds, refused),
            refused=refused,
            how_far=how_far(counted),
            rounds=[self._shown(*pair, draw) for pair in shown],
            counted=counted,
            older=_older(rounds, shown),
            newer=_newer(rounds, shown, at_once),
            level=f"{100 * LEVEL:g} %",
            root=root,
            folder=folder,
        )
        return pages.page(self._task.name, body, stylesheet=stylesheet)

    def _shown(self, batch: CountedBatch, estimate: BaseEstimate, draw: Callable[[BaseEstimate], Markup]) -> _Shown:
        words = estimate.prompt is not None
        drawn = None if words or not _can_draw() else draw(estimate)
        return _Shown(
            number=batch.round_number,
            users=f"{estimate.users:,}",
            uploads=f"{batch.users:,}" if batch.users != estimate.users else "",
            picture=drawn,
            table=self._table(estimate),
            rejected=batch.rejected,
            unreadable=batch.unreadable,
            no_cell=batch.rejected - batch.unreadable,
            words=words,
        )

    @cached_property
    def _statement(self) -> Markup | None:
        """None for a plan without a guarantee, which has nothing to state."""
        return None if self._task.plan.accountant == "none" else pages.statement_html(self._task.plan)

    def _guarantee(self, rounds: CountedRounds | None, refused: web.Refusal | None) -> dict[str, object]:
        plan = self._task.plan
        if plan.accountant == "none":
            return {"kind": "bad", "title": "There is no guarantee", "words": "This plan promises nothing to anybody."}
        if refused is not None and refused.problem == "guarantee-broken":
            return {"kind": "bad", "title": "The guarantee does not hold, so nothing is shown", "words": refused.detail}
        if rounds is not None and not rounds.guarantee_holds:
            why = next(estimate.broken for estimate in rounds.estimates if estimate.broken is not None)
            return {"kind": "bad", "title": "The guarantee does not hold", "words": f"Shown all the same: {why}."}
        over = "in one round" if plan.rounds == 1 else f"in all {plan.rounds:,} rounds together"
        promise = (
            f"The guarantee holds: epsilon {upwards(plan.epsilon)}, delta {upwards(plan.delta)} for one user {over}"
        )
        return {"kind": "good", "title": promise, "words": guessing(plan)}

    def file(self, round_number: int, kind: str) -> bytes:
        """A round as a file; a `Refusal` where there is no such round, or nothing to draw."""
        rounds = self._estimates.rounds()  # what was made before must not outlive a guarantee that was broken since
        if kind == "json":
            return self._estimates.answer(round_number, table=True)
        found = [estimate for estimate in rounds.estimates if estimate.round_number == round_number]
        if not found:
            raise web.Refusal("no-estimate-yet", f"the shuffler has released no batch of round {round_number} yet")
        if kind == "csv":
            return _csv(found[0])
        if found[0].prompt is not None or not _can_draw():
            raise web.Refusal("not-found", "there is no picture: of words, or without the extra shufflesum[plots]")
        with self._drawing:
            svg = self._svg(found[0], rounds.guarantee_holds)
        return svg.encode() if kind == "svg" else self._png(svg)

    def _draw(self, estimate: BaseEstimate, holds: bool) -> str:
        broken = "" if holds else ", without the guarantee of the plan"
        return pages.estimate_svg(
            estimate, title=estimate.caption, subtitle=f"{estimate.users:,} users{broken}", level=LEVEL
        )


def _table(estimate: BaseEstimate) -> Markup:
    what = f"Estimates of round {estimate.round_number}"
    return pages.html_table(pages.estimate_table(estimate, LEVEL, _MOST_ROWS), tall=True, what=what)


def _csv(estimate: BaseEstimate) -> bytes:
    with tempfile.TemporaryDirectory(prefix="shufflesum-") as folder:
        path = Path(folder) / "estimate.csv"
        write_estimate(path, estimate, LEVEL)
        return path.read_bytes()


def _can_draw() -> bool:
    try:
        require_plots()
    except MissingExtraError:
        return False
    return True


def _chosen(rounds: CountedRounds, newest: int | None, at_once: int) -> list[tuple[CountedBatch, BaseEstimate]]:
    """The newest rounds first, from the one that was asked for."""
    pairs = list(zip(rounds.batches, rounds.estimates, strict=True))[::-1]
    return [pair for pair in pairs if newest is None or pair[0].round_number <= newest][:at_once]


def _older(rounds: CountedRounds | None, shown: list[tuple[CountedBatch, BaseEstimate]]) -> int | None:
    numbers = [batch.round_number for batch in rounds.batches] if rounds and shown else []
    return max((number for number in numbers if number < shown[-1][0].round_number), default=None)


def _newer(rounds: CountedRounds | None, shown: list[tuple[CountedBatch, BaseEstimate]], at_once: int) -> int | None:
    numbers = [batch.round_number for batch in rounds.batches] if rounds and shown else []
    later = [number for number in numbers if number > shown[0][0].round_number]
    return later[:at_once][-1] if later else None


def _matrices(estimate: BaseEstimate) -> bool:
    """Whether they are drawn as colours, which stay as they are in the dark."""
    table = estimate.to_table(LEVEL)
    return not table.of_users and len(table.shape) == 2


def _alt(estimate: BaseEstimate) -> str:
    entries = estimate.plan.dimension
    return f"{estimate.caption}, round {estimate.round_number}, {entries:,} in all; the table below has the figures"


def _left(time: timedelta) -> str:
    """How long that is, for people: in whole minutes, hours or days, never more than is left."""
    minutes = int(time.total_seconds() // 60)
    if minutes < 1:
        return "" if time <= timedelta() else "less than a minute"
    number, unit = (minutes, "minute") if minutes < 120 else (minutes // 60, "hour")
    if number >= 48 and unit == "hour":
        number, unit = number // 24, "day"
    return counted(number, unit)


# ---- What an analyzer answers with: the estimates of all rounds counted so far, computed once for all who ask.

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class CountedRounds:
    """The batches counted so far, each with its estimate, and whether the guarantee holds in all of them."""

    batches: tuple[CountedBatch, ...]
    estimates: tuple[BaseEstimate, ...]

    @property
    def guarantee_holds(self) -> bool:
        """Whether nothing speaks against the guarantee, which is about all rounds together."""
        return all(estimate.guarantee_holds for estimate in self.estimates)


class Estimates:
    """The estimates of one task. Methods block, may be called from several threads, and refuse by name.

    A round's estimate never changes once it is there, so everything is kept until a further batch is counted.
    """

    def __init__(self, task: Task, store: BatchStore, *, without_guarantee: bool = False) -> None:
        self._task = task
        self._store = store
        self._without_guarantee = without_guarantee
        self._computing = Lock()
        self._batches: list[str] | None = None
        self._rounds = CountedRounds((), ())
        self._document: dict[str, Any] | None = None
        self._written: dict[tuple[int | None, bool], bytes] = {}

    def rounds(self) -> CountedRounds:
        """All rounds counted so far; a `Refusal` says why there are none to show."""
        with self._computing:
            return self._current()

    def answer(self, only: int | None, *, table: bool) -> bytes:
        """The estimates of all rounds, or of one, as JSON; with their tables of counts where they are asked for."""
        with self._computing:
            rounds = self._current()
            if self._document is None:
                self._document = self._to_json(rounds)
            if (only, table) not in self._written:
                asked = [found for found in self._document["rounds"] if only in (None, found["round"])]
                if not asked:
                    raise web.Refusal("no-estimate-yet", f"the shuffler has released no batch of round {only} yet")
                if not table:
                    asked = [{name: found[name] for name in found if name != "table"} for found in asked]
                self._written[only, table] = bytes(JSONResponse(self._document | {"rounds": asked}).body)
            return self._written[only, table]

    def _current(self) -> CountedRounds:
        batches = self._store.batch_ids()
        if self._batches != batches:
            self._batches = None
            self._rounds, self._document, self._written = self._compute(), None, {}
            self._batches = batches
        return self._rounds

    def _compute(self) -> CountedRounds:
        counted = tuple(self._store.counted())
        if not counted:
            raise web.Refusal(
                "no-estimate-yet",
                f"the shuffler has released no batch of at least {self._task.smallest_batch} users yet",
            )
        for batch in counted:
            if self._task.plan.positions is None and not batch.table.any():
                raise web.Refusal(
                    "wrong-key",
                    f"no report of round {batch.round_number} could be opened: its users sealed them to another key, "
                    "for another task or another round; see which task file they were given",
                )
        return CountedRounds(counted, tuple(self._released(batch) for batch in counted))

    def _released(self, batch: CountedBatch) -> AnyEstimate:
        if self._task.plan.positions is None:
            counts = Counts(self._task.plan, batch.round_number)
            counts.table, counts.blanks, counts.rejected = batch.table, batch.blanks, batch.rejected
        else:  # all noise is in the table already
            counts = Counts(self._task.plan, batch.round_number, draw=np.zeros_like(batch.table))
            counts.add_table(batch.table, batch.users)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a coordinate nobody reported is null in the answer
                return release(counts, without_guarantee=self._without_guarantee)
        except ReportsError as error:
            raise web.Refusal(
                "batch-too-small" if error.problem == "too-few-users" else "guarantee-broken",
                f"round {batch.round_number}: {error}",
            ) from error

    def _to_json(self, rounds: CountedRounds) -> dict[str, Any]:
        pairs = zip(rounds.batches, rounds.estimates, strict=True)
        return {"task": self._task.id, "rounds": [self._round(*pair, rounds.guarantee_holds) for pair in pairs]}

    def _round(self, batch: CountedBatch, estimate: BaseEstimate, holds: bool) -> dict[str, Any]:
        plan = self._task.plan
        return {
            "round": batch.round_number,
            "uploads": batch.users,
            **web.round_to_json(estimate, LEVEL),
            "rejected_kinds": {"unreadable": batch.unreadable, "no_cell": batch.rejected - batch.unreadable},
            "guarantee": {
                "epsilon": plan.epsilon if math.isfinite(plan.epsilon) else None,
                "delta": plan.delta,
                "unit": "one user, in all rounds of the task",
                "holds": holds,
            },
        }
