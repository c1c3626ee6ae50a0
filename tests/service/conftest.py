"""Real servers, a real PostgreSQL. Run by `make test-slow`: all of these start processes and wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.servers import Postgres, why_no_postgres


@pytest.fixture(scope="session")
def _one_postgres() -> Iterator[Postgres]:
    reason = why_no_postgres()
    if reason:
        pytest.skip(reason)
    with Postgres() as running:
        yield running


@pytest.fixture
def postgres(_one_postgres: Postgres) -> Postgres:
    """A PostgreSQL of this test run's own, running even if the test before has stopped it."""
    _one_postgres.start()
    return _one_postgres


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder slow."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
