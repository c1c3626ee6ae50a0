from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

# The first call of a compiled kernel compiles it, and machines that run tests are shared: time limits would be chance.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True, scope="session")
def _no_memory_of_other_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The accountant remembers within a test run, and leaves nothing in the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUFFLESUM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
