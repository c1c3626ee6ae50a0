"""Checks of arguments: refusals in the same words everywhere."""

from __future__ import annotations

import math
import os
from numbers import Real
from typing import NoReturn, SupportsIndex

import numpy as np

from shufflesum.errors import CopyError, ParameterError

_SHOWN = 60


class OnlyOnce:
    """What draws, releases or spends: of the same, a copy could do so a second time."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse `copy`, `deepcopy` and `pickle`, which all ask here."""
        raise CopyError(
            "only-once",
            f"a {type(self).__name__} can be neither copied nor pickled: the copy could draw, release or spend what "
            "was already; make one where it is used, and merge results",
        )

    def _refuse_forked(self, process: int) -> None:
        """Refuse what was made by another process: a fork is a copy."""
        if os.getpid() != process:
            raise CopyError(
                "only-once",
                f"this {type(self).__name__} was made before a fork, by process {process}: here it is a copy, which "
                "could draw or release a second time; make one where it is used, and merge results",
            )


def check_size(name: str, value: int, least: int, most: int) -> None:
    """Refuse a number that is not whole or not in range, naming it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ParameterError("wrong-type", f"{name} is {value!r}; it must be a whole number")
    if not least <= value <= most:
        raise ParameterError("out-of-range", f"{name} is {value}; it must lie between {least} and {most}")


def check_number(
    name: str,
    value: float,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> None:
    """Refuse what is no real number, or not in range, naming it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ParameterError("wrong-type", f"{name} is {value!r}; it must be a number")
    number = float(value) if isinstance(value, np.floating) else value  # a float32 would make limits its own
    limits = {
        f"at least {least}": least is None or number >= least,
        f"above {above}": above is None or number > above,
        f"at most {most}": most is None or number <= most,
        "finite" if below == math.inf else f"below {below}": below is None or number < below,
    }
    if not all(limits.values()):
        asked = " and ".join(limit for limit in limits if not limit.endswith("None"))
        raise ParameterError("out-of-range", f"{name} is {value}; it must be {asked}")


def set_fields(made: object, **fields: object) -> None:
    """Set fields of a frozen value while it is made."""
    for name, value in fields.items():
        object.__setattr__(made, name, value)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not one of the allowed ones, naming them."""
    if value not in allowed:
        raise ParameterError("unknown-choice", f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


def shown(value: object) -> str:
    """A value as messages name it: as Python writes it, and not all of a long one."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
