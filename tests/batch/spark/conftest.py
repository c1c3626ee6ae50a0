from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from shufflesum.batch import spark

    session = spark.session("local[2]")
    yield session
    session.stop()
