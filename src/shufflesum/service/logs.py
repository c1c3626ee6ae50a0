"""Structured logs on standard error in which nobody can be found: no address, no header, no body."""

from __future__ import annotations

import logging
import os
import re
import select
import sys
import threading
import traceback
from pathlib import Path
from typing import TextIO

import structlog

log = structlog.get_logger("shufflesum")

_AT_ONCE_SECONDS = 0.05
_AT_ONCE_BYTES = 1 << 20
_PLACE = re.compile(rb'File "([^"\n]+)", line (\d+)|^(\S+\.py):(\d+): ', re.MULTILINE)
_ERROR = re.compile(rb"(?:^|: )(?:\w+\.)*([A-Za-z]{1,40}(?:Error|Exception|Interrupt|Exit|Warning))\b", re.MULTILINE)


class _Output:
    owned: TextIO | None = None  # standard error as it was, once this process writes nothing but its log there


def configure_logging() -> None:
    """Structured lines on standard error: our own events, and those of libraries reduced to what names nobody."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(_Output.owned or sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Reduced()]
    root.setLevel(logging.WARNING)
    # A warning for each malformed request would let anybody fill the disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def own_standard_error() -> None:
    """From here to its end, whatever it is killed by, this process lets nothing onto standard error but log lines.

    What the interpreter, libraries or processes of ours write there ends in a pipe, and a thread makes log lines of it:
    kind and place of an error, never its words. When this process is gone, so is what its processes still say.
    """
    sys.stderr.flush()
    _Output.owned = open(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    configure_logging()
    threading.Thread(target=_relay, args=(reading,), daemon=True).start()


def _relay(descriptor: int) -> None:
    while text := os.read(descriptor, _AT_ONCE_BYTES):
        # What comes at one go, as a traceback does, is one line of the log.
        while len(text) < _AT_ONCE_BYTES and select.select([descriptor], [], [], _AT_ONCE_SECONDS)[0]:
            text += os.read(descriptor, _AT_ONCE_BYTES)
        log.warning("library message", logger="standard error", **_reduced(text))


def _reduced(text: bytes) -> dict[str, str | int]:
    """What a text on standard error says that names nobody: how long it is, its last error and that error's place."""
    known: dict[str, str | int] = {"lines": text.count(b"\n")}
    if errors := _ERROR.findall(text):
        known["error"] = errors[-1].decode()
    if places := _PLACE.findall(text):
        file, line = (part.decode("utf-8", "replace") for part in places[-1] if part)
        known["where"] = f"{Path(file).name}:{line}"
    return known


class _Reduced(logging.Handler):
    """Other libraries' messages may name an address or quote a request: only their kind is written down."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        known = {} if error is None else {"error": type(error).__name__, "where": where_of(error)}
        log.log(record.levelno, "library message", logger=record.name, line=record.lineno, **known)


def where_of(error: BaseException) -> str:
    """File and line of an error; its message may quote what a client sent."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
