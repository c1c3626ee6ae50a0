"""Lists of words to ask a hashed estimate for."""

from __future__ import annotations

from pathlib import Path

from shufflesum.errors import FileError

__all__ = ["read_candidates"]


def read_candidates(path: Path) -> list[str]:
    """The words of a text file in UTF-8, one on each line; empty lines are none."""
    try:
        words = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeError) as error:
        raise FileError(
            "unreadable", f"cannot read the candidates {path}: {error}; give a text file, one word on each line"
        ) from error
    found = [word for word in words if word]
    if not found:
        raise FileError("no-rows", f"{path}: there are no candidates; give a text file, one word on each line")
    return found
