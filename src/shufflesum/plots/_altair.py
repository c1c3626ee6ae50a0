"""Altair, loaded when the first chart is made: a command that draws nothing neither waits for it nor needs it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shufflesum.errors import MissingExtraError

__all__ = ["alt", "require_plots"]


def require_plots() -> None:
    """Raise MissingExtraError unless pictures can be drawn; call it before long work."""
    if any(importlib.util.find_spec(library) is None for library in ("altair", "vl_convert")):
        raise MissingExtraError("missing-extra", "drawing needs altair and vl-convert: pip install 'shufflesum[plots]'")


class _OnFirstUse(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if self.__name__ not in sys.modules:
            require_plots()
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import altair as alt
else:
    alt = _OnFirstUse("altair")
