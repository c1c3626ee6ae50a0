"""One root error and a handful of children; each message says what was given, what is allowed, which knob to turn."""

from __future__ import annotations

__all__ = [
    "DataError",
    "FileError",
    "MissingExtraError",
    "ParameterError",
    "PlanError",
    "PrivacyError",
    "ReportsError",
    "ShufflesumError",
]


class ShufflesumError(Exception):
    """Root of every error this package raises on purpose."""


class ParameterError(ShufflesumError, ValueError):
    """A parameter is outside what the protocol or the report format allows."""


class PrivacyError(ShufflesumError, ValueError):
    """The privacy asked for cannot be reached, or cannot be certified in double precision."""


class DataError(ShufflesumError, ValueError):
    """A user's array does not lie in the plan's domain."""


class PlanError(ShufflesumError, ValueError):
    """A plan is malformed, was changed after it was made, or claims more privacy than it gives."""


class ReportsError(ShufflesumError, ValueError):
    """Reports are malformed, belong to another plan, or are too few to release anything."""


class FileError(ShufflesumError, OSError):
    """A file cannot be read, understood or written."""


class MissingExtraError(ShufflesumError, ImportError):
    """An optional library is not installed; the message names the extra that brings it."""
