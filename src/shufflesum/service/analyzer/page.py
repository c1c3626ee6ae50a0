"""The analyst's page: the task in words, how far it is, and the estimate of every round.

It shows what `GET /tasks/ID/estimate` answers with, for people, and nothing beyond. It can be read without scripts; one
small script of our own asks for it again and puts in what has changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from shufflesum._rounding import upwards
from shufflesum.domain import Ball, Box, numbers_of
from shufflesum.errors import MissingExtraError
from shufflesum.estimate import CountEstimate, Estimate, GroupEstimate, HashedEstimate
from shufflesum.pages import (
    estimate_svg,
    estimate_table,
    page,
    picture,
    plan_words,
    render,
    require_pages,
    statement_html,
    table_html,
)
from shufflesum.plots import require_plots, svg_to_png
from shufflesum.service.analyzer.estimates import LEVEL, CountedRounds, Estimates
from shufflesum.service.analyzer.progress import Progress
from shufflesum.service.http.problems import Refusal
from shufflesum.service.stores.tables import CountedBatch
from shufflesum.statement import guessing, if_they_collude
from shufflesum.tables import write_estimate
from shufflesum.wire import Task

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["DOWNLOADS", "AnalystPage"]

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
        require_pages()
        self._task = task
        self._estimates = estimates
        self._drawing = Lock()  # one picture at a time: the others wait for it instead of drawing it again
        self._svg = lru_cache(_ROUNDS_KEPT)(self._draw)
        self._png = lru_cache(_FILES_KEPT)(svg_to_png)
        self._table = lru_cache(_ROUNDS_KEPT)(_table)

    def live(self, now: datetime, progress: Progress | None, *, root: str, newest: int | None) -> str:
        """The page as it is served; `root` is the way from its address to the server's, `newest` the round on top."""
        task = self._task

        def how_far(counted: int) -> Markup:
            return render(
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

        def draw(estimate: Estimate) -> Markup:
            address = f"{folder}/rounds/{estimate.round_number}/estimate.svg"
            return render("drawn.html", address=address, alt=_alt(estimate), coloured=_matrices(estimate))

        return self._whole(
            how_far, draw, root=root, folder=folder, newest=newest, at_once=_AT_ONCE, stylesheet=f"{root}style.css"
        )

    def alone(self, now: datetime) -> str:
        """The page as one file that needs nothing else, with up to twelve rounds."""

        def how_far(_: int) -> Markup:
            expires = f"{self._task.expires:%Y-%m-%d %H:%M} UTC"
            return render("saved.html", now=f"{now:%Y-%m-%d %H:%M} UTC", expires=expires)

        def draw(estimate: Estimate) -> Markup:
            svg = self.file(estimate.round_number, "svg").decode()
            return picture(svg, _alt(estimate))

        return self._whole(how_far, draw, root=None, folder="", newest=None, at_once=_IN_FILE, stylesheet=None)

    def _whole(
        self,
        how_far: Callable[[int], Markup],
        draw: Callable[[Estimate], Markup],
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
        except Refusal as refusal:
            if refusal.problem not in ("no-estimate-yet", "guarantee-broken", "wrong-key", "batch-too-small"):
                raise
            refused = refusal
        shown = [] if rounds is None else _chosen(rounds, newest, at_once)
        counted = len(rounds.batches) if rounds else 0
        body = render(
            "analyst.html",
            task=self._task,
            plan=plan_words(self._task.plan),
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
        return page(self._task.name, body, stylesheet=stylesheet)

    def _shown(self, batch: CountedBatch, estimate: Estimate, draw: Callable[[Estimate], Markup]) -> _Shown:
        words = isinstance(estimate, HashedEstimate)
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
        return None if self._task.plan.accountant == "none" else statement_html(self._task.plan)

    def _guarantee(self, rounds: CountedRounds | None, refused: Refusal | None) -> dict[str, object]:
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
            raise Refusal("no-estimate-yet", f"the shuffler has released no batch of round {round_number} yet")
        if kind == "csv":
            return _csv(found[0])
        if isinstance(found[0], HashedEstimate) or not _can_draw():
            raise Refusal("not-found", "there is no picture: of words, or without the extra shufflesum[plots]")
        with self._drawing:
            svg = self._svg(found[0], rounds.guarantee_holds)
        return svg.encode() if kind == "svg" else self._png(svg)

    def _draw(self, estimate: Estimate, holds: bool) -> str:
        broken = "" if holds else ", without the guarantee of the plan"
        return estimate_svg(estimate, title=_title(estimate), subtitle=f"{estimate.users:,} users{broken}", level=LEVEL)


def _table(estimate: Estimate) -> Markup:
    what = f"Estimates of round {estimate.round_number}"
    return table_html(estimate_table(estimate, LEVEL, _MOST_ROWS), tall=True, what=what)


def _csv(estimate: Estimate) -> bytes:
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


def _chosen(rounds: CountedRounds, newest: int | None, at_once: int) -> list[tuple[CountedBatch, Estimate]]:
    """The newest rounds first, from the one that was asked for."""
    pairs = list(zip(rounds.batches, rounds.estimates, strict=True))[::-1]
    return [pair for pair in pairs if newest is None or pair[0].round_number <= newest][:at_once]


def _older(rounds: CountedRounds | None, shown: list[tuple[CountedBatch, Estimate]]) -> int | None:
    numbers = [batch.round_number for batch in rounds.batches] if rounds and shown else []
    return max((number for number in numbers if number < shown[-1][0].round_number), default=None)


def _newer(rounds: CountedRounds | None, shown: list[tuple[CountedBatch, Estimate]], at_once: int) -> int | None:
    numbers = [batch.round_number for batch in rounds.batches] if rounds and shown else []
    later = [number for number in numbers if number > shown[0][0].round_number]
    return later[:at_once][-1] if later else None


def _title(estimate: Estimate) -> str:
    match estimate:
        case CountEstimate():
            return "How many users hold each label"
        case GroupEstimate():
            return "Mean of each group"
    return "Mean over all users"


def _matrices(estimate: Estimate) -> bool:
    """Whether they are drawn as colours, which stay as they are in the dark."""
    domain = estimate.plan.domain
    box = numbers_of(domain)
    return isinstance(box, Box | Ball) and len(box.shape) == 2


def _alt(estimate: Estimate) -> str:
    entries = estimate.plan.dimension
    return f"{_title(estimate)}, round {estimate.round_number}, {entries:,} in all; the table below has the figures"


def _left(time: timedelta) -> str:
    """How long that is, for people: in whole minutes, hours or days, never more than is left."""
    minutes = int(time.total_seconds() // 60)
    if minutes < 1:
        return "" if time <= timedelta() else "less than a minute"
    number, unit = (minutes, "minute") if minutes < 120 else (minutes // 60, "hour")
    if number >= 48 and unit == "hour":
        number, unit = number // 24, "day"
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
