from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.http.raw_connections import Target
from tests.service.servers import Deployment, StandInAnalyzer


@pytest.fixture(scope="session")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A shuffler that never has enough users."""
    deployment = Deployment.small(tmp_path_factory.mktemp("shuffler"), users=10**6, reports=2, rounds=2)
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url) as server:
        yield Target(deployment, server)
        assert analyzer.attempts == []


@pytest.fixture(scope="module")
def analyzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("analyzer")
    deployment = Deployment.small(folder, users=4, reports=2, rounds=1000)
    with deployment.analyzer("--processes", "1") as server:
        yield Target(deployment, server)
