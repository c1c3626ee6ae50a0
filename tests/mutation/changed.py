"""Run pytest, in a process of its own, while one module of the package is read from another file, the mutant's.

So the project itself is never touched, and kernels of other modules stay compiled; those of the mutant have another
file name, by which numba knows them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import resource
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from tests.mutation.reach import IN_PROCESS, Unhurried

__all__ = ["judge", "warm_up"]

_PASSED = (0, 5)  # or there was no test; any other end is the mutant's doing, once all has passed without


def warm_up() -> None:
    """Import what all tests need, but for the package, and compile something: once, instead of in every process."""
    import numba

    for name in ("hypothesis", "numpy", "scipy.stats"):
        importlib.import_module(name)
    assert not any(name.startswith("shufflesum") for name in sys.modules)
    numba.njit(lambda x: x + 1.0)(1.0)


def judge(module: str, file: Path, tests: list[str], stale: set[str], seconds: float) -> int:
    """Start the tests with this file for the module. The process ends with 0 where all pass.

    Of `stale` modules compiled kernels are not used: they are kept file by file, with what they call from others.
    """
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        limit = int(300 + 3 * seconds)  # who takes longer runs in circles, which counts as noticed
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        _keep_kernels(file.parent / "kernels", stale)
        sys.meta_path.insert(0, _Changed(module, file))
        options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", IN_PROCESS]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported already
        code = int(pytest.main([*options, *tests], plugins=[Unhurried()]) not in _PASSED)
    finally:
        os._exit(code)


class _Changed(MetaPathFinder):
    def __init__(self, module: str, file: Path) -> None:
        self._module, self._file = module, file

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self._file) if name == self._module else None


def _keep_kernels(folder: Path, stale: set[str]) -> None:
    """Give this process compiled kernels of its own: those that are kept, but for the stale."""
    from numba.core import config as module

    config: Any = module
    kept = Path(config.CACHE_DIR) if config.CACHE_DIR else None
    config.CACHE_DIR = str(folder)
    for file in kept.glob("*/*.nb?") if kept else ():
        if file.name.split(".")[0] not in stale:
            (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
            (folder / file.parent.name / file.name).symlink_to(file)
