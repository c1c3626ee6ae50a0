"""A deployment: client, shuffler and analyzer as separate programs that talk over HTTP."""

from __future__ import annotations

from importlib.util import find_spec

from shufflesum.errors import MissingExtraError

__all__ = ["require_client", "require_service"]

_LIBRARIES = ("httpx", "httptools", "prometheus_client", "starlette", "structlog", "uvicorn")


def require_service() -> None:
    """Say which extra is missing, before a library that is not there does."""
    for name in _LIBRARIES:
        if find_spec(name) is None:
            raise MissingExtraError(
                "missing-extra", f"servers need {name}, which is not installed: pip install 'shufflesum[service]'"
            )


def require_client() -> None:
    """The same for a client."""
    if find_spec("httpx") is None:
        raise MissingExtraError(
            "missing-extra", "a client needs httpx, which is not installed: pip install 'shufflesum[client]'"
        )
