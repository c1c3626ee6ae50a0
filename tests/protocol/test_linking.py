"""Why every report travels alone: with a user's reports kept in one message the published theorem fails.

At n = 10^6, d = t = 10, k = 1, epsilon = 0.95 and delta = 10^-6 the published formula gives a noise probability of
0.1441. Among users at 1...1, one at 0...0 sends ten zeros with probability (1 - gamma/2)^10 = 0.473; all the others
together do so with probability below n (gamma/2)^10 = 4e-6. Whoever sees whole messages looks for ten zeros.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, binom
from tests.plan_builders import coordinates_of, replace_of, values_of, with_guarantee

import shufflesum as ss
from shufflesum import Randomizer, Reports
from shufflesum.privacy import published
from shufflesum.randomness import RandomSource
from shufflesum.testing import SeededSource

USERS, DIMENSION, EPSILON, DELTA = 10**6, 10, 0.95, 1e-6
CHUNK = 200_000
TRIALS = 20_000


@pytest.fixture(scope="module")
def plan() -> ss.Plan:
    return ss.plan(
        users=USERS,
        shape=DIMENSION,
        epsilon=EPSILON,
        delta=DELTA,
        mechanism=ss.RandomizedResponse.Options(coordinates=DIMENSION, levels=1, sampling="uniform"),
        accountant="paper",
    )


@pytest.fixture(scope="module")
def crowd(plan: ss.Plan) -> Reports:
    """What 10^6 users at 1...1 send, message after message."""
    return send(plan, 1.0, USERS, SeededSource(1))


def send(plan: ss.Plan, value: float, users: int, source: RandomSource) -> Reports:
    randomizer = Randomizer(plan, source=source)
    rows = np.full((min(users, CHUNK), DIMENSION), value)
    return Reports.concatenate(randomizer.randomize(rows[: users - start]) for start in range(0, users, CHUNK))


def messages_of_zeros(plan: ss.Plan, reports: Reports) -> NDArray[np.bool_]:
    """Which messages are ten zeros, where every ten reports are one message."""
    return np.asarray(values_of(plan, reports).reshape(-1, DIMENSION).max(axis=1) == 0)


def test_the_published_formula_gives_the_noise_of_the_counterexample(plan: ss.Plan) -> None:
    gamma = replace_of(plan).noise_probability
    assert gamma == pytest.approx(0.1441, abs=5e-5)
    assert gamma >= published.published_noise_probability(
        users=USERS, dimension=DIMENSION, levels=1, coordinates=DIMENSION, epsilon=EPSILON, delta=DELTA
    )
    intact = (1 - gamma / 2) ** DIMENSION
    assert intact == pytest.approx(0.4734, abs=5e-5)
    assert USERS * (gamma / 2) ** DIMENSION == pytest.approx(3.8e-6, rel=0.02)


def test_linked_messages_betray_the_user(plan: ss.Plan, crowd: Reports) -> None:
    """The event "some message is ten zeros", on the randomizer's own output: delta is above 0.45, not 10^-6.

    Messages are independent, so the event's chance is at least the victim's own, and without the victim at most USERS
    times that of one user at 1...1. The bound on the former fails with probability 1e-6, and the source is seeded.
    """
    intact = int(messages_of_zeros(plan, send(plan, 0.0, TRIALS, SeededSource(2))).sum())
    with_victim = beta.ppf(1e-6, intact, TRIALS - intact + 1)
    assert not messages_of_zeros(plan, crowd).any()  # happens with probability 1 - 4e-6 over all seeds
    # each report of the crowd is a zero with at most this chance, but for 1e-6; ten of them are independent
    zeros = int((values_of(plan, crowd) == 0).sum())
    without_victim = USERS * beta.ppf(1 - 1e-6, zeros + 1, len(crowd) - zeros) ** DIMENSION
    assert without_victim < 1e-5
    shown = with_victim - math.exp(EPSILON) * without_victim
    assert 0.45 < shown < 0.48
    assert shown > 100_000 * DELTA


def test_the_reports_of_a_message_are_as_independent_as_the_bound_assumes(plan: ss.Plan, crowd: Reports) -> None:
    """Zeros in a message of the crowd follow Binomial(10, gamma/2): exact tails, false alarm below 1e-6 in all."""
    seen = np.bincount(10 - values_of(plan, crowd).reshape(-1, DIMENSION).sum(axis=1), minlength=DIMENSION + 1)
    gamma = replace_of(plan).noise_probability
    expected = binom.pmf(np.arange(DIMENSION + 1), DIMENSION, gamma / 2)
    wrong = binom.pmf(np.arange(DIMENSION + 1), DIMENSION, 1.02 * gamma / 2)
    each = 1e-6 / (2 * (DIMENSION + 1))

    def fits(law: NDArray[np.float64]) -> bool:
        tails = np.minimum(binom.cdf(seen, USERS, law), binom.sf(seen - 1, USERS, law))
        return bool(np.all(tails > each))

    assert fits(expected)
    assert not fits(wrong)


def test_the_same_noise_protects_once_reports_are_unlinked(plan: ss.Plan) -> None:
    """The certified accountant, for unlinked reports: well inside the (0.95, 10^-6) that linking breaks."""
    with_guarantee(plan, accountant="exact", delta=DELTA / 2).verify()


@pytest.mark.long
def test_shuffled_reports_no_longer_group_into_messages(plan: ss.Plan, crowd: Reports) -> None:
    """After the shuffler ten zeros of one user are ten zeros somewhere among ten million reports.

    2,000 victims, about 947 of them intact, to make it plain: kept in order, their messages are found. Of the same
    reports shuffled, ten zeros in a row are expected in 10^6 (0.074)^10 < 1e-5 groups of ten. A user's ten reports
    hold each coordinate once; ten shuffled ones do so by chance only, in 10!/10^10 of the groups.
    """
    victims = 2_000
    sent = Reports.concatenate([crowd, send(plan, 0.0, victims, SeededSource(3))])
    assert messages_of_zeros(plan, sent).sum() > 0.4 * victims
    shuffled = ss.shuffle(sent, source=SeededSource(4))
    assert messages_of_zeros(plan, shuffled).sum() == 0
    before, after = (np.bincount(reports.cells) for reports in (sent, shuffled))
    assert np.array_equal(before, after)  # the same reports: only who sent what is gone
    assert whole_messages(plan, sent) == len(sent) // DIMENSION
    groups, chance = len(sent) // DIMENSION, math.factorial(DIMENSION) / DIMENSION**DIMENSION
    found = whole_messages(plan, shuffled)
    assert 1e-7 < binom.cdf(found, groups, chance) < 1 - 1e-7


def whole_messages(plan: ss.Plan, reports: Reports) -> int:
    """How many groups of ten hold each coordinate once, as a user's reports do."""
    present = np.bitwise_or.reduce(1 << coordinates_of(plan, reports).reshape(-1, DIMENSION), axis=1)
    return int((present == (1 << DIMENSION) - 1).sum())
