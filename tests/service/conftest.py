"""A real PostgreSQL for the tests of the service, started once for each test process, and stores of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.service.postgres import Postgres, why_no_postgres
from tests.service.stores.store_urls import PathOrUrl, new_task

from shufflesum.service.stores.store import Store


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


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> PathOrUrl:
    task = new_task(tmp_path)
    if request.param == "sqlite":
        return PathOrUrl(f"sqlite:{tmp_path / 'store.db'}", task, lambda: list(tmp_path.glob("store.db*")))
    running: Postgres = request.getfixturevalue("postgres")

    def files() -> list[Path]:
        with psycopg.connect(running.address, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        # The database's own log is its administrator's to keep or not, and docs/deploy.md says so.
        return [path for path in (running.data / "base").rglob("*") if path.is_file()]

    return PathOrUrl(running.address, task, files)


@pytest.fixture
def store(place: PathOrUrl) -> Iterator[Store]:
    store = place.open()
    yield store
    store.close()
