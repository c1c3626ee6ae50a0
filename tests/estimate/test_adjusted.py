"""What was done to values before they were counted is told with the estimate, and kept with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum._documents import decode_checked, encode_checked
from shufflesum.domains import Arrays, Categories, L2Ball
from shufflesum.estimate import adjusted_by, describe_adjustments
from shufflesum.tables.writers import estimate_to_json

ROWS = np.array([np.nan, -1.0, *np.linspace(0, 1, 498)])
MEAN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def estimate() -> ss.Estimate:
    found: ss.Estimate = ss.aggregate(ROWS, clip=True, missing="midpoint", bounds=(0, 1), **MEAN)
    return found


def test_only_what_was_asked_for_is_told() -> None:
    plain = ss.aggregate(ROWS[2:], **MEAN)
    assert (plain.adjusted, plain.adjustment) == ((), None)
    assert "adjusted" not in estimate_to_json(plain)
    clipped = ss.aggregate(ROWS[1:], clip=True, bounds=(0, 1), **MEAN)
    assert clipped.adjusted == ("clipped",)
    assert "missing" not in str(clipped.adjustment)


def test_a_variance_tells_it_too() -> None:
    assert ss.moments(ROWS, clip=True, missing="midpoint", bounds=(0, 1), **MEAN).estimate.adjusted == (
        "clipped",
        "midpoint",
    )
    assert ss.moments(ROWS[2:], **MEAN).estimate.adjusted == ()


def test_notebooks_and_json_tell_it(estimate: ss.Estimate) -> None:
    said = estimate.adjustment
    assert said
    assert "nearest" in said
    assert "middle" in said
    assert said in estimate._repr_html_()
    document = estimate_to_json(estimate)
    assert (document["adjusted"], document["adjustment"]) == (["clipped", "midpoint"], said)


def test_it_is_said_in_the_words_of_what_users_hold() -> None:
    clipped = adjusted_by(clip=True, missing="refuse")
    for domain, word in (
        (Arrays(1, (0, 1)), "bounds"),
        (L2Ball(1, clipping_norm=1.0), "clipping norm"),
        (Categories(bins=[0, 1, 2]), "bins"),
    ):
        assert word in str(describe_adjustments(clipped, domain.wording.clipped))


def test_it_is_kept_in_a_file(estimate: ss.Estimate, tmp_path: Path) -> None:
    estimate.save(tmp_path / "estimate.json")
    assert ss.Estimate.load(tmp_path / "estimate.json").adjusted == estimate.adjusted


@pytest.mark.parametrize("adjusted", ["clipped", ["shaken"], ["midpoint", "clipped"], ["clipped", "clipped"], [[]], 1])
def test_a_file_with_something_else_is_refused(estimate: ss.Estimate, tmp_path: Path, adjusted: object) -> None:
    path = tmp_path / "estimate.json"
    estimate.save(path)
    content = decode_checked(path.read_bytes(), "shufflesum-estimate-1")
    path.write_text(encode_checked("shufflesum-estimate-1", content | {"adjusted": adjusted}))
    with refusal("changed-afterwards"):
        ss.Estimate.load(path)
