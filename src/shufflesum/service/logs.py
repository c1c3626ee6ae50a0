"""Structured logs on standard error in which nobody can be found: no address, no header, no body."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path

import structlog

__all__ = ["configure_logging", "log", "place"]

log = structlog.get_logger("shufflesum")


def configure_logging() -> None:
    """Structured lines on standard error: our own events, and those of libraries reduced to what names nobody."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Reduced()]
    root.setLevel(logging.WARNING)
    # A warning for each malformed request would let anybody fill the disk.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class _Reduced(logging.Handler):
    """Other libraries' messages may name an address or quote a request: only their kind is written down."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        known = {} if error is None else {"error": type(error).__name__, "where": place(error)}
        log.log(record.levelno, "library message", logger=record.name, line=record.lineno, **known)


def place(error: BaseException) -> str:
    """File and line of an error; its message may quote what a client sent."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
