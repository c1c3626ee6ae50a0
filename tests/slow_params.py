"""Which cases of a test every run has; the others, much like them, are slow."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest

__all__ = ["few_or_many", "slow_among", "slow_but_for"]


def slow_among(cases: Iterable[Any], slow: Container[Any]) -> list[Any]:
    """Cases to parametrize a test with, these of them slow."""
    return [pytest.param(case, marks=pytest.mark.slow) if case in slow else case for case in cases]


def slow_but_for(cases: Iterable[Any], often: Container[Any]) -> list[Any]:
    """Cases to parametrize a test with, all of them slow but these."""
    return [case if case in often else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    """The number of `cases`, the many slow."""
    return pytest.mark.parametrize("cases", [few, pytest.param(many, marks=pytest.mark.slow)])
