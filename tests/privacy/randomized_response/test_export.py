from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from scipy.stats import binom
from tests.refusals import refusal

from shufflesum.errors import MissingExtraError, ParameterError
from shufflesum.privacy import RandomizedResponseAccountant
from shufflesum.privacy.randomized_response.schemes import Blocks


def test_dp_accounting_composes_the_exported_distribution_to_the_same_delta() -> None:
    pytest.importorskip("dp_accounting")
    single = RandomizedResponseAccountant(50_000, 3, 0.2, dimension=1).to_dp_accounting()
    theirs = single.self_compose(100)
    ours = Blocks(50_000, 3, 100, single_coordinate=True).upper(0.2)
    below = Blocks(50_000, 3, 100).lower(0.2)
    for epsilon in (0.2, 0.6, 0.95):
        assert theirs.get_delta_for_epsilon(epsilon) == pytest.approx(ours.delta(epsilon), rel=0.01)
        assert theirs.get_delta_for_epsilon(epsilon) >= below.delta(epsilon)
    whole = RandomizedResponseAccountant(50_000, 3, 0.2, coordinates=100, dimension=100).to_dp_accounting(
        value_discretization_interval=1e-3
    )
    assert whole.get_delta_for_epsilon(0.95) == pytest.approx(ours.delta(0.95), rel=0.01)
    assert whole.get_delta_for_epsilon(0.95) >= below.delta(0.95)


def test_the_export_composes_with_other_mechanisms() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    gaussian = pld.from_gaussian_mechanism(5.0, value_discretization_interval=1e-3)
    accountant = RandomizedResponseAccountant(1000, 1, 0.2, coordinates=4, dimension=4)
    ours = accountant.to_dp_accounting(value_discretization_interval=1e-3)
    both = ours.compose(gaussian)
    for epsilon in (0.5, 1.0):
        alone = max(ours.get_delta_for_epsilon(epsilon), gaussian.get_delta_for_epsilon(epsilon))
        assert alone < both.get_delta_for_epsilon(epsilon) < 1.0


@pytest.mark.long
def test_dp_accounting_agrees_about_a_concrete_pair() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    users, gamma, copies = 400, 0.2, 10
    z = binom.pmf(np.arange(users), users - 1, gamma / 2)
    padded = np.pad(z, 1)
    zero = (1 - gamma / 2) * padded[1:] + gamma / 2 * padded[:-1]
    one = gamma / 2 * padded[1:] + (1 - gamma / 2) * padded[:-1]
    laws = [{i: math.log(x) for i, x in enumerate(law) if x > 1e-60} for law in (zero, one)]
    theirs = {
        pessimistic: [
            pld.from_two_probability_mass_functions(b, a, pessimistic, 1e-5).self_compose(copies)
            for a, b in (laws, laws[::-1])
        ]
        for pessimistic in (True, False)
    }
    lower = Blocks(users, 1, copies).lower(gamma)
    upper = Blocks(users, 1, copies, single_coordinate=True).upper(gamma)
    for epsilon in (0.3, 1.0, 2.0):
        above = max(float(one.get_delta_for_epsilon(epsilon)) for one in theirs[True])
        below = max(float(one.get_delta_for_epsilon(epsilon)) for one in theirs[False])
        assert 0.95 * below <= lower.delta(epsilon) <= above
        assert below <= upper.delta(epsilon)


def test_a_missing_dp_accounting_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.pld_pmf", None)
    with refusal("missing-extra", error=MissingExtraError):
        RandomizedResponseAccountant(1000, 3, 0.2).to_dp_accounting()


def test_an_interval_that_is_no_grid_is_refused() -> None:
    with refusal("out-of-range", error=ParameterError):
        RandomizedResponseAccountant(100, 3, 0.5).to_dp_accounting(value_discretization_interval=0.0)
