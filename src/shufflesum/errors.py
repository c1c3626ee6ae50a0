"""One root error and a handful of children, each with a stable name for programs and a message for people.

`problem` is one of the names below and never changes its meaning; tests and other programs go by it. The message says
what was given, what is allowed and which knob to turn, and may be worded better any day. What users' data holds is
never in a message, since messages end in logs that others keep: it is in `value`, and shown on terminals only.
"""

from __future__ import annotations

from typing import Any, Literal, Self

Problem = Literal[
    # arguments and options
    "ambiguous-column",
    "ambiguous-decimal",
    "ambiguous-header",
    "ambiguous-separator",
    "bad-bounds",
    "bad-span",
    "conflicting-arguments",
    "impossible-combination",
    "index-mismatch",
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
    "budget-closed",
    "budget-spent",
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
    "columns-mismatch",
    "layers-mismatch",
    "out-of-bounds",
    "outside-span",
    "repeated-user",
    "too-many-labels",
    "unknown-label",
    "wrong-shape",
    # reports and batches
    "batch-not-empty",
    "batch-closed",
    "counted-twice",
    "expired",
    "guarantee-broken",
    "mixed-files",
    "mixed-reports",
    "not-sealed",
    "not-whole",
    "only-once",
    "plan-mismatch",
    "round-mismatch",
    "task-mismatch",
    "randomized-before",
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
    "format-mismatch",
    "measurements-mismatch",
    "resume-mismatch",
    "rolled-back",
    "spark-failed",
    "unreadable",
    "unwritable",
    # keys, tasks, uploads and servers
    "address-taken",
    "bad-answer",
    "duplicate-contribution",
    "malformed-address",
    "malformed-key",
    "insecure-permissions",
    "key-mismatch",
    "store-mismatch",
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

    def __init__(
        self, problem: Problem | str, message: str, *, value: str | None = None, row: int | None = None
    ) -> None:
        super().__init__(message)
        self.problem = problem
        self.value = value
        """What a user's data holds there, as text, where that is what is wrong."""
        self.row = row
        """Whose data it is of: the row of the data, counted from 0."""

    def at(self, where: object) -> Self:
        """The same error, its message beginning with where it happened."""
        return type(self)(self.problem, f"{where}: {self}", value=self.value, row=self.row)

    def ending(self, said: str) -> Self:
        """The same error, its message ending with what else is to be known."""
        return type(self)(self.problem, f"{self}; {said}", value=self.value, row=self.row)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes with all that they know."""
        return type(self), (self.problem, str(self)), {"value": self.value, "row": self.row}


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


class CopyError(ShufflesumError, TypeError):
    """What draws, releases or spends exists only once: it can be neither copied nor pickled."""


class MissingExtraError(ShufflesumError, ImportError):
    """An optional library is not installed; the message names the extra that brings it."""
