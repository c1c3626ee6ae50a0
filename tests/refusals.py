"""Refusals by their stable problem, and by the facts that a message must name; never by its wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shufflesum.errors import ShufflesumError

__all__ = ["lacking", "refusal"]

_TELLING = 4  # shorter values are in many messages by chance


@contextmanager
def refusal(
    problem: str | tuple[str, ...],
    *facts: str,
    error: type[ShufflesumError] | tuple[type[ShufflesumError], ...] = ShufflesumError,
) -> Iterator[pytest.ExceptionInfo[ShufflesumError]]:
    """What is done inside must be refused with this problem (or one of these), naming each of the facts.

    What a user's data holds may be named apart from the message, and must not be in it.
    """
    with pytest.raises(error) as caught:
        yield caught
    assert caught.value.problem in ((problem,) if isinstance(problem, str) else problem), (
        f"{caught.value.problem}: {caught.value}"
    )
    message, value = str(caught.value), caught.value.value or ""
    assert len(value.strip("'")) < _TELLING or value.strip("'") not in message
    for fact in facts:
        assert fact in message or fact in value


def lacking(said: str, *words: str) -> list[str]:
    """Which of these a command's message does not name; its problem is named in brackets."""
    return [word for word in words if word not in said]
