from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.browser.node import Node


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with Node() as started:
        yield started
