"""Answers of the accountant, remembered in this process and across runs.

The file lives in the user's cache folder; `SHUFFLESUM_CACHE` names another folder, or `off`. Its keys hold a digest
of the accountant's own source, so a changed accountant never meets old answers. Anybody with the user's rights
can edit the file, so whatever is claimed on the strength of it (a noise probability, an epsilon, a delta) is certified
again when it is recalled, which is quicker than finding it; lower bounds, which claim nothing, must lie below.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from functools import lru_cache
from pathlib import Path

__all__ = ["recall", "remember"]


def recall(question: str) -> tuple[float, ...] | None:
    """The remembered answer, if there is one; a broken or missing file is no answer."""
    if question in _answers:
        return _answers[question]
    path = _file()
    if path is None or not path.exists():
        return None
    try:
        with closing(_open(path)) as connection:
            row = connection.execute("SELECT answer FROM answers WHERE question = ?", (_key(question),)).fetchone()
        answer = None if row is None else tuple(float.fromhex(part) for part in row[0].split())
    except (sqlite3.Error, OSError, ValueError, AttributeError):
        return None
    if answer is not None:
        _answers[question] = answer
    return answer


def remember(question: str, *answer: float) -> tuple[float, ...]:
    """Keep an answer; where it cannot be written, this process still knows it."""
    _answers[question] = answer
    path = _file()
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(_open(path)) as connection, connection:
                connection.execute(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?)",
                    (_key(question), " ".join(value.hex() for value in answer)),
                )
        except (sqlite3.Error, OSError):
            pass
    return answer


_answers: dict[str, tuple[float, ...]] = {}


def _file() -> Path | None:
    chosen = os.environ.get("SHUFFLESUM_CACHE", "")
    if chosen.lower() == "off":
        return None
    if chosen:
        return Path(chosen) / "accounting.sqlite"
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home
        return None
    return base / "shufflesum" / "accounting.sqlite"


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=1.0)
    connection.execute("CREATE TABLE IF NOT EXISTS answers (question TEXT PRIMARY KEY, answer TEXT NOT NULL)")
    return connection


def _key(question: str) -> str:
    return f"{_source_digest()} {question}"


@lru_cache(maxsize=1)
def _source_digest() -> str:
    digest = hashlib.sha256()
    for module in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()[:16]
