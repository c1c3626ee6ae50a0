"""Estimates of labels that were found: intervals given that a label is listed, the rest, files, and what people see."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refusal

import shufflesum as ss
from shufflesum._documents import decode_checked, encode_checked
from shufflesum.domains.unlisted_labels.estimate import DiscoveryEstimate
from shufflesum.errors import FileError, ReportsError
from shufflesum.mechanisms import PartitionSelection
from shufflesum.pages import estimate_table
from shufflesum.statement import statement
from shufflesum.tables.writers import estimate_to_json
from shufflesum.testing import SeededSource

USERS = 2000


def chances(noise: ss.NoiseDistribution) -> NDArray[np.float64]:
    return np.array([weight / 2**128 for weight in noise.weights])


@pytest.fixture(scope="module")
def found() -> DiscoveryEstimate:
    values = ["often"] * 900 + ["seldom"] * 600 + ["<b>bold</b>"] * 200 + [f"own {i}" for i in range(300)]
    return ss.discover(values, 1.0, 1e-6, source=SeededSource(3))


NOISES = {
    "laplace": ss.NoiseDistribution(1.0, 2.2, 29),
    "between": ss.NoiseDistribution(1.45, 15.5, 98),
    "gaussian": ss.NoiseDistribution(2.0, 5.0, 25),
    "short": ss.NoiseDistribution(1.0, 1.3, 1),
}
REST = ss.NoiseDistribution(1.0, 10.0, 150)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("name", NOISES)
def test_intervals_hold_given_that_a_label_is_listed(name: str, level: float) -> None:
    mechanism = PartitionSelection(NOISES[name], REST)
    noise, half = chances(mechanism.noise), mechanism.noise.half_length
    tail = (1 - level) / 2
    broken = 0
    for count in [1, 2, 3, half, half + 1, 2 * half - 1, 2 * half, 2 * half + 1, 3 * half, 900]:
        noisy = count + np.arange(2 * half + 1)
        listed = noisy > 2 * half
        low, high = mechanism.label_interval(noisy[listed], tail, USERS)
        weight = noise[listed] / noise[listed].sum()
        assert weight[(low <= count) & (count <= high)].sum() >= level - 1e-12
        # ends of plain intervals, which take no notice of why the label is seen
        reach = int(np.argmax(np.cumsum(noise[half:]) * 2 - noise[half] >= level))
        plain = np.abs(noisy[listed] - half - count) <= reach
        broken += weight[plain].sum() < level
    assert broken > 0 or name == "short"


def test_intervals_are_those_of_the_noise_where_a_label_is_listed_in_any_case() -> None:
    mechanism = PartitionSelection(NOISES["laplace"], REST)
    noise, half = chances(mechanism.noise), mechanism.noise.half_length
    low, high = mechanism.label_interval(np.array([900 + half]), 0.025, USERS)
    reach = int(high[0]) - 900
    assert (low[0], high[0]) == (900 - reach, 900 + reach)
    assert noise[: half - reach].sum() <= 0.025 < noise[: half - reach + 1].sum()


def test_intervals_stay_among_the_possible() -> None:
    mechanism = PartitionSelection(NOISES["laplace"], REST)
    low, high = mechanism.label_interval(np.array([59, 60, 61, 130]), 1e-9, 100)
    assert (low >= 1).all()
    assert (high <= 100).all()
    assert (low <= high).all()


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_of_the_rest_hold(level: float) -> None:
    mechanism = PartitionSelection(NOISES["laplace"], REST)
    noise = chances(mechanism.rest_noise)
    for users in (0, 3, 150, 700):
        ends = [mechanism.rest_interval(users + draw, (1 - level) / 2, USERS) for draw in range(301)]
        held = np.array([low <= users <= high for low, high in ends])
        assert noise[held].sum() >= level - 1e-12
        assert users < 150 or noise[held].sum() <= level + 2 * float(noise[150])


def test_how_many_users_a_label_takes_is_exact() -> None:
    mechanism = PartitionSelection(NOISES["laplace"], REST)
    noise, half = chances(mechanism.noise), mechanism.noise.half_length
    for parameters in NOISES.values():
        each = PartitionSelection(parameters, REST)
        assert each.found_from(1.0) == 2 * each.noise.half_length + 1
    for probability in (0.01, 0.5, 0.9, 0.99):
        users = mechanism.found_from(probability)
        assert noise[2 * half + 1 - users :].sum() >= probability > noise[2 * half + 2 - users :].sum()


def test_the_estimate_says_counts_rest_and_what_was_done(found: DiscoveryEstimate) -> None:
    assert found.labels[:2] == ("often", "seldom")
    assert found.counts == pytest.approx([900, 600, 200], abs=30)
    assert found.threshold == found.plan.mechanism.noise.half_length + 1  # type: ignore[attr-defined]
    assert found.max_items == 1
    table = found.to_table()
    assert list(table.columns) == ["name", "value", "std_error", "lower", "upper", "users", "notes", "share"]
    assert table.columns["name"].tolist() == list(found.labels)
    figures = json.loads(json.dumps(estimate_to_json(found, 0.999999)))
    assert figures["labels"] == list(found.labels)
    assert figures["not_listed_interval"][0] <= 300 <= figures["not_listed_interval"][1]
    assert {"threshold", "found_from", "max_items", "count_interval"} <= figures.keys()
    said = " ".join(found.remarks())
    assert "of 2,000 users hold a label that is not listed" in said
    assert f"at least {found.threshold}" in said
    assert "drawn at random" not in said
    several = ss.discover([["a", "b", "c"]] * 200, 1.0, 1e-6, max_items=2)
    assert "at most 2 labels count, drawn at random" in " ".join(several.remarks())
    assert found.top(2).labels == ("often", "seldom")


def test_levels_are_of_each_label_or_of_all_together(found: DiscoveryEstimate) -> None:
    for simultaneous, together in ((False, 1), (True, len(found.labels))):
        ends = found.count_interval(0.9, simultaneous=simultaneous)
        wanted = found.mechanism.label_interval(found.table[:-1], 0.05 / together, USERS)
        np.testing.assert_array_equal(ends, wanted)
    assert found.not_listed(0.9)[1:] == found.mechanism.rest_interval(int(found.table[-1]), 0.05, USERS)


def test_the_statement_says_that_delta_covers_labels_of_one_user(found: DiscoveryEstimate) -> None:
    said = " ".join(statement(found.plan).split())
    assert "labels that nobody listed before" in said
    assert "a label which only one user holds" in said
    assert "**1.0**, **1e-6**" in said


def test_labels_are_shown_as_text(found: DiscoveryEstimate) -> None:
    assert "&lt;b&gt;bold" in found._repr_html_()
    assert "<b>bold" not in found._repr_html_()
    named = ss.discover(["\x1b[31mred\u202e\r"] * 200, 1.0, 1e-6)
    assert named.labels == ("\x1b[31mred\u202e",)
    for shown in (str(named), named._repr_html_(), named.remarks()[0], str(estimate_table(named).rows)):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert "\\u001b[31mred" in str(named)


def test_files_come_back_and_nothing_in_them_is_believed(found: DiscoveryEstimate, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    found.save(path)
    back = DiscoveryEstimate.load(path)
    assert back.labels == found.labels
    assert back.table.tolist() == found.table.tolist()
    assert back.plan == found.plan
    assert str(back) == str(found)
    dropped = replace(found, adjusted=("dropped",), left_out=3)
    dropped.save(path)
    assert ss.BaseEstimate.load(path).left_out == 3
    with refusal("wrong-type", error=FileError):
        ss.CountEstimate.load(path)


def wrong(found: DiscoveryEstimate, **changed: Any) -> DiscoveryEstimate:
    table = found.table.copy()
    if "table" in changed:
        changed["table"] = changed["table"](table)
    return replace(found, **changed)


IMPOSSIBLE: dict[str, Any] = {
    "a count that noise alone could be": {"table": lambda table: np.concatenate([[table[0], table[1], 58], table[3:]])},
    "a count above all users": {"table": lambda table: np.concatenate([[5000], table[1:]])},
    "another order": {"table": lambda table: np.concatenate([[table[1], table[0]], table[2:]])},
    "a label twice": {"labels": ("often", "often", "seldom")},
    "too few labels": {"labels": ("often",)},
    "a rest above all users": {"table": lambda table: np.append(table[:-1], 5000)},
    "a rest below nothing": {"table": lambda table: np.append(table[:-1], -1)},
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_have_been_released_is_refused(found: DiscoveryEstimate, name: str) -> None:
    with refusal("malformed", error=ReportsError):
        wrong(found, **IMPOSSIBLE[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [("words", None), ("words", ["often"]), ("users", 1), ("why_broken", "so"), ("rejected_reports", 1), ("round", 2)],
)
def test_an_altered_file_is_refused(found: DiscoveryEstimate, name: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    found.save(path)
    content = decode_checked(path.read_bytes(), "shufflesum-estimate-1") | {name: value}
    path.write_text(encode_checked("shufflesum-estimate-1", content))
    with refusal(("changed-afterwards", "malformed", "out-of-range"), error=FileError):
        ss.BaseEstimate.load(path)


@pytest.mark.filterwarnings("ignore::shufflesum.cautions.UninformativePlanWarning")
@pytest.mark.parametrize("values", [["a"] * 200, ["a", "b"]], ids=["something", "nothing"])
def test_a_picture_of_what_is_found_or_of_nothing(values: list[str], tmp_path: Path) -> None:
    pytest.importorskip("altair")
    estimate = ss.discover(values, 1.0, 1e-6)
    estimate.plot().save(tmp_path / "found.svg")
    assert "Private label counts" in (tmp_path / "found.svg").read_text()
