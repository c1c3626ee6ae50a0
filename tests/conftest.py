from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from numba.core.event import install_recorder

from shufflesum._compiled import uncompiled

# The first call of a compiled kernel compiles it, and machines that run tests are shared: time limits would be chance.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

TIERS = {
    "long": ("audit",),
    "servers": (
        "batch/test_remote_paths.py",
        "clients",
        "deploy/test_pair.py",
        "service",
        "cli/test_send.py",
        "cli/test_service_audit.py",
        "service/test_service_example.py",
    ),
    "cluster": (
        "batch/spark",
        "browser/test_chromium.py",
        "browser/test_pages_in_chromium.py",
        "pages/test_pages_in_a_browser.py",
        "test_examples.py",
    ),
    "processes": (
        "batch/shuffle/test_interrupted_shuffle.py",
        "batch/test_batch_randomize.py",
        "browser",
        "cli",
        "deploy",
        "experiments/federated/test_comparison.py",
        "experiments/test_command.py",
        "experiments/test_reproduction.py",
        "federated/test_parameters.py",
        "site",
        "test_aggregation_frames.py",
        "test_compiled.py",
        "test_budget_killed.py",
        "test_rounds_killed.py",
        "wire/test_damaged_files.py",
        "wire/test_sealing_workers.py",
    ),
}
"""What takes long, or starts servers, Spark (an example does), a browser, processes or commands; all else is quick."""

QUICK_SECONDS = 5.0


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_at_work() -> Iterator[None]:
    """A thread that a test leaves behind and that never waits slows down all tests after it, and fails none.

    Looked at where many tests run, in several processes: a mutant must be found by the tests themselves.
    """
    yield
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    start, spent = time.monotonic(), time.process_time()
    time.sleep(0.5)
    busy = (time.process_time() - spent) / (time.monotonic() - start)
    assert busy < 0.2, f"threads that tests left behind take {busy:.0%} of a processor: {threading.enumerate()}"


@pytest.fixture(params=["compiled", pytest.param("uncompiled", marks=pytest.mark.slow)])
def both_kernels(request: pytest.FixtureRequest) -> Iterator[bool]:
    """What kernels draw has its law whether they are compiled, as for many rows, or not, as for one.

    So many rows take minutes without; the same bits as compiled (`protocol/test_uncompiled.py`) are quickly seen.
    """
    compiled = request.param == "compiled"
    with nullcontext() if compiled else uncompiled():
        yield compiled


@cache
def tiers_of(path: Path) -> tuple[str, ...]:
    """By folder and module, so that no new test of theirs is forgotten."""
    tests = Path(__file__).parent
    return tuple(tier for tier, places in TIERS.items() if any(path.is_relative_to(tests / place) for place in places))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules of tiers that `-m` leaves out are not even imported: what they import takes longer than many tests."""
    chosen: str = config.option.markexpr
    return True if any(f"not {tier}" in chosen for tier in tiers_of(collection_path)) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for tier in tiers_of(item.path):
            item.add_marker(tier)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Keep `make test-fast` fast: who takes long says so. Processor time, whatever else the machine does."""
    if any(item.get_closest_marker(tier) for tier in ("slow", *TIERS)):
        yield
        return
    with install_recorder("numba:compile") as compiled:
        start = time.process_time()
        yield
        spent = time.process_time() - start
    if spent > QUICK_SECONDS and not compiled.buffer:
        pytest.fail(f"took {spent:.1f} s of processor time: make it shorter, or mark it `long`")
