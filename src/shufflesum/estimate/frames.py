"""Estimates as data frames of pandas or Polars, neither of which is needed for anything else."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Literal, get_args

from shufflesum._checks import check_choice
from shufflesum.errors import MissingExtraError
from shufflesum.estimate.base import Released
from shufflesum.estimate.contents import columns_of

__all__ = ["Library", "frame_of"]

Library = Literal["pandas", "polars"]
_LIBRARIES = get_args(Library)


def frame_of(estimate: Released, level: float, library: Library | None) -> Any:
    """One row for each entry, with the columns that files have."""
    if library is not None:
        check_choice("library", library, _LIBRARIES)
    chosen = library or _found()
    if chosen is None or importlib.util.find_spec(chosen) is None:
        raise MissingExtraError(
            "missing-extra", f"a data frame needs {chosen or 'pandas or polars'}: pip install {chosen or 'pandas'}"
        )
    return importlib.import_module(chosen).DataFrame(columns_of(estimate, level))


def _found() -> str | None:
    """The one that the program has loaded already, else the first that is installed."""
    loaded = [name for name in _LIBRARIES if name in sys.modules]
    return next(iter(loaded or [name for name in _LIBRARIES if importlib.util.find_spec(name)]), None)
