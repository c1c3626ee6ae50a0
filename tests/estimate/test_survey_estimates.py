"""What a survey answers afterwards: counts, shares, differences and means, and that their errors are what they say."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, mean_is

import shufflesum as ss
from shufflesum.domains.survey.quantities import Quantity
from shufflesum.estimate import estimate_of
from shufflesum.pages import report_page
from shufflesum.randomness import SecureSource

USERS = 4_000
SURVEY = ss.Survey(
    {
        "country": ["DE", "FR", "IT"],
        "age": ss.Question(bins=[0, 18, 65, 120], optional=True),
        "income": ss.Question(bounds=(0, 1000), optional=True),
        "hobbies": ss.Question(["chess", "golf"], multiple=True),
        "pro": [True, False],
    }
)


@cache
def answers() -> dict[str, Any]:
    """People in whom everything has to do with everything."""
    random = np.random.default_rng(11)
    country = random.choice(3, USERS, p=[0.5, 0.3, 0.2])
    pro = random.random(USERS) < 0.15 + 0.3 * (country == 0)
    income = np.clip(random.normal(300 + 150 * country, 120), 0, 1000)
    income[random.random(USERS) < 0.05] = np.nan
    age = np.where(random.random(USERS) < 0.1, np.nan, random.integers(0, 100, USERS) * (1 - 0.4 * pro))
    chess, golf = random.random(USERS) < 0.2 + 0.3 * pro, random.random(USERS) < 0.4
    return {
        "country": np.array(["DE", "FR", "IT"])[country],
        "age": age,
        "income": income,
        "hobbies": [
            [name for name, held in (("chess", a), ("golf", b)) if held] for a, b in zip(chess, golf, strict=True)
        ],
        "pro": pro,
        "chess": chess,
        "golf": golf,
    }


@cache
def planned(noise_by: Any = "curator") -> ss.Plan:
    return ss.plan(users=USERS, domain=SURVEY, epsilon=1.0, delta=1e-6, noise_by=noise_by)


@cache
def exact() -> NDArray[np.int64]:
    """The table without noise, numbers rounded once."""
    plan = planned()
    table = np.zeros(plan.cells, np.int64)
    tally = plan.mechanism.tally(plan.encoding, SecureSource())
    tally.add(SURVEY.prepare(answers()).block(0, USERS), table)
    return table


def estimate(noise_by: Any = "curator") -> Any:
    """The same people with other noise, as often as it is asked for: rounding is that of `exact`."""
    plan = planned(noise_by)
    draws = sum(plan.mechanism.draw(plan.encoding, SecureSource()) for _ in range(2 if noise_by == "servers" else 1))
    return estimate_of(plan, USERS, 0, exact() + draws)


def without_noise() -> Any:
    plan = planned()
    return estimate_of(plan, USERS, 0, exact() + plan.mechanism.noise[0].half_length)  # type: ignore[attr-defined]


def truth(**conditions: Any) -> int:
    held, data = np.ones(USERS, np.bool_), answers()
    for name, value in conditions.items():
        held &= np.asarray(data[name]) == value
    return int(held.sum())


def test_without_noise_every_answer_is_exact() -> None:
    found = without_noise()
    assert found["country", "pro"].counts.round(6).tolist() == [
        [truth(country=country, pro=pro) for pro in (True, False)] for country in ("DE", "FR", "IT")
    ]
    np.testing.assert_allclose(found["pro", "country"].counts.T, found["country", "pro"].counts)
    assert found["hobbies"].counts == pytest.approx([truth(chess=True), truth(golf=True)])
    assert found["hobbies", "pro"].counts[0] == pytest.approx(
        [truth(chess=True, pro=True), truth(chess=True, pro=False)]
    )
    assert found.count(country=["DE", "IT"], pro=True).value == pytest.approx(
        truth(country="DE", pro=True) + truth(country="IT", pro=True)
    )
    among = found.where(country="DE")
    assert among.users.value == pytest.approx(truth(country="DE"))
    assert among["pro"].counts == pytest.approx(found["country", "pro"].counts[0])
    assert among.share(pro=True).value == pytest.approx(truth(country="DE", pro=True) / truth(country="DE"))
    assert found["country", "pro"].raw_counts == pytest.approx(found["country", "pro"].counts)
    age = answers()["age"]
    assert found["age"].counts[3] == pytest.approx(np.isnan(age).sum())
    weights = np.zeros((3, 2))
    weights[0, 0], weights[2, 1] = 1.0, -2.0
    expected = truth(country="DE", pro=True) - 2 * truth(country="IT", pro=False)
    assert found["country", "pro"].sum(weights).value == pytest.approx(expected)


def test_means_are_of_those_who_answered_and_rounding_is_in_their_error() -> None:
    income, country = answers()["income"], answers()["country"]
    found = without_noise()
    for name, held in (("", ~np.isnan(income)), ("IT", ~np.isnan(income) & (country == "IT"))):
        mean = (found.where(country=name) if name else found).mean("income")
        wide = mean.standard_error
        # rounding brings at most a step of 250 for each user, in the mean half of it over the root of users
        assert abs(mean.value - income[held].mean()) < 6 * 125 / math.sqrt(held.sum())
        assert wide > 0
    by_country = found.means("income", "country").to_table()
    assert len(by_country) == 3
    assert by_country.value[2] == pytest.approx(found.where(country="IT").mean("income").value)


def asked(found: Any) -> list[Quantity]:
    """One of each kind."""
    poor, rich = found.where(country="IT"), found.where(country="DE")
    return [
        found.count(country="FR"),
        found.count(country="DE", age="18 to 65"),
        found.count(hobbies="chess", pro=True),
        found.count(country=["DE", "FR"], pro=False),
        found["country", "pro"].at("IT", True) - found["country", "pro"].at("DE", True),
        found.share(pro=True),
        rich.share(pro=True),
        rich.share(pro=True) - poor.share(pro=True),
        found.mean("income"),
        poor.mean("income"),
        found.sum("income"),
    ]


@cache
def scores(noise_by: Any = "curator", runs: int = 200) -> NDArray[np.float64]:
    """Errors of noise alone, in standard errors without rounding's part; (runs, questions)."""
    true = [each.value for each in asked(without_noise())]
    rows = []
    for _ in range(runs):
        found = asked(estimate(noise_by))
        rows.append([(each.value - value) / _noise_error(each) for each, value in zip(found, true, strict=True)])
    return np.array(rows)


def _noise_error(quantity: Quantity) -> float:
    return math.sqrt(quantity.variance - quantity.rounding)


@pytest.mark.long
def test_errors_are_as_large_as_their_covariance_says() -> None:
    found = scores()
    assert mean_is(found[:, :6], np.zeros(6)) > FALSE_ALARM  # the others are ratios, with a little bias
    # squares of 200 nearly normal errors: their mean is within 6 deviations of 1, once in 10^8 runs it is not
    assert (np.abs((found**2).mean(axis=0) - 1) < 6 * math.sqrt(2 / len(found))).all()
    assert not (np.abs((found**2).mean(axis=0) / 4.0 - 1) < 6 * math.sqrt(2 / len(found))).any()  # half the error


@pytest.mark.long
@pytest.mark.parametrize("noise_by", ["curator", "servers"])
def test_intervals_hold_the_truth(noise_by: Any) -> None:
    runs, level = 60 if noise_by == "curator" else 30, 0.8
    true = [each.value for each in asked(without_noise())]
    held = np.zeros((runs, len(true)))
    for run in range(runs):
        ends = [each.interval(level) for each in asked(estimate(noise_by))]
        held[run] = [low <= value <= high for (low, high), value in zip(ends, true, strict=True)]
    slack = math.sqrt(math.log(1e6 * len(true)) / (2 * runs))
    assert (held.mean(axis=0) >= level - slack).all()


def test_all_cells_of_a_marginal_have_intervals_and_servers_have_twice_the_variance() -> None:
    one, two = estimate(), estimate("servers")
    table, other = one["country", "age"], two["country", "age"]
    low, high = table.interval(0.99, simultaneous=True)
    assert (low < table.counts).all()
    assert (table.counts < high).all()
    np.testing.assert_allclose(other.standard_error, math.sqrt(2) * table.standard_error, rtol=1e-9)
    assert table.raw_standard_error == pytest.approx(math.sqrt(planned().mechanism.noise[0].variance))  # type: ignore[attr-defined]
    assert (table.standard_error < table.raw_standard_error).all()
    assert one.where(country="DE")["age"].raw_counts is None


def test_the_error_that_was_predicted_is_that_of_all_cells() -> None:
    found = estimate()
    total = sum(
        float(np.sum(np.broadcast_to(found[names].standard_error, found[names].counts.shape) ** 2))
        for names in SURVEY.wanted
        if "income" not in names  # rounding of numbers is not noise
    )
    noise = planned().expected_error.total * USERS**2
    assert 0 < total < noise
    without = ss.Survey({name: question for name, question in SURVEY.questions if name != "income"})
    plan = ss.plan(users=USERS, domain=without, epsilon=1, delta=1e-6, noise_by="curator")
    other = ss.aggregate(answers(), domain=without, plan=None, epsilon=1, delta=1e-6)
    total = sum(
        float(np.sum(np.broadcast_to(other[names].standard_error, other[names].counts.shape) ** 2))
        for names in without.wanted
    )
    assert total == pytest.approx(plan.expected_error.total * USERS**2, rel=1e-9)


def test_errors_know_of_each_other() -> None:
    found = estimate()
    parts = [found.count(country=country) for country in ("DE", "FR", "IT")]
    whole = parts[0] + parts[1] + parts[2]
    assert whole.value == pytest.approx(USERS)
    assert whole.standard_error == pytest.approx(0, abs=1e-6)
    nothing = found["country"].at("DE") - sum((found["country", "pro"].at("DE", pro) for pro in (True, False)), 0.0)
    assert nothing.value == pytest.approx(0, abs=1e-6)
    assert nothing.standard_error == pytest.approx(0, abs=1e-6)
    assert (2 * parts[0]).standard_error == pytest.approx(2 * parts[0].standard_error)
    assert (10 - parts[0] / 2).value == pytest.approx(10 - parts[0].value / 2)
    with refusal("conflicting-arguments"):
        _ = parts[0] - estimate().count(country="DE")


def test_nobody_in_a_group_has_no_mean() -> None:
    survey = ss.Survey({"group": ["a", "b"], "x": ss.Question(bounds=(0, 1))})
    rows = {"group": ["a"] * 3000, "x": [0.5] * 3000}
    found = ss.aggregate(rows, domain=survey, epsilon=1, delta=1e-6)
    mean = found.where(group="b").mean("x")
    assert math.isnan(mean.value)
    assert mean.interval() == (-math.inf, math.inf)
    assert (mean - found.where(group="a").mean("x")).interval() == (-math.inf, math.inf)
    table = found.means("x", "group").to_table()
    assert table.notes.tolist() == ["", "too few users"]


NOT_ASKED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "three at once": (lambda e: e.where(country="DE", pro=True)["age"].counts, ("impossible-combination", "'age'")),
    "no such question": (lambda e: e["colour"], ("unknown-choice", "colour")),
    "no such answer": (lambda e: e.count(country="ES"), ("unknown-choice", "country")),
    "a mean of labels": (lambda e: e.mean("country"), ("impossible-combination", "country")),
    "one question twice": (lambda e: e["country", "country"], ("conflicting-arguments",)),
    "two chosen labels": (lambda e: e.count(hobbies=["chess", "golf"]), ("impossible-combination", "hobbies")),
}


@pytest.mark.parametrize("case", NOT_ASKED)
def test_what_does_not_follow_from_the_tables_is_refused(case: str) -> None:
    ask, refused = NOT_ASKED[case]
    found = without_noise()
    with refusal(*refused, error=ss.ShufflesumError):
        ask(found)


def test_a_kept_estimate_answers_as_the_first_did(tmp_path: Path) -> None:
    found = estimate()
    found.save(tmp_path / "estimate.json")
    again: Any = ss.BaseEstimate.load(tmp_path / "estimate.json")
    assert isinstance(again, ss.SurveyEstimate)
    for one, other in zip(asked(found), asked(again), strict=True):
        assert (one.value, one.standard_error) == (other.value, other.standard_error)
    table = found.to_table()
    assert len(table) == SURVEY.dimension == len(found.counts)
    assert set(table.columns["questions"]) == {" x ".join(names) for names in SURVEY.wanted}
    assert "country: DE" in str(found)
    assert "mean of income" in found.remarks()[0]


def test_people_see_each_question_first_and_pairs_as_heat_maps() -> None:
    found = estimate()
    table = found.to_table()
    places = table.some(12)
    firsts = sum(len(question.answers) for _, question in SURVEY.questions)
    assert places == list(range(firsts))
    assert table.left_out(places) == f"{firsts} of {len(table)} answers are shown, the first."
    assert [detail.questions for detail in found.details] == [names for names in SURVEY.wanted if len(names) == 2]
    drawn = found["country", "age"].plot().chart.to_dict()
    values = {(row["row"], row["column"]): row["value"] for row in next(iter(drawn["datasets"].values()))}
    assert values["FR", "no answer"] == pytest.approx(found["country", "age"].counts[1, 3])
    assert len(values) == 12
    page = report_page([found], title="Ours", made=datetime(2026, 1, 1, tzinfo=UTC))
    assert "Users by country and age" in page
    assert page.count("<figure") > len(found.details)
    bars = found["age"].plot().chart.to_dict()
    assert "no answer" in str(bars)


def test_users_whose_reports_contradict_each_other_move_a_count_by_no_more_than_is_said() -> None:
    """A malicious user has one report in each table; a cell can lose a count in each and another gain one."""
    plan, before = planned(), without_noise()
    encoding = plan.encoding
    said = plan.max_shift(40) * USERS
    assert said == pytest.approx(40 * encoding.largest_move)
    random, worst = np.random.default_rng(2), 0.0
    for _ in range(20):
        table = before.table.copy()
        for first, size in zip(encoding.firsts, encoding.table_sizes, strict=False):
            cells = first + (random.permutation(size)[:2] if size > 1 else np.zeros(1, np.int64))
            table[cells[0]] += 40
            table[cells[-1]] -= 40 if size > 1 else 0
        moved = estimate_of(plan, USERS, 0, table)
        worst = max(worst, *(float(np.abs(moved[n].counts - before[n].counts).max()) for n in SURVEY.wanted))
    assert 0 < worst <= said * (1 + 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("noise_by", ["shuffler", "servers"])
def test_reports_of_a_survey_go_through_shuffler_and_analyzer(noise_by: Any) -> None:
    plan = planned(noise_by)
    reports = ss.Randomizer(plan).randomize(answers())
    assert len(reports) == USERS * plan.reports
    found = ss.Analyzer(plan).analyze(ss.shuffle(reports, plan=plan))
    true = truth(country="DE", pro=True)
    count = found.count(country="DE", pro=True)
    assert abs(count.value - true) < 8 * count.standard_error
    assert count.standard_error < 100
