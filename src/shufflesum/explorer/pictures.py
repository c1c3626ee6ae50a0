"""The explorer's pictures, drawn beside the page: it shows the newest that is there, and never waits for one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self

from shufflesum.explorer.work import LINES
from shufflesum.plots import lines_chart, rendered_svg

__all__ = ["Drawing", "Pictures"]

_KEPT = 64
_WARM_UP = ((LINES[0], 1.0, 1.0), (LINES[0], 2.0, 0.5))


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of an error: rows of line, place on the axis and error, None where the line has nothing to offer.

    `here` is where the plan stands, by the same axis and its error.
    """

    rows: tuple[tuple[str, float, float | None], ...]
    axis: str
    error: str
    subtitle: str
    here: tuple[float, float] | None = None

    def svg(self) -> str:
        """Drawn."""
        chart = lines_chart(
            [{"line": line, "x": x, "y": y} for line, x, y in self.rows],
            lines=LINES,
            x=self.axis,
            y=self.error,
            title=f"{self.error} against {self.axis.lower()}",
            subtitle=self.subtitle,
            here=None if self.here is None else ("this plan", *self.here),
        )
        return rendered_svg(chart)


class Pictures:
    """The pictures that were drawn last, and the newest of each kind; one thread draws. Use it in a `with` block."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._drawn: OrderedDict[Drawing, str] = OrderedDict()
        self._newest: OrderedDict[Hashable, str] = OrderedDict()
        self._busy: set[Hashable] = set()
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(Drawing(_WARM_UP, "", "", "").svg)  # the first takes seconds

    def newest(self, kind: Hashable, wanted: Drawing) -> tuple[str, bool]:
        """The last picture of this kind, empty before the first, and whether it is the one that is wanted now."""
        with self._lock:
            if wanted in self._drawn:
                self._drawn.move_to_end(wanted)
                return self._drawn[wanted], True
            if kind not in self._busy:
                self._busy.add(kind)
                self._thread.submit(self._draw, kind, wanted)
            return self._newest.get(kind, ""), False

    def _draw(self, kind: Hashable, wanted: Drawing) -> None:
        svg = wanted.svg()
        with self._lock:
            self._drawn[wanted] = self._newest[kind] = svg
            self._busy.remove(kind)
            for kept in (self._drawn, self._newest):
                if len(kept) > _KEPT:
                    kept.popitem(last=False)

    def __enter__(self) -> Self:
        """The thread starts by itself."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Wait for the picture under way."""
        self._thread.shutdown(cancel_futures=True)
