"""Which functions of the package each test reaches, and how long it takes: a mutant runs with those that reach it.

    python -m tests.mutation.reach OUT TEST...

For that the package is imported with one more line in each function. Kernels are machine code: one that is called
stands for all that it calls.
"""

from __future__ import annotations

import ast
import builtins
import functools
import gc
import json
import sys
import time
from collections.abc import Generator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

__all__ = ["IN_PROCESS", "Unhurried"]

_CALLED = {"shufflesum._compiled:_Kernel.__call__.": "_note_kernel(self)"}
_MADE = {"shufflesum._compiled:_Kernel.__init__.": "_note_wrapped(self)"}
IN_PROCESS = "not slow and not servers and not cluster and not processes"


class Unhurried:
    """While functions are noted, or under a mutant, tests may take longer than their tier allows."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.add_marker("long")


class _Reach:
    """A plugin of pytest. What a module or a fixture for all of it reaches counts for each of its tests."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.reached: dict[str, set[str]] = {}
        self._now: set[str] = set()
        self._caches: list[Any] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        return (yield from self._noting(collector.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
        return (yield from self._noting(request.node.nodeid))

    def pytest_collection_finish(self) -> None:
        """What one test has computed and kept, the next would not reach."""
        caches = [found for found in gc.get_objects() if isinstance(found, functools._lru_cache_wrapper)]
        self._caches = [found for found in caches if str(found.__module__).startswith(("shufflesum", "tests"))]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        for kept in self._caches:
            kept.cache_clear()
        start = time.process_time()
        result = yield from self._noting(item.nodeid)
        self.seconds[item.nodeid] = time.process_time() - start
        return result

    def _noting(self, place: str) -> Generator[None, Any, Any]:
        before, self._now = self._now, self.reached.setdefault(place, set())
        try:
            return (yield)
        finally:
            self._now = before

    def note(self, function: str) -> None:
        """What every function of the package calls first."""
        self._now.add(function)

    def note_kernel(self, kernel: Any) -> None:
        self._now |= _kernels(kernel)

    def note_wrapped(self, kernel: Any) -> None:
        """Tests call kernels as Python, too."""
        function = kernel.__wrapped__

        @functools.wraps(function)
        def noting(*arguments: Any, **named: Any) -> Any:
            self.note(f"{function.__module__}:{function.__qualname__}")
            return function(*arguments, **named)

        kernel.__wrapped__ = noting

    def written(self) -> str:
        return json.dumps(
            {
                test: (round(seconds, 3), sorted(set().union(*(self.reached.get(place, ()) for place in places))))
                for test, seconds in self.seconds.items()
                for places in [(test, test.split("::")[0], "")]
            }
        )


class _Noting(MetaPathFinder):
    """Imports the package with functions that say when they are called."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name.startswith("shufflesum") else None
        if found is None or found.origin is None:
            return None
        found.loader = _Loader(name, found.origin)
        return found


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(Path(self.path).read_text())
        _say(tree, f"{fullname}:")
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


def _say(node: ast.AST, place: str) -> None:
    """A first line in all functions but kernels, which are machine code."""
    for child in ast.iter_child_nodes(node):
        inner = place
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{place}{child.name}."
            kernel = any(isinstance(d, ast.Name) and d.id == "kernel" for d in child.decorator_list)
            if isinstance(child, ast.FunctionDef) and not kernel:
                start = int(ast.get_docstring(child, clean=False) is not None)
                child.body.insert(start, *ast.parse(_CALLED.get(inner, f"_note({inner[:-1]!r})")).body)
                child.body += ast.parse(_MADE.get(inner, "")).body
        _say(child, inner)


@functools.cache
def _kernels(kernel: Any) -> frozenset[str]:
    """A kernel, and those that it calls."""
    found: set[str] = set()
    open_ = [kernel]
    while open_:
        function = open_.pop()._function
        name = f"{function.__module__}:{function.__qualname__}"
        if name not in found:
            found.add(name)
            known = (function.__globals__.get(used) for used in function.__code__.co_names)
            open_ += [other for other in known if type(other) is type(kernel)]
    return frozenset(found)


if __name__ == "__main__":
    out, *tests = sys.argv[1:]
    reach = _Reach()
    vars(builtins).update(_note=reach.note, _note_kernel=reach.note_kernel, _note_wrapped=reach.note_wrapped)
    sys.meta_path.insert(0, _Noting())
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", IN_PROCESS]
    code = pytest.main([*options, *tests], plugins=[reach, Unhurried()])
    Path(out).write_text(reach.written())
    sys.exit(code)
