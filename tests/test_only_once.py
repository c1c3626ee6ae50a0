"""What draws, releases or spends cannot be doubled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.errors import CopyError
from shufflesum.protocol import Tally
from shufflesum.testing import unprotected_plan

PLAN = unprotected_plan(users=1, shape=1)
MADE: dict[str, Callable[[Path], object]] = {
    "tally": lambda _: Tally(PLAN),
    "analyzer": lambda _: ss.Analyzer(PLAN),
    "budget": lambda _: ss.Budget(1.0, 1e-6),
    "budget in a file": lambda folder: ss.Budget.create(folder / "budget.json", 1.0, 1e-6),
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
