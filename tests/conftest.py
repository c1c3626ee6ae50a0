from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# The first call of a compiled kernel compiles it, and machines that run tests are shared: time limits would be chance.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

TIERS = {
    "servers": ("service", "cli/test_send.py", "cli/test_service_demo.py"),
    "cluster": ("batch/spark", "test_examples.py"),
    "processes": (
        "batch/shuffle/test_interrupted_shuffle.py",
        "batch/test_batch_randomize.py",
        "cli",
        "experiments/federated/test_comparison.py",
        "experiments/test_reproduction.py",
        "federated/test_parameters.py",
        "test_aggregation_frames.py",
        "test_compiled.py",
        "test_rounds_killed.py",
        "wire/test_damaged_files.py",
        "wire/test_sealing_workers.py",
    ),
}
"""What starts servers, Spark (an example does), or processes and whole commands; all else runs in one process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole folders and modules, so that no new test of theirs is forgotten."""
    tests = Path(__file__).parent
    for item in items:
        for tier, places in TIERS.items():
            if any(item.path.is_relative_to(tests / place) for place in places):
                item.add_marker(tier)
