"""Run pytest while one module of the package is read from another file, the mutant's.

So the project itself is never touched, and kernels of other modules stay compiled; those of the mutant have another
file name, by which numba knows them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

__all__ = ["FILE", "MODULE"]

MODULE, FILE = "SHUFFLESUM_MUTANT_MODULE", "SHUFFLESUM_MUTANT_FILE"


class _Changed(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != os.environ[MODULE]:
            return None
        return importlib.util.spec_from_file_location(name, Path(os.environ[FILE]))


if __name__ == "__main__":
    assert not any(name.startswith("shufflesum") for name in sys.modules)
    if MODULE in os.environ:
        sys.meta_path.insert(0, _Changed())
    sys.exit(pytest.main())
