"""Options that belong together reach a command as one value, so that each list of them is written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

__all__ = ["gathered"]

_F = TypeVar("_F", bound=Callable[..., object])


def gathered(name: str, make: Callable[..., object], *options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """A decorator: the command takes these options as one argument of this name, which `make` makes of them.

    They are the parameters of `make`, by their names; those with a default may have no option.
    """
    parameters = inspect.signature(make).parameters

    def decorate(function: _F) -> _F:
        @wraps(function)
        def command(*positional: Any, **given: Any) -> object:
            mine = {option: given.pop(option) for option in parameters if option in given}
            return function(*positional, **{name: make(**mine)}, **given)

        decorated: Any = command
        for option in reversed(options):
            decorated = option(decorated)
        result: _F = decorated
        return result

    return decorate
