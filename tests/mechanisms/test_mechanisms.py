"""Every member of the union answers everything: whoever adds one adds it to `SOME` and `PARAMETERS` here."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cells import BLANK, MOST_CELLS
from shufflesum.domain import Box
from shufflesum.errors import ParameterError, PlanError
from shufflesum.mechanisms import (
    MECHANISMS,
    Add,
    Mechanism,
    Replace,
    Sampling,
    Target,
    mechanism_from_json,
    mechanism_to_json,
)
from shufflesum.mechanisms.add import MOST_DIGITS
from shufflesum.mechanisms.replace import MAX_LEVELS
from shufflesum.planning import PlanChoices
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.privacy.add import MOST_TRIALS
from shufflesum.testing import SeededSource

SOME: dict[str, Mechanism] = {
    "replace": Replace(2, 3, 0.25),
    "add": Add(3, (40, 20, 10), (1 / 16, 1 / 16, 3 / 64), 60),
}
PARAMETERS: dict[str, st.SearchStrategy[Mechanism]] = {
    "replace": st.builds(
        Replace,
        coordinates=st.integers(1, MOST_CELLS),
        levels=st.integers(1, MAX_LEVELS),
        noise_probability=st.integers(0, 2**53).map(lambda numerator: numerator / 2**53),
        sampling=st.sampled_from(get_args(Sampling)),
    ),
    "add": st.integers(1, MOST_DIGITS).flatmap(
        lambda digits: st.builds(
            Add,
            digits=st.just(digits),
            trials=st.tuples(*[st.integers(1, MOST_TRIALS)] * digits),
            probabilities=st.tuples(*[st.integers(0, 2**53 - 1).map(lambda numerator: numerator / 2**53)] * digits),
            cap=st.none() | st.integers(0, MOST_CELLS),
        )
    ),
}
DOMAIN = Box.of((2, 2), (-1.0, 1.0))
GUARANTEE = Guarantee(1.0, 1e-6, users=500)
every_mechanism = pytest.mark.parametrize("kind", MECHANISMS)


def test_every_mechanism_is_tried_here() -> None:
    assert MECHANISMS.keys() == SOME.keys() == PARAMETERS.keys()


@every_mechanism
def test_a_mechanism_answers_every_question_and_is_a_value(kind: str) -> None:
    mechanism = MECHANISMS[kind]
    assert mechanism.kind == kind
    assert Mechanism.__abstractmethods__
    assert not mechanism.__abstractmethods__
    assert is_dataclass(mechanism)
    assert SOME[kind] == mechanism_from_json(mechanism_to_json(SOME[kind]))
    assert hash(SOME[kind]) == hash(mechanism_from_json(mechanism_to_json(SOME[kind])))
    for field in fields(mechanism):
        with pytest.raises(FrozenInstanceError):
            setattr(SOME[kind], field.name, 0)


def test_a_mechanism_that_leaves_a_question_open_cannot_be_made() -> None:
    class Unfinished(Mechanism):
        kind = "unfinished"

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()  # type: ignore[abstract]


@given(mechanism=st.one_of(*PARAMETERS.values()))
def test_mechanisms_come_back_from_json_to_the_last_bit(mechanism: Mechanism) -> None:
    text = json.dumps(mechanism_to_json(mechanism), allow_nan=False)
    back = mechanism_from_json(json.loads(text))
    assert back == mechanism
    assert type(back) is type(mechanism)
    assert json.dumps(mechanism_to_json(back)) == text


@every_mechanism
def test_parameters_missing_or_too_many_are_refused_by_name(kind: str) -> None:
    whole = mechanism_to_json(SOME[kind])
    for name in whole.keys() - {"kind"}:
        with refusal("malformed", str(kind), str(name), error=PlanError):
            mechanism_from_json({key: value for key, value in whole.items() if key != name})
    with refusal("malformed", str(kind), error=PlanError):
        mechanism_from_json(whole | {"colour": 1})


@every_mechanism
def test_parameters_of_another_type_are_refused(kind: str) -> None:
    whole = mechanism_to_json(SOME[kind])
    wrongs: list[Any] = [None, "1", ["1"], {}, True, math.nan]
    for name in whole.keys() - {"kind"}:
        for wrong in wrongs[name == "cap" :]:  # no cap is a cap, too
            with refusal("malformed", error=PlanError):
                mechanism_from_json(whole | {name: wrong})


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "subtract", "levels": 1},
        {"kind": None},
        {"kind": ["replace"]},
        {"levels": 1},
        {},
        [],
        "replace",
        None,
        3,
    ],
    ids=str,
)
def test_what_is_no_mechanism_is_refused_with_those_there_are(value: object) -> None:
    with refusal("malformed", error=PlanError) as refused:
        mechanism_from_json(value)
    assert all(f'"kind": "{kind}"' in str(refused.value) for kind in MECHANISMS)


@every_mechanism
def test_every_user_sends_as_many_reports_of_the_plans_cells_or_blanks(kind: str) -> None:
    mechanism = SOME[kind]
    mechanism.check(DOMAIN)
    cells, reports = mechanism.cells(DOMAIN), mechanism.reports(DOMAIN)
    assert 1 <= cells <= MOST_CELLS
    encoder = mechanism.encoder(DOMAIN, SeededSource(1))
    rows = np.random.default_rng(1).uniform(-1, 1, (50, 4))
    sent = encoder.encode(rows, 0)
    assert sent.dtype == np.uint32
    assert sent.shape == (50 * reports,)
    assert ((sent < cells) | (sent == BLANK)).all()
    assert encoder.encode(rows[:1], 0).shape == (reports,)


@every_mechanism
def test_a_domain_with_more_cells_than_reports_can_number_is_refused(kind: str) -> None:
    with refusal("too-many-cells", error=ParameterError):
        SOME[kind].check(Box.of(2**31 - 1, (0.0, 1.0)))


@every_mechanism
def test_what_users_send_is_decoded_to_their_mean(kind: str) -> None:
    """Four means of 20,000 users within 7 standard errors: missed less than once in 10^10; seeded besides."""
    mechanism, users = SOME[kind], 20_000
    rows = np.random.default_rng(2).uniform((-1.0, -0.5, 0.0, 0.9), (0.0, 0.5, 1.0, 1.0), (users, 4))
    sent = mechanism.encoder(DOMAIN, SeededSource(2)).encode(rows, 0)
    table = np.bincount(sent[sent != BLANK], minlength=mechanism.cells(DOMAIN))
    means = mechanism.decode(DOMAIN, table, users)
    truth = (rows.mean(axis=0) + 1) / 2
    targets: tuple[Target, ...] = ("users", "population")
    for target in targets:
        error = np.sqrt(means.variance(target))
        assert (np.abs(means.mean - truth) < 7 * error).all()
        assert not (np.abs(means.mean - truth[::-1]) < 7 * error).any()
        low, high = means.interval(1e-9, target)
        assert ((low < truth) & (truth < high)).all()
    assert means.report_counts.shape == (4,)
    blanks = int(np.count_nonzero(sent == BLANK))
    assert mechanism.fewest_dishonest(DOMAIN, table, blanks, 0, users) == 0
    assert mechanism.fewest_dishonest(DOMAIN, table, blanks, mechanism.reports(DOMAIN) * users // 2, users) > 0


@every_mechanism
def test_more_users_and_less_spread_mean_less_error(kind: str) -> None:
    mechanism = SOME[kind]
    worst = mechanism.expected_error(DOMAIN, 1000)
    assert 0 < mechanism.expected_error(DOMAIN, 2000).total < worst.total
    assert 0 < mechanism.expected_error(DOMAIN, 1000, 0.01).total <= worst.total
    parts = mechanism_parts(mechanism, Box.of((2, 2), (-10.0, 10.0)))
    np.testing.assert_allclose(parts, 100 * np.array(mechanism_parts(mechanism, DOMAIN)))


def mechanism_parts(mechanism: Mechanism, domain: Box) -> list[float]:
    error = mechanism.expected_error(domain, 1000)
    return [error.sampling, error.rounding, error.noise, error.total]


@every_mechanism
def test_its_accounting_answers_from_both_sides_and_refuses_false_claims(kind: str) -> None:
    accounting = SOME[kind].accounting(DOMAIN.neighbours, GUARANTEE)
    delta, epsilon = accounting.delta(1.0), accounting.epsilon(1e-6)
    assert 0 <= delta.lower <= delta.upper < 1
    assert 0 <= epsilon.lower <= epsilon.upper < math.inf
    assert accounting.delta(epsilon.upper).upper <= 1e-6 * (1 + 1e-9)
    assert accounting.local_epsilon is None or accounting.local_epsilon > epsilon.lower
    exported = accounting.to_dp_accounting(value_discretization_interval=1e-3)
    assert exported.get_epsilon_for_delta(1e-6) >= epsilon.lower
    claim = Guarantee(epsilon.upper * 1.001, 1e-6, users=500)
    accounting.check_claim(claim)
    with pytest.raises(PlanError):
        accounting.check_claim(Guarantee(epsilon.lower * 0.99, 1e-6, users=500))


@every_mechanism
def test_its_choices_are_arguments_of_plan_that_lead_to_it_again(kind: str) -> None:
    choices: Any = SOME[kind].choices()
    assert choices.keys() <= PlanChoices.__annotations__.keys() & inspect.signature(ss.plan).parameters.keys()
    planned = ss.plan(users=5000, shape=(2, 2), epsilon=1.0, delta=1e-6, **choices).mechanism
    assert planned.choices() == choices
    assert type(planned) is MECHANISMS[kind]


@every_mechanism
def test_its_attack_prescribes_a_law_for_every_cell_of_every_crowd(kind: str) -> None:
    mechanism = SOME[kind]
    plan = Plan(DOMAIN, mechanism, GUARANTEE)

    def tables_of(coordinates: Any, users: int = 400) -> Any:
        reports = mechanism.encoder(DOMAIN, SeededSource(3)).encode(np.repeat(coordinates[None], users, axis=0), 0)
        return np.bincount(reports[reports != BLANK], minlength=plan.cells)

    attack = mechanism.attack(DOMAIN, GUARANTEE, tables_of)
    for held in (*attack.crowds, *attack.victims, attack.others):
        assert held.shape == (4,)
        assert ((held >= -1) & (held <= 1)).all()
    assert not np.array_equal(*attack.victims)
    tables = [tables_of(crowd) for crowd in attack.crowds]
    counts, totals = attack.kinds(tables, [400] * len(tables))
    assert counts.shape == totals.shape
    assert ((counts >= 0) & (counts <= totals)).all()
    assert counts.any()
    for kinds in attack.expected(tables, [400] * len(tables)):
        for name, observed, trials, chances in kinds:
            assert observed.shape == chances.shape
            assert name.format(*[0] * observed.ndim)
            assert ((chances >= 0) & (chances <= 1)).all()
            assert observed.max() <= trials
    assert math.isfinite(attack.score(tables_of(attack.others)))
    assert attack.samples >= 1


@every_mechanism
def test_in_one_process_the_table_has_the_law_of_what_users_send(kind: str) -> None:
    """Every cell of 20 tables of 4,000 users each, both ways, within 7 deviations of the difference: seeded."""
    mechanism, users, tables = SOME[kind], 4000, 20
    rows = np.random.default_rng(4).uniform(-1, 1, (users, 4))
    tally, encoder = mechanism.tally(DOMAIN, SeededSource(4)), mechanism.encoder(DOMAIN, SeededSource(5))
    ways = np.zeros((2, tables, mechanism.cells(DOMAIN)))
    for i in range(tables):
        table = mechanism.tally(DOMAIN, SeededSource(100 + i)).noise(users)
        tally.add(rows, 0, table)
        sent = encoder.encode(rows, 0)
        ways[:, i] = table, np.bincount(sent[sent != BLANK], minlength=mechanism.cells(DOMAIN))
    apart = np.abs(ways[0].mean(axis=0) - ways[1].mean(axis=0))
    assert (apart <= 7 * np.sqrt(ways.var(axis=1, ddof=1).sum(axis=0) / tables)).all()


@every_mechanism
def test_dishonest_users_can_do_what_it_says_and_no_more(kind: str) -> None:
    """One user of 200 sends all reports into each cell in turn; nothing moves a mean farther than said."""
    mechanism, users = SOME[kind], 200
    rows = np.full((users - 1, 4), -1.0)
    sent = mechanism.encoder(DOMAIN, SeededSource(6)).encode(rows, 0)
    table = np.bincount(sent[sent != BLANK], minlength=mechanism.cells(DOMAIN))
    honest = mechanism.encoder(DOMAIN, SeededSource(7)).encode(rows[:1], 0)
    before = mechanism.decode(DOMAIN, table + np.bincount(honest[honest != BLANK], minlength=len(table)), users).mean
    moved = 0.0
    for cell in range(len(table)):
        after = table.copy()
        after[cell] += mechanism.reports(DOMAIN)
        moved = max(moved, float(np.max(np.abs(mechanism.decode(DOMAIN, after, users).mean - before))))
    said = mechanism.influence(DOMAIN, users, 1)
    assert 0.5 * said < moved <= said * (1 + 1e-9)
    assert mechanism.influence(DOMAIN, users, 2) > said > mechanism.influence(DOMAIN, users, 0) == 0


@every_mechanism
def test_it_says_what_users_send_in_one_sentence(kind: str) -> None:
    said = SOME[kind].describe(DOMAIN)
    assert said
    assert "\n" not in said
