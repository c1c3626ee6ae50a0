"""Kernels as the Python they were written in, so that constants, part of compiled code, can be made large enough."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

__all__ = ["uncompiled"]


def uncompiled(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **constants: Any) -> None:
    """For one test: no kernel that this module knows is compiled, and its constants are these."""
    for name, value in vars(module).copy().items():
        if type(value).__name__ == "_Kernel":
            monkeypatch.setattr(module, name, value.__wrapped__)
    for name, constant in constants.items():
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, constant)
