"""Options for vectors with a bounded norm: the public radius, and the public centre that it is measured from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from shufflesum.cli.options.gathered import gathered
from shufflesum.domain import Ball
from shufflesum.errors import FileError, ParameterError

__all__ = ["BallOptions", "ball_options"]

_NOT_FOR_BALLS = ("bounds", "digits", "coordinates", "levels", "sampling", "spread")


@dataclass(frozen=True, slots=True)
class BallOptions:
    """The options of `ball_options`."""

    radius: float | None = None
    center: Path | None = None

    @property
    def given(self) -> list[str]:
        """Which options were given."""
        return [f"--{name}" for name in self.__slots__ if getattr(self, name) is not None]

    def check(self, arguments: Mapping[str, Any], others: Iterable[str] = ()) -> None:
        """Refuse a centre alone, and arguments of a plan or `others`, by their options, that mean another domain."""
        if self.radius is None:
            if self.center is not None:
                raise ParameterError("missing-argument", "--center needs --radius: how far from it a vector may be")
            return
        unfit = [f"--{name}" for name in _NOT_FOR_BALLS if arguments.get(name) is not None]
        for option in [*unfit, *others]:
            raise ParameterError(
                "conflicting-arguments",
                f"{option} and --radius exclude each other: --radius is for vectors with a bounded norm; leave one out",
            )

    def domain(self, shape: int | Sequence[int]) -> Ball | None:
        """The ball, for arrays of this shape; None without a radius."""
        if self.radius is None:
            return None
        return Ball(shape, self.radius, None if self.center is None else _read_center(self.center))


ball_options = gathered(
    "ball",
    BallOptions,
    click.option(
        "--radius",
        type=float,
        metavar="C",
        help="Vectors with a bounded norm, such as model updates: the public bound, instead of --bounds.",
    ),
    click.option(
        "--center",
        type=click.Path(path_type=Path),
        metavar="FILE.npy",
        help="With --radius: a public array that norms are measured from.  [zero]",
    ),
)
"""A ball instead of bounds, as `ball`."""


def _read_center(path: Path) -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileError(
            "unreadable", f"cannot read the centre {path}: {error}; give one array in a .npy file"
        ) from error
    return found
