"""The explorer's pictures, drawn beside the page: it shows the newest that is there, and never waits for one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Self

from shufflesum.explorer.work import LINES
from shufflesum.plots import lines_chart, rendered_svg

__all__ = ["Drawing", "Pictures"]

_KEPT = 64


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of an error: rows of line, place on the axis and error, None where the line has nothing to offer."""

    rows: Sequence[tuple[str, float, float | None]]
    axis: str
    error: str
    subtitle: str

    def svg(self) -> str:
        """Drawn."""
        chart = lines_chart(
            [{"line": line, "x": x, "y": y} for line, x, y in self.rows],
            lines=LINES,
            x=self.axis,
            y=self.error,
            title=f"{self.error} against {self.axis.lower()}",
            subtitle=self.subtitle,
        )
        return rendered_svg(chart)


@dataclass(slots=True)
class _State:
    drawn: Drawing | None = None
    svg: str = ""
    busy: bool = field(default=False)


class Pictures:
    """The newest picture of each kind; one thread draws. Use it in a `with` block."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._states: OrderedDict[Hashable, _State] = OrderedDict()
        self._thread = ThreadPoolExecutor(1)

    def newest(self, kind: Hashable, wanted: Drawing) -> tuple[str, bool]:
        """The last picture of this kind, empty before the first, and whether it is the one that is wanted now."""
        with self._lock:
            state = self._states.setdefault(kind, _State())
            self._states.move_to_end(kind)
            if len(self._states) > _KEPT:
                self._states.popitem(last=False)
            if state.drawn == wanted:
                return state.svg, True
            if not state.busy:
                state.busy = True
                self._thread.submit(self._draw, state, wanted)
            return state.svg, False

    def _draw(self, state: _State, wanted: Drawing) -> None:
        svg = wanted.svg()
        with self._lock:
            state.drawn, state.svg, state.busy = wanted, svg, False

    def __enter__(self) -> Self:
        """The thread starts by itself."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Wait for the picture under way."""
        self._thread.shutdown(cancel_futures=True)
