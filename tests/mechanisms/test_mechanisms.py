"""Every member of the union answers everything; `cases.py` has those that are tried."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mechanisms.cases import (
    BALL,
    BOX,
    CASES,
    GUARANTEE,
    PARAMETERS,
    SOME,
    Case,
    sent_by,
    some_labels,
    some_rows,
    table_of,
)
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.audit.crowds import alike
from shufflesum.cells import BLANK, MOST_CELLS
from shufflesum.domain import Ball, Box, Categories, Choices, Domain, Groups, Hashed
from shufflesum.errors import ParameterError, PlanError
from shufflesum.mechanisms import (
    MECHANISMS,
    Add,
    Mechanism,
    ReplaceBits,
    Target,
    mechanism_from_json,
    mechanism_to_json,
)
from shufflesum.planning import PlanChoices
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.testing import SeededSource

every_mechanism = pytest.mark.parametrize("kind", MECHANISMS)
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_every_mechanism_is_tried_here() -> None:
    assert MECHANISMS.keys() == SOME.keys() == PARAMETERS.keys() == {case.mechanism.kind for case in CASES.values()}


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


@every_case
def test_every_user_sends_as_many_reports_of_the_plans_cells_or_blanks(case: Case) -> None:
    mechanism, domain = case.mechanism, case.domain
    mechanism.check(domain)
    cells, reports = mechanism.cells(domain), mechanism.reports(domain)
    assert 1 <= cells <= MOST_CELLS
    rows = case.rows(1, 50)
    sent = sent_by(case, rows, 1)
    assert sent.dtype == np.uint32
    assert sent.shape == (50 * reports,)
    assert ((sent < cells) | (sent == BLANK)).all()
    assert sent_by(case, rows[:1], 1).shape == (reports,)
    blanks = [np.count_nonzero(sent_by(case, case.rows(seed, 1000), seed) == BLANK) / 1000 for seed in (2, 3)]
    assert blanks == pytest.approx([mechanism.blanks(domain)] * 2, abs=2.0)


@pytest.mark.parametrize(
    ("mechanism", "domain"),
    [
        (SOME["replace"], Box.of(2**31 - 1, (0.0, 1.0))),
        (SOME["add"], Box.of(2**31 - 1, (0.0, 1.0))),
        (Add(16, (1,) * 17, (0.5,) * 17, None), Groups(2**20, 2**20)),
        (ReplaceBits(1 << 20, 0.5, 2.0), Ball(5000, radius=1.0, seed=bytes(16))),
    ],
    ids=["replace", "add", "groups", "replace-bits"],
)
def test_a_domain_with_more_cells_than_reports_can_number_is_refused(mechanism: Mechanism, domain: Domain) -> None:
    with refusal("too-many-cells", error=ParameterError):
        mechanism.check(domain)


@pytest.mark.parametrize(
    ("mechanism", "domain"),
    [
        (SOME["replace"], Choices(4, most=2)),
        (SOME["replace"], Groups(2, 3)),
        (SOME["replace"], Hashed(10, 2)),
        (SOME["add"], Categories(4)),
        (SOME["add"], Hashed(10, 2)),
        (SOME["replace"], BALL),
        (SOME["add"], BALL),
        (SOME["add-slots"], BALL),
        (SOME["replace-bits"], BOX),
        (SOME["replace-bits"], Categories(4)),
        (SOME["add-slots"], BOX),
        (SOME["add-slots"], Choices(4, most=2)),
        (SOME["add-slots"], Groups(2, 3)),
    ],
    ids=str,
)
def test_a_domain_that_a_mechanism_cannot_carry_is_refused(mechanism: Mechanism, domain: Domain) -> None:
    with refusal("impossible-combination", type(domain).__name__, error=ParameterError):
        Plan(domain, mechanism, GUARANTEE)


@every_case
def test_what_users_send_is_decoded_to_their_mean(case: Case) -> None:
    """Four means of 20,000 users within 7 standard errors: missed less than once in 10^10; seeded besides."""
    mechanism, domain, users = case.mechanism, case.domain, 20_000
    rows = case.rows(2, users)
    sent = sent_by(case, rows, 2)
    table, truth = table_of(case, sent), case.truth(rows)
    means = mechanism.decode(domain, table, users)
    targets: tuple[Target, ...] = ("users", "population")
    for target in targets:
        error = np.sqrt(means.variance(target))
        assert (np.abs(means.mean - truth) < 7 * error).all()
        assert not (np.abs(means.mean - truth[::-1]) < 7 * error).any()
        low, high = means.interval(1e-9, target)
        assert ((low < truth) & (truth < high)).all()
    assert means.report_counts.shape == (4,)
    blanks = int(np.count_nonzero(sent == BLANK))
    assert mechanism.fewest_dishonest(domain, table, blanks, 0, users) == 0
    assert mechanism.fewest_dishonest(domain, table, blanks, mechanism.reports(domain) * users // 2, users) > 0


@every_case
def test_the_predicted_error_is_what_is_seen_or_more(case: Case) -> None:
    """The squared error over 200 batches of 500 users, within 7 standard errors; a fourth of it would be too little."""
    users, batches = 500, 200
    errors = []
    for batch in range(batches):
        rows = case.rows(batch, users)
        mean = case.mechanism.decode(case.domain, table_of(case, sent_by(case, rows, batch)), users).mean
        unit = 4.0 if case.domain in (BOX, BALL) else 1.0  # squared widths of the bounds, or the squared radius
        errors.append(unit * float(np.sum((mean - case.truth(rows)) ** 2)))
    predicted = case.mechanism.expected_error(case.domain, users).total
    seen, deviation = np.mean(errors), np.std(errors) / np.sqrt(batches)
    assert seen <= predicted + 7 * deviation
    assert seen > predicted / 4


@every_case
def test_more_users_and_less_spread_mean_less_error(case: Case) -> None:
    mechanism, domain = case.mechanism, case.domain
    worst = mechanism.expected_error(domain, 1000)
    assert 0 < mechanism.expected_error(domain, 2000).total < worst.total
    assert 0 < mechanism.expected_error(domain, 1000, 0.01).total <= worst.total


@pytest.mark.parametrize("kind", ["replace", "add"])
def test_errors_grow_with_the_square_of_the_bounds(kind: str) -> None:
    def parts(domain: Box) -> list[float]:
        error = SOME[kind].expected_error(domain, 1000)
        return [error.sampling, error.rounding, error.noise, error.total]

    np.testing.assert_allclose(parts(Box.of((2, 2), (-10.0, 10.0))), 100 * np.array(parts(BOX)))


@pytest.mark.long
@every_case
def test_its_accounting_answers_from_both_sides_and_refuses_false_claims(case: Case) -> None:
    accounting = case.mechanism.accounting(case.domain.neighbours, GUARANTEE)
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


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("replace", (2, 2)),
        ("add", (2, 2)),
        ("add", Choices(4, most=2)),
        ("add-slots", Categories(4)),
        ("replace-bits", BALL),
    ],
)
def test_its_choices_are_arguments_of_plan_that_lead_to_it_again(kind: str, shape: Any) -> None:
    mechanism: Any = Add(1, (1,), (0.5,), 5) if isinstance(shape, Choices) else SOME[kind]
    choices: Any = mechanism.choices()
    assert choices.keys() <= PlanChoices.__annotations__.keys() & inspect.signature(ss.plan).parameters.keys()
    if isinstance(shape, Choices):
        del choices["digits"]
    planned = ss.plan(users=5000, shape=shape, epsilon=1.0, delta=1e-6, **choices).mechanism
    assert planned.choices().items() >= choices.items()
    assert type(planned) is MECHANISMS[kind]


ATTACKED = CASES | {
    "add, groups": Case(Add(2, (9, 9, 9), (0.25, 0.125, 0.5), 80), Groups(["a", "b", "c"], (2,)), some_rows, len),
    "add-slots, hashed": Case(SOME["add-slots"], Hashed(50, 4, bytes(16)), some_labels, len),
    "add-slots, bins": Case(SOME["add-slots"], Categories(bins=[0, 1, 5], other=True), some_labels, len),
    "add-slots, text": Case(SOME["add-slots"], Categories(["yes", "no"], other=True), some_labels, len),
}


@pytest.mark.parametrize("case", ATTACKED.values(), ids=ATTACKED.keys())
def test_its_attack_prescribes_a_law_for_every_cell_of_every_crowd(case: Case) -> None:
    mechanism, domain, users = case.mechanism, case.domain, 400

    def tables_of(held: Any) -> Any:
        return table_of(case, sent_by(case, alike(domain, held, users), 3))

    attack = mechanism.attack(domain, GUARANTEE, tables_of)
    first, second = (sent_by(case, alike(domain, held, 1), 5) for held in attack.victims)
    assert not np.array_equal(first, second)
    tables = [tables_of(crowd) for crowd in attack.crowds]
    counts, totals = attack.kinds(tables, [users] * len(tables))
    assert counts.shape == totals.shape
    assert ((counts >= 0) & (counts <= totals)).all()
    assert counts.any()
    for kinds in attack.expected(tables, [users] * len(tables)):
        for name, observed, trials, chances in kinds:
            assert observed.shape == chances.shape
            assert name.format(*[0] * observed.ndim)
            assert ((chances >= 0) & (chances <= 1)).all()
            assert observed.max() <= trials
            expected = trials * chances
            assert (np.abs(observed - expected) <= 8 * np.sqrt(expected) + 8).all()
    assert math.isfinite(attack.score(tables_of(attack.others)))
    assert attack.samples >= 1


@every_case
def test_in_one_process_the_table_has_the_law_of_what_users_send(case: Case) -> None:
    """Every cell of 20 tables of 4,000 users each, both ways, within 7 deviations of the difference: seeded."""
    mechanism, domain, users, tables = case.mechanism, case.domain, 4000, 20
    rows = case.rows(4, users)
    prepared = domain.prepare(domain.rows(rows))
    tally, encoder = mechanism.tally(domain, SeededSource(4)), mechanism.encoder(domain, SeededSource(5))
    ways = np.zeros((2, tables, mechanism.cells(domain)))
    for i in range(tables):
        table = mechanism.tally(domain, SeededSource(100 + i)).noise(users)
        tally.add(prepared, 0, table)
        ways[:, i] = table, table_of(case, encoder.encode(prepared, 0))
    apart = np.abs(ways[0].mean(axis=0) - ways[1].mean(axis=0))
    assert (apart <= 7 * np.sqrt(ways.var(axis=1, ddof=1).sum(axis=0) / tables)).all()


@every_case
def test_dishonest_users_can_do_what_it_says_and_no_more(case: Case) -> None:
    """One user of 200 sends all reports into each cell in turn; nothing moves a mean farther than said."""
    mechanism, domain, users = case.mechanism, case.domain, 200
    rows = case.rows(6, users) if domain is not BOX else np.full((users, 2, 2), -1.0)
    table = table_of(case, sent_by(case, rows[1:], 6))
    before = mechanism.decode(domain, table + table_of(case, sent_by(case, rows[:1], 7)), users).mean
    moved = 0.0
    for cell in range(len(table)):
        after = table.copy()
        after[cell] += mechanism.reports(domain)
        moved = max(moved, float(np.max(np.abs(mechanism.decode(domain, after, users).mean - before))))
    said = mechanism.influence(domain, users, 1)
    assert 0.5 * said < moved <= said * (1 + 1e-9)
    assert mechanism.influence(domain, users, 2) > said > mechanism.influence(domain, users, 0) == 0


@pytest.mark.parametrize("case", ATTACKED.values(), ids=ATTACKED.keys())
def test_it_says_what_users_send_in_one_sentence(case: Case) -> None:
    said = case.mechanism.describe(case.domain)
    assert said
    assert "\n" not in said
