"""One root error and a handful of children, each with a stable name for programs and a message for people.

`problem` is one of the names below and never changes its meaning; tests and other programs go by it. The message says
what was given, what is allowed and which knob to turn, and may be worded better any day.
"""

from __future__ import annotations

from typing import Any, Literal

__all__ = [
    "DataError",
    "FileError",
    "MissingExtraError",
    "ParameterError",
    "PlanError",
    "PrivacyError",
    "Problem",
    "ReportsError",
    "ShufflesumError",
]

Problem = Literal[
    # arguments and options
    "ambiguous-column",
    "ambiguous-header",
    "bad-bounds",
    "bad-span",
    "conflicting-arguments",
    "impossible-combination",
    "missing-argument",
    "missing-extra",
    "out-of-range",
    "too-many-cells",
    "too-many-reports",
    "unknown-choice",
    "unknown-column",
    "unknown-file-type",
    "wrong-type",
    # privacy and accuracy
    "audit-failed",
    "claim-not-confirmed",
    "error-out-of-reach",
    "no-guarantee",
    "not-certified",
    "nothing-but-noise",
    "one-process-only",
    "privacy-out-of-reach",
    # users' data
    "missing-value",
    "no-columns",
    "no-rows",
    "not-comparable",
    "not-numbers",
    "not-symmetric",
    "not-text",
    "other-columns",
    "other-layers",
    "out-of-bounds",
    "outside-span",
    "repeated-user",
    "too-many-labels",
    "unknown-label",
    "wrong-shape",
    # reports and batches
    "batch-begun",
    "batch-closed",
    "counted-twice",
    "expired",
    "guarantee-broken",
    "mixed-files",
    "mixed-reports",
    "not-sealed",
    "other-plan",
    "other-round",
    "other-task",
    "released-before",
    "rounds-spent",
    "sealed",
    "too-few-users",
    "wrong-stage",
    # files and documents
    "changed-afterwards",
    "changed-meanwhile",
    "damaged",
    "exists",
    "in-use",
    "malformed",
    "other-format",
    "other-measurements",
    "other-work",
    "spark-failed",
    "unreadable",
    "unwritable",
    # keys, tasks, uploads and servers
    "address-taken",
    "bad-answer",
    "contributed",
    "malformed-address",
    "malformed-key",
    "open-to-others",
    "other-key",
    "other-store",
    "server-failed",
    "stopped",
    "store-unavailable",
    "too-few-tokens",
    "unreachable",
    "untrusted",
    "wrong-batch",
    "wrong-length",
    "wrong-round",
    "wrong-task",
    "wrong-version",
]


class ShufflesumError(Exception):
    """Root of every error this package raises on purpose."""

    def __init__(self, problem: Problem | str, message: str) -> None:
        super().__init__(message)
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes with their problem."""
        return type(self), (self.problem, str(self))


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
