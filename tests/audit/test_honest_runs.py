"""The honest randomizer passes, again and again, for every mechanism and domain.

At a confidence of 1 - 1e-6 one of a hundred runs fails less than once in ten thousand times.
"""

from __future__ import annotations

import pytest
from tests.audit.test_sabotage import SETTINGS, findings_only, planned

from shufflesum.audit import audit

__all__ = ["findings_only"]  # a fixture for all tests here


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_the_honest_randomizer_passes_a_hundred_runs(name: str) -> None:
    for _ in range(-(-100 // len(SETTINGS))):
        result = audit(planned(name), samples=100_000, trials=0)
        assert result.passed, result.findings
