"""A deployment: client, shuffler and analyzer as separate programs that talk over HTTP."""

from __future__ import annotations

from importlib.util import find_spec

from shufflesum.errors import MissingExtraError

__all__ = ["require_client", "require_explorer", "require_service"]

_LIBRARIES = ("httpx", "httptools", "prometheus_client", "sqlalchemy", "starlette", "structlog", "uvicorn")


def require_service() -> None:
    """Say which extra is missing, before a library that is not there does."""
    _require(_LIBRARIES, "servers need {}, which is not installed: pip install 'shufflesum[service]'")


def require_explorer() -> None:
    """The same for the local page that plans, which also draws."""
    needed = ("starlette", "uvicorn", "jinja2", "markdown_it", "altair", "vl_convert")
    _require(needed, "the explorer needs {}, which is not installed: pip install 'shufflesum[plots]'")


def require_client() -> None:
    """The same for a client."""
    _require(("httpx",), "a client needs {}, which is not installed: pip install 'shufflesum[client]'")


def _require(libraries: tuple[str, ...], said: str) -> None:
    for name in libraries:
        if find_spec(name) is None:
            raise MissingExtraError("missing-extra", said.format(name))
