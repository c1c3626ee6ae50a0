"""A real PostgreSQL for the tests of the service, started once for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.postgres import Postgres, why_no_postgres


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
