"""The one way compiled kernels are declared, so that they stay typed for the reader and the type checker.

Importing numba takes longer than everything else together, so it waits until a kernel is called. For one row it is not
worth it: within `uncompiled` a kernel runs as the Python function it is, which needs no numba, and gives the same bits.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from shufflesum.errors import MissingExtraError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_declaring = threading.RLock()
_to_tell: list[Callable[[], None]] = []
_uncompiled: ContextVar[bool] = ContextVar("uncompiled", default=False)


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile on first call, keep the machine code on disk, release the interpreter lock while running."""
    return cast("Callable[_P, _R]", _Kernel(function))


@contextmanager
def uncompiled() -> Iterator[None]:
    """Here and in this thread, run kernels as they are written: numbers of NumPy keep their widths and wrap around."""
    token = _uncompiled.set(True)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    finally:
        _uncompiled.reset(token)


@functools.cache
def can_compile() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def tell_before_compiling(tell: Callable[[], None]) -> None:
    """Have this called once, when a kernel is not found on disk and must be compiled, which takes seconds."""
    _to_tell.append(tell)


class _Kernel:
    """A function that becomes numba's when it is first called, from Python or by another kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._compiled: Any = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return (self._function if _uncompiled.get() else self._dispatcher)(*arguments, **named)

    def __reduce__(self) -> str:
        """Travel to other processes by name, as functions do."""
        return self._function.__qualname__

    @property
    def _dispatcher(self) -> Any:
        if self._compiled is None:
            with _declaring:  # threads that come at once share one, and what it has compiled
                self._compiled = self._compiled or _declared(self._function)
        return self._compiled

    @property
    def _numba_type_(self) -> Any:
        """By this numba knows the kernel when it compiles another one that calls it."""
        return self._dispatcher._numba_type_


def _declared(function: Callable[..., Any]) -> Any:
    compiled = _njit()(function)
    template = getattr(compiled, "get_call_template", None)  # there is none with NUMBA_DISABLE_JIT
    if template is not None:
        from numba.core import types

        unliteral: Any = types.unliteral

        def without_constants(arguments: Any, named: Any) -> Any:
            """Calls from other kernels with 0, 1 or a variable share one compilation; numba's habit is one for each."""
            return template(tuple(map(unliteral, arguments)), {name: unliteral(t) for name, t in named.items()})

        compiled.get_call_template = without_constants
    return compiled


@functools.cache
def _njit() -> Any:
    if not can_compile():
        raise MissingExtraError(
            "missing-extra",
            "this needs numba, which is not installed: pip install 'shufflesum[compiled]'; with the extra `client` "
            "alone single rows are randomized and sent, and nothing is planned, verified or estimated",
        )
    import numba
    from numba.core import event

    class Tell(event.Listener):
        def on_start(self, event: object) -> None:
            while _to_tell:
                _to_tell.pop()()

        def on_end(self, event: object) -> None:
            pass

    # not heard where machine code is read from disk
    event.register("numba:compile", Tell())  # type: ignore[no-untyped-call]
    return numba.njit(cache=True, nogil=True, error_model="numpy")
