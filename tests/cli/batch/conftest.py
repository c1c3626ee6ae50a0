from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.batch.report_folders import shuffle_folder, snapshot
from tests.cli.batch.plans import OTHER, PLAN

if TYPE_CHECKING:
    from tests.cli.conftest import Command

Rows: TypeAlias = NDArray[np.float64]


@pytest.fixture
def files(folder: Path, crowd: Rows) -> Path:
    """5,000 users in a file, and two plans."""
    np.save(folder / "users.npy", crowd)
    (folder / "plan.json").write_text(PLAN.to_json())
    (folder / "other.json").write_text(OTHER.to_json())
    return folder


@pytest.fixture
def shuffled(files: Path, command: Command) -> Path:
    assert command("randomize", "users.npy", "--plan", "plan.json", "-o", "reports").code == 0
    return shuffle_folder(files / "reports", files / "shuffled")


@pytest.fixture
def refused(command: Command, folder: Path) -> Callable[..., str]:
    """What a command says that refuses; it prints no result and changes no file."""

    def call(*arguments: object) -> str:
        before = snapshot(folder)
        done = command(*arguments)
        assert (done.code, done.out) == (2, "")
        assert snapshot(folder) == before
        assert not list(folder.glob(".*.partial"))
        return done.err

    return call
