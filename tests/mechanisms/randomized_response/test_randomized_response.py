from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.plan_builders import encoding_for
from tests.refusals import refusal

from shufflesum.domains import Arrays, Categories
from shufflesum.errors import ParameterError
from shufflesum.mechanisms import RandomizedResponse, mechanism_to_json

SEVEN = encoding_for(Arrays(7, (0.0, 1.0)), RandomizedResponse)
FOUR = encoding_for(Arrays(4, (0.0, 1.0)), RandomizedResponse)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"coordinates": 0}, ("out-of-range", "coordinates is 0")),
        ({"coordinates": 2.0}, ("wrong-type", "coordinates is 2.0")),
        ({"coordinates": True}, ("wrong-type", "coordinates is True")),
        ({"levels": 0}, ("out-of-range", "levels is 0")),
        ({"levels": 2**32}, ("out-of-range", f"levels is {2**32}")),
        (
            {"sampling": "all"},
            ("unknown-choice", "sampling is 'all'", "stratified", "uniform"),
        ),
        ({"noise_probability": math.nan}, ("out-of-range", "noise_probability is nan")),
        ({"noise_probability": math.inf}, ("out-of-range", "noise_probability is inf")),
        ({"noise_probability": -(2.0**-53)}, ("out-of-range", "noise_probability is -")),
        ({"noise_probability": 1 + 2.0**-52}, ("out-of-range", "noise_probability is 1.0000000000000002")),
        ({"noise_probability": 1e-17}, ("out-of-range", "noise_probability is 1e-17")),
        ({"noise_probability": "x"}, ("wrong-type", "noise_probability is 'x'")),
    ],
    ids=str,
)
def test_what_no_domain_could_make_sense_of_is_refused(change: dict[str, Any], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        RandomizedResponse(**{"coordinates": 2, "levels": 3, "noise_probability": 0.5, **change})


def test_numbers_of_numpy_and_whole_floats_become_pythons_own() -> None:
    given: Any = (np.uint8(2), np.int32(3), np.float32(0.5))
    for mechanism in (RandomizedResponse(*given), RandomizedResponse(2, 3, 0.5)):
        assert [type(value) for value in mechanism_to_json(mechanism).values()] == [str, int, int, float, str]
        assert mechanism == RandomizedResponse(2, 3, 0.5)


def test_cells_and_reports_follow_from_the_domain() -> None:
    mechanism = RandomizedResponse(3, 4, 0.25)
    assert (mechanism.values, mechanism.cells(SEVEN), mechanism.reports(SEVEN)) == (5, 35, 3)
    with refusal("out-of-range", "is 3", "between 1", "and 2", error=ParameterError):
        mechanism.check(encoding_for(Arrays(2, (0.0, 1.0)), RandomizedResponse))


def test_blocks_and_chances_of_being_sampled() -> None:
    stratified, uniform = RandomizedResponse(3, 4, 0.25), RandomizedResponse(3, 4, 0.25, "uniform")
    assert stratified.block_starts(SEVEN).tolist() == [0, 2, 4]
    np.testing.assert_allclose(stratified.sampling_probabilities(SEVEN), 1 / np.array([2, 2, 2, 2, 3, 3, 3]))
    np.testing.assert_allclose(uniform.sampling_probabilities(SEVEN), 3 / 7)


def test_reports_that_are_all_noise_are_not_decoded() -> None:
    with refusal("nothing-but-noise", "is 1", error=ParameterError):
        RandomizedResponse(1, 1, 1.0).decode(FOUR, np.ones(8, dtype=np.int64), 8)


def test_the_noise_is_described_without_rounding_it_in_our_favour() -> None:
    said = RandomizedResponse(2, 3, 0.1234588623046875).describe(SEVEN)
    assert said.startswith("2 of 7 coordinates (stratified), in 4 values, each replaced")
    assert said.endswith("with probability 0.12345")


# Who cannot have followed the protocol ------------------------------------------------------------------------------


def fewest(mechanism: RandomizedResponse, places: dict[int, int], rejected: int = 0, blanks: int = 0) -> int:
    """Of six users, with so many reports of each coordinate, all of the same value."""
    table = np.zeros((4, mechanism.values), dtype=np.int64)
    for coordinate, reports in places.items():
        table[coordinate, 0] = reports
    return mechanism.min_malicious(FOUR, table.reshape(-1), blanks, rejected, 6)


@pytest.mark.parametrize(
    ("blocks", "rejected", "malicious"),
    [
        ((6, 6), 0, 0),
        ((6, 4), 2, 2),  # two rejected reports could be one user's, but one block lacks two
        ((5, 5), 2, 1),
        ((8, 4), 0, 2),  # nothing rejected, but two users sent both reports for the first block
    ],
)
def test_the_fewest_users_who_cannot_have_followed_the_protocol(
    blocks: tuple[int, int], rejected: int, malicious: int
) -> None:
    """Four coordinates in two blocks, of which every user reports one each."""
    assert fewest(RandomizedResponse(2, 3, 0.0), {0: blocks[0], 2: blocks[1]}, rejected) == malicious


def test_one_user_can_put_all_reports_into_one_block() -> None:
    """Two users of a thousand with a hundred reports each: two, not 198."""
    table = np.zeros((100, 4), dtype=np.int64)
    table[:, 0] = 998
    table[0, 0] += 200
    hundred = encoding_for(Arrays(100, (0.0, 1.0)), RandomizedResponse)
    assert RandomizedResponse(100, 3, 0.0).min_malicious(hundred, table.reshape(-1), 0, 0, 1000) == 2


def test_in_uniform_sampling_nobody_reports_a_coordinate_twice() -> None:
    uniform = RandomizedResponse(2, 3, 0.0, "uniform")
    assert fewest(uniform, {0: 6, 2: 6}) == 0
    assert fewest(uniform, {0: 12}) == 6
    assert fewest(uniform, {0: 8, 2: 4}) == 2
    assert fewest(uniform, {0: 6, 2: 5}, rejected=1) == 1


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_whoever_reports_all_coordinates_reports_each_once_in_either_scheme(sampling: Any) -> None:
    every = RandomizedResponse(4, 3, 0.0, sampling)
    assert fewest(every, {0: 6, 1: 6, 2: 7, 3: 5}) == 1
    assert fewest(every, {0: 6, 1: 6, 2: 6, 3: 6}) == 0


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_with_one_report_a_user_only_rejected_ones_and_blanks_give_anybody_away(sampling: Any) -> None:
    one = RandomizedResponse(1, 3, 0.0, sampling)
    assert fewest(one, {0: 6}) == fewest(one, {0: 3, 3: 3}) == 0
    assert fewest(one, {0: 3}, rejected=3) == fewest(one, {0: 3}, blanks=3) == 3


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_nobody_who_follows_the_protocol_sends_a_blank(sampling: Any) -> None:
    """Blanks make users of nobody: whoever sends nothing else hides nobody."""
    assert fewest(RandomizedResponse(2, 3, 0.0, sampling), {0: 1, 2: 1}, blanks=10) == 5
    assert fewest(RandomizedResponse(2, 3, 0.0, sampling), {0: 4, 2: 4}, blanks=2, rejected=2) == 2


def test_a_box_has_no_more_levels_than_drawing_kernels_can_round_to() -> None:
    box = encoding_for(Arrays(2, (0.0, 1.0)), RandomizedResponse)
    RandomizedResponse(1, 32_766, 0.5).check(box)
    with refusal("out-of-range", "levels is 32767", "1 and 32766", error=ParameterError):
        RandomizedResponse(1, 32_767, 0.5).check(box)


def test_categories_have_as_many_levels_as_other_labels() -> None:
    labels = encoding_for(Categories(100_000), RandomizedResponse)
    RandomizedResponse(1, 99_999, 0.5).check(labels)
    for wrong in (RandomizedResponse(1, 9, 0.5), RandomizedResponse(2, 99_999, 0.5)):
        with refusal("out-of-range", error=ParameterError):
            wrong.check(labels)
