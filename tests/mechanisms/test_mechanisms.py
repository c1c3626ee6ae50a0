"""Every member of the union answers everything; `cases.py` has those that are tried."""

from __future__ import annotations

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
    SENDING,
    SOME,
    Case,
    sent_by,
    some_labels,
    some_rows,
    table_of,
)
from tests.plan_builders import encoding_for, held
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cells import BLANK, MOST_CELLS
from shufflesum.domains import Arrays, Categories, Domain, GroupBy, L2Ball, MultiChoice, OpenVocabulary
from shufflesum.errors import ParameterError, PlanError
from shufflesum.mechanisms import MECHANISMS, NoisyCounts, OneBit, mechanism_from_json, mechanism_to_json
from shufflesum.mechanisms.mechanism import Mechanism, Target
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.testing import SeededSource

every_mechanism = pytest.mark.parametrize("kind", MECHANISMS)
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_every_mechanism_is_tried_here() -> None:
    assert MECHANISMS.keys() == SOME.keys() == PARAMETERS.keys()
    assert {case.mechanism.kind for case in CASES.values()} == SENDING


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
        for wrong in wrongs:
            with refusal("malformed", error=PlanError):
                mechanism_from_json(whole | {name: wrong})


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "subtract", "levels": 1},
        {"kind": None},
        {"kind": ["randomized-response"]},
        {"levels": 1},
        {},
        [],
        "randomized-response",
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
    mechanism, encoding = case.mechanism, case.encoding
    mechanism.check(encoding)
    cells, reports = mechanism.cells(encoding), mechanism.reports(encoding)
    assert 1 <= cells <= MOST_CELLS
    rows = case.rows(1, 50)
    sent = sent_by(case, rows, 1)
    assert sent.dtype == np.uint32
    assert sent.shape == (50 * reports,)
    assert ((sent < cells) | (sent == BLANK)).all()
    assert sent_by(case, rows[:1], 1).shape == (reports,)
    blanks = [np.count_nonzero(sent_by(case, case.rows(seed, 1000), seed) == BLANK) / 1000 for seed in (2, 3)]
    assert blanks == pytest.approx([mechanism.blanks(encoding)] * 2, abs=2.0)


@pytest.mark.parametrize(
    ("mechanism", "domain"),
    [
        (SOME["randomized-response"], Arrays(2**31 - 1, (0.0, 1.0))),
        (SOME["noisy-counts"], Arrays(2**31 - 1, (0.0, 1.0))),
        (NoisyCounts(16, (1,) * 17, (0.5,) * 17, MOST_CELLS), GroupBy(2**20, 2**20)),
        (OneBit(1 << 20, 0.5, 2.0), L2Ball(5000, clipping_norm=1.0, seed=bytes(16))),
    ],
    ids=["randomized-response", "noisy-counts", "groups", "one-bit"],
)
def test_a_domain_with_more_cells_than_reports_can_number_is_refused(mechanism: Mechanism, domain: Domain) -> None:
    with refusal("too-many-cells", error=ParameterError):
        mechanism.check(encoding_for(domain, type(mechanism)))


@pytest.mark.parametrize(
    ("mechanism", "domain"),
    [
        (SOME["randomized-response"], MultiChoice(4, max_choices=2)),
        (SOME["randomized-response"], GroupBy(2, 3)),
        (SOME["randomized-response"], OpenVocabulary(10, 2)),
        (SOME["noisy-counts"], Categories(4)),
        (SOME["noisy-counts"], OpenVocabulary(10, 2)),
        (SOME["randomized-response"], BALL),
        (SOME["noisy-counts"], BALL),
        (SOME["noisy-slots"], BALL),
        (SOME["one-bit"], BOX),
        (SOME["one-bit"], Categories(4)),
        (SOME["noisy-slots"], BOX),
        (SOME["noisy-slots"], MultiChoice(4, max_choices=2)),
        (SOME["noisy-slots"], GroupBy(2, 3)),
    ],
    ids=str,
)
def test_a_domain_that_a_mechanism_cannot_carry_is_refused(mechanism: Mechanism, domain: Domain) -> None:
    with refusal("impossible-combination", type(domain).__name__, error=ParameterError):
        Plan(domain, mechanism, GUARANTEE)


@every_case
def test_what_users_send_is_decoded_to_their_mean(case: Case) -> None:
    """Four means of 20,000 users within 7 standard errors: missed less than once in 10^10; seeded besides."""
    mechanism, encoding, users = case.mechanism, case.encoding, 20_000
    rows = case.rows(2, users)
    sent = sent_by(case, rows, 2)
    table, truth = table_of(case, sent), case.truth(rows)
    means = mechanism.decode(encoding, table, users)
    targets: tuple[Target, ...] = ("users", "population")
    for target in targets:
        error = np.sqrt(means.variance(target))
        assert (np.abs(means.mean - truth) < 7 * error).all()
        assert not (np.abs(means.mean - truth[::-1]) < 7 * error).any()
        low, high = means.interval(1e-9, target)
        assert ((low < truth) & (truth < high)).all()
    assert means.report_counts.shape == (4,)
    blanks = int(np.count_nonzero(sent == BLANK))
    assert mechanism.min_malicious(encoding, table, blanks, 0, users) == 0
    if mechanism.noise_by == "users":  # the honesty of others is nobody else's guarantee
        assert mechanism.min_malicious(encoding, table, blanks, mechanism.reports(encoding) * users // 2, users) > 0


@every_case
def test_the_predicted_error_is_what_is_seen_or_more(case: Case) -> None:
    """The squared error over 200 batches of 500 users, within 7 standard errors; a fourth of it would be too little."""
    users, batches = 500, 200
    errors = []
    for batch in range(batches):
        rows = case.rows(batch, users)
        mean = case.mechanism.decode(case.encoding, table_of(case, sent_by(case, rows, batch), batch), users).mean
        unit = 4.0 if case.domain in (BOX, BALL) else 1.0  # squared widths of the bounds, or the squared clipping norm
        errors.append(unit * float(np.sum((mean - case.truth(rows)) ** 2)))
    predicted = case.mechanism.expected_error(case.encoding, users).total
    seen, deviation = np.mean(errors), np.std(errors) / np.sqrt(batches)
    assert seen <= predicted + 7 * deviation
    assert seen > predicted / 4


@every_case
def test_more_users_and_less_spread_mean_less_error(case: Case) -> None:
    mechanism, encoding = case.mechanism, case.encoding
    worst = mechanism.expected_error(encoding, 1000)
    assert 0 < mechanism.expected_error(encoding, 2000).total < worst.total
    assert 0 < mechanism.expected_error(encoding, 1000, 0.01).total <= worst.total


@pytest.mark.parametrize("kind", ["randomized-response", "noisy-counts"])
def test_errors_grow_with_the_square_of_the_bounds(kind: str) -> None:
    def parts(domain: Arrays) -> list[float]:
        error = SOME[kind].expected_error(encoding_for(domain, MECHANISMS[kind]), 1000)
        return [error.sampling, error.rounding, error.noise, error.total]

    np.testing.assert_allclose(parts(Arrays((2, 2), (-10.0, 10.0))), 100 * np.array(parts(BOX)))


@pytest.mark.long
@every_case
def test_its_accountant_answers_from_both_sides_and_refuses_false_claims(case: Case) -> None:
    accountant = case.mechanism.accountant(case.encoding, GUARANTEE)
    delta, epsilon = accountant.delta(1.0), accountant.epsilon(1e-6)
    assert 0 <= delta.lower <= delta.upper < 1
    assert 0 <= epsilon.lower <= epsilon.upper < math.inf
    assert accountant.delta(epsilon.upper).upper <= 1e-6 * (1 + 1e-9)
    assert accountant.local_epsilon is None or accountant.local_epsilon > epsilon.lower
    exported = accountant.to_dp_accounting(value_discretization_interval=1e-3)
    assert exported.get_epsilon_for_delta(1e-6) >= epsilon.lower
    claim = Guarantee(epsilon.upper * 1.001, 1e-6, users=500)
    accountant.check_claim(claim)
    with pytest.raises(PlanError):
        accountant.check_claim(Guarantee(epsilon.lower * 0.99, 1e-6, users=500))


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("randomized-response", (2, 2)),
        ("noisy-counts", (2, 2)),
        ("noisy-counts", MultiChoice(4, max_choices=2)),
        ("noisy-slots", Categories(4)),
        ("one-bit", BALL),
    ],
)
def test_its_options_are_arguments_of_plan_that_lead_to_it_again(kind: str, shape: Any) -> None:
    mechanism: Any = NoisyCounts(1, (1,), (0.5,), 5) if isinstance(shape, MultiChoice) else SOME[kind]
    choices = mechanism.options()
    planned = ss.plan(users=5000, **held(shape), epsilon=1.0, delta=1e-6, mechanism=choices).mechanism
    assert planned.options() == choices
    assert type(planned) is MECHANISMS[kind]


ATTACKED = {name: case for name, case in CASES.items() if case.mechanism.noise_by == "users"} | {
    "noisy counts, groups": Case(
        NoisyCounts(2, (9, 9, 9), (0.25, 0.125, 0.5), 80), GroupBy(["a", "b", "c"], (2,)), some_rows, len
    ),
    "add-slots, hashed": Case(SOME["noisy-slots"], OpenVocabulary(50, 4, bytes(16)), some_labels, len),
    "add-slots, bins": Case(SOME["noisy-slots"], Categories(bins=[0, 1, 5], other=True), some_labels, len),
    "add-slots, text": Case(SOME["noisy-slots"], Categories(["yes", "no"], other=True), some_labels, len),
}


@pytest.mark.parametrize("case", ATTACKED.values(), ids=ATTACKED.keys())
def test_its_attack_prescribes_a_law_for_every_cell_of_every_crowd(case: Case) -> None:
    mechanism, domain, users = case.mechanism, case.domain, 400

    def tables_of(held: Any) -> Any:
        return table_of(case, sent_by(case, domain.repeated(held, users), 3))

    attack = mechanism.attack(case.encoding, domain, GUARANTEE, tables_of)
    first, second = (sent_by(case, domain.repeated(held, 1), 5) for held in attack.victims)
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
    mechanism, encoding, users, tables = case.mechanism, case.encoding, 4000, 20
    block = case.domain.block(case.domain.rows(case.rows(4, users)))
    tally, encoder = mechanism.tally(encoding, SeededSource(4)), mechanism.encoder(encoding, SeededSource(5))
    ways = np.zeros((2, tables, mechanism.cells(encoding)))
    for i in range(tables):
        table = mechanism.tally(encoding, SeededSource(100 + i)).noise(users)
        tally.add(block, table)
        ways[:, i] = table, table_of(case, encoder.encode(block), i)
    apart = np.abs(ways[0].mean(axis=0) - ways[1].mean(axis=0))
    assert (apart <= 7 * np.sqrt(ways.var(axis=1, ddof=1).sum(axis=0) / tables)).all()


@every_case
def test_malicious_users_can_do_what_it_says_and_no_more(case: Case) -> None:
    """One user of 200 sends all reports that may go there into each cell; nothing moves a mean farther than said."""
    mechanism, encoding, users = case.mechanism, case.encoding, 200
    positions = mechanism.positions(encoding)
    most = mechanism.reports(encoding) if positions is None else int(positions.reports.max())
    rows = case.rows(6, users) if case.domain is not BOX else np.full((users, 2, 2), -1.0)
    table = table_of(case, sent_by(case, rows[1:], 6))
    own = sent_by(case, rows[:1], 7)
    before = mechanism.decode(encoding, table + np.bincount(own[own != BLANK], minlength=len(table)), users).mean
    moved = 0.0
    for cell in range(len(table)):
        after = table.copy()
        after[cell] += most
        moved = max(moved, float(np.max(np.abs(mechanism.decode(encoding, after, users).mean - before))))
    said = mechanism.max_shift(encoding, users, 1)
    assert 0.5 * said < moved <= said * (1 + 1e-9)
    assert mechanism.max_shift(encoding, users, 2) > said > mechanism.max_shift(encoding, users, 0) == 0


@pytest.mark.parametrize("case", ATTACKED.values(), ids=ATTACKED.keys())
def test_it_says_what_users_send_in_one_sentence(case: Case) -> None:
    said = case.mechanism.describe(case.encoding)
    assert said
    assert "\n" not in said
