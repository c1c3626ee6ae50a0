from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

import shufflesum.privacy
from shufflesum.errors import ParameterError
from shufflesum.privacy import Guarantee, RandomizedResponseAccountant, honest_users

fractions = st.floats(0, 1, exclude_min=True) | st.integers(1, 1000).map(lambda part: part / 1000)


def test_honest_users_are_the_exact_floor_of_the_stored_number() -> None:
    assert 39_225 * 0.96 == 37_656  # rounded up: the double 0.96 lies below 0.96
    accountant = RandomizedResponseAccountant(users=39_225, levels=1, honest_fraction=0.96)
    assert honest_users(39_225, 0.96) == accountant.honest_users == 37_655


def test_a_guarantee_is_for_one_round_of_honest_users_unless_told_otherwise() -> None:
    once = Guarantee(1.0, 1e-6, 100)
    assert (once.rounds, once.honest_fraction, once.accountant) == (1, 1.0, "exact")
    assert "round" not in once.describe()


@given(users=st.integers(1, 10**10), fraction=fractions)
def test_honest_users_never_exceed_what_the_fraction_allows_and_are_at_least_one(users: int, fraction: float) -> None:
    assert honest_users(users, fraction) == max(1, math.floor(users * Fraction(fraction)))


def test_numbers_of_numpy_count_as_their_own_value() -> None:
    assert honest_users(int(np.int64(10**10)), float(np.float32(0.1))) == honest_users(
        np.int64(10**10),  # type: ignore[arg-type]
        np.float32(0.1),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("fraction", "problem"),
    [
        *((fraction, "out-of-range") for fraction in (0.0, -0.5, 1.0000000000000002, math.nan, math.inf)),
        (True, "wrong-type"),
        ("all", "wrong-type"),
    ],
)
def test_what_is_no_fraction_is_refused(fraction: float, problem: str) -> None:
    with refusal(problem, f"honest_fraction is {fraction!r}", error=ParameterError):
        honest_users(10, fraction)


def test_a_guarantee_in_words_names_the_conditions_it_rests_on() -> None:
    plain = Guarantee(1.0, 1e-6, 1000)
    assert plain.describe() == "epsilon 1.0, delta 1e-6"
    assert replace(plain, accountant="none").describe() == "none"
    assert replace(plain, rounds=3).describe() == "epsilon 1.0, delta 1e-6 over 3 rounds"
    assert replace(plain, honest_fraction=0.5).describe() == "epsilon 1.0, delta 1e-6 if 500 users are honest"


# The proofs are read beside the code: the modules and functions that their pages name are there


ROOT = Path(__file__).parents[2]
PACKAGE = Path(shufflesum.privacy.__file__).parent
FOLDERS = (PACKAGE, PACKAGE.parent, ROOT)
FEWEST = {
    "privacy.md": 20,
    "privacy-ball.md": 20,
    "privacy-noise.md": 10,
    "privacy-sums.md": 6,
    "privacy-discovery.md": 5,
}  # functions that a page names, and more
PAGES = {name: (ROOT / "docs" / name).read_text() for name in FEWEST}
NAMED = re.compile(r"`([\w/]+\.py)`((?:(?:,| and)\s+`[\w.]+`)*)")  # `module.py`, `function` and `function`


@pytest.mark.parametrize("page", PAGES)
def test_every_module_and_function_named_on_a_page_is_where_it_says(page: str) -> None:
    named = [(path, re.findall(r"`([\w.]+)`", names)) for path, names in NAMED.findall(PAGES[page])]
    assert sum(len(names) for _, names in named) > FEWEST[page]
    for path, names in named:
        file = next((folder / path for folder in FOLDERS if (folder / path).exists()), None)
        assert file is not None, path
        for name in names:
            assert re.search(rf"\b(def|class) {name.split('.')[-1]}\b", file.read_text()), (path, name)


def test_every_module_of_the_accountant_is_on_a_page() -> None:
    pages = "".join(PAGES.values())
    modules = [file.relative_to(PACKAGE).as_posix() for file in PACKAGE.glob("**/[!_]*.py")]
    assert len(modules) > 12
    assert [module for module in modules if f"`{module}`" not in pages] == []
