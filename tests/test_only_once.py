"""What draws, releases or spends cannot be doubled."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.errors import CopyError, ReportsError
from shufflesum.protocol import Tally
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.testing import unprotected_plan

PLAN = unprotected_plan(users=1, shape=1)
MADE: dict[str, Callable[[Path], object]] = {
    "tally": lambda _: Tally(PLAN),
    "analyzer": lambda _: ss.Analyzer(PLAN),
    "counts": lambda _: Counts(PLAN),
    "budget": lambda _: ss.Budget(1.0, 1e-6),
    "budget in a file": lambda folder: ss.Budget.create(folder / "budget.db", 1.0, 1e-6),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("made", MADE)
def test_nothing_that_draws_releases_or_spends_can_be_pickled(made: str, protocol: int, tmp_path: Path) -> None:
    with refusal("only-once", error=CopyError):
        pickle.dumps(MADE[made](tmp_path), protocol)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("made", MADE)
def test_nor_copied_alone_or_inside_something(made: str, duplicate: Callable[[object], object], tmp_path: Path) -> None:
    one = MADE[made](tmp_path)
    with refusal("only-once", type(one).__name__, error=CopyError) as refused:
        duplicate(one)
    assert isinstance(refused.value, TypeError)
    with refusal("only-once", error=CopyError):
        copy.deepcopy([one])


def test_a_released_table_takes_nothing_more() -> None:
    counts, more = Counts(PLAN), Counts(PLAN)
    reports = ss.Randomizer(PLAN).randomize([[0.5]])
    counts.add(reports)
    more.add(reports)
    release(counts)
    with refusal("batch-closed", error=ReportsError):
        counts.add(reports)
    with refusal("batch-closed", error=ReportsError):
        counts.merge(more)
    with pytest.raises(ValueError, match="read-only"):
        counts.table += 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_is_a_copy_too() -> None:
    """Noise drawn in parent and child would be two draws over the same rows."""
    tally, analyzer = Tally(PLAN), ss.Analyzer(PLAN)
    tally.add([[0.5]])
    analyzer.add(ss.Randomizer(PLAN).randomize([[0.5]]))

    child = os.fork()
    if child == 0:
        refused = 0
        for act in (tally.counts, analyzer.estimate, lambda: tally.add([[0.5]])):
            with suppress(BaseException):
                try:
                    act()
                except CopyError:
                    refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert tally.counts().users == 1
    assert analyzer.estimate().users == 1
