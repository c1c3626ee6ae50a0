from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.errors import DataError, FileError, ParameterError, PrivacyError, ReportsError
from shufflesum.federated import Adam, Momentum, Training, l2_ball_of, randomize_update, vector_of
from shufflesum.rounds import RoundCounter
from shufflesum.testing import SeededSource

USERS, ROUNDS = 400, 3


def model() -> dict[str, NDArray[np.float32]]:
    return {"weight": np.zeros((3, 4), dtype=np.float32), "bias": np.ones(5, dtype=np.float32)}


@pytest.fixture(scope="module")
def plan() -> ss.Plan:
    return ss.plan(users=USERS, domain=l2_ball_of(model(), clipping_norm=1.0), epsilon=4.0, delta=1e-6, rounds=ROUNDS)


def training(plan: ss.Plan, folder: Path, **rest: Any) -> Training:
    return Training(plan, model(), rounds=folder / "rounds.db", **rest)


def update(size: float) -> dict[str, NDArray[np.float32]]:
    """An update of norm 4.1 x size, the same for all."""
    return {"weight": np.full((3, 4), size, dtype=np.float32), "bias": np.full(5, -size, dtype=np.float32)}


def sent(plan: ss.Plan, number: int, size: float = 0.2, users: int = USERS) -> list[ss.Reports]:
    return [randomize_update(plan, update(size), number) for _ in range(users)]


@pytest.mark.long
def test_a_round_moves_the_model_by_the_mean_update(plan: ss.Plan, tmp_path: Path) -> None:
    server = training(plan, tmp_path)
    number = server.begin()
    estimate = server.estimate(sent(plan, number), number)
    truth = vector_of(update(0.2))
    # Seven standard errors in each of 17 entries: a false alarm of 1e-10 or so.
    assert np.all(np.abs(estimate.mean - truth) < 7 * estimate.standard_error)
    before = vector_of(server.parameters)
    after = server.move(estimate)
    assert list(after) == ["weight", "bias"]
    assert after["weight"].dtype == np.float32
    np.testing.assert_allclose(vector_of(after), before + estimate.mean, rtol=1e-6, atol=1e-7)


@pytest.mark.long
def test_an_update_that_is_too_long_is_shortened_never_refused(plan: ss.Plan, tmp_path: Path) -> None:
    server = training(plan, tmp_path)
    number = server.begin()
    estimate = server.estimate(sent(plan, number, size=100.0), number)
    truth = vector_of(update(1.0)) / math.sqrt(17)  # norm 1
    assert np.all(np.abs(estimate.mean - truth) < 7 * estimate.standard_error + 0.05)  # 0.05: clipped coordinates


def test_rounds_are_counted_over_restarts_and_the_one_after_the_last_is_refused(plan: ss.Plan, tmp_path: Path) -> None:
    numbers = [training(plan, tmp_path).begin() for _ in range(ROUNDS)]
    assert numbers == [1, 2, 3]
    server = training(plan, tmp_path)
    assert server.rounds_left == 0
    with refusal("rounds-spent", error=PrivacyError):
        server.begin()


def test_a_round_is_estimated_once_and_only_after_it_began(plan: ss.Plan, tmp_path: Path) -> None:
    server = training(plan, tmp_path)
    reports = sent(plan, 1)
    with refusal("wrong-round", error=ReportsError):
        server.estimate(reports, 1)
    server.begin()
    mean = server.estimate(reports, 1)
    with refusal("wrong-round", error=ReportsError):  # other coins for the same data: a second round in all but name
        server.estimate(sent(plan, 1), 1)
    server.move(mean)
    with refusal("wrong-round", error=ReportsError):
        server.estimate(reports, 1)
    second = server.begin()
    with refusal("round-mismatch", error=ReportsError):
        server.estimate(reports, second)


def test_too_few_clients_are_no_round(plan: ss.Plan, tmp_path: Path) -> None:
    server = training(plan, tmp_path)
    number = server.begin()
    for users in (0, USERS - 1):
        with refusal("too-few-users", error=ReportsError):
            server.estimate(sent(plan, number, users=users), number)
    assert server.begin() == 2


def test_what_is_no_update_sends_nothing(plan: ss.Plan) -> None:
    for value, problem in ((math.nan, "missing-value"), (math.inf, "out-of-bounds")):
        bad = update(0.1)
        bad["bias"][2] = value
        with refusal(problem, "bias", error=DataError):
            randomize_update(plan, bad, 1)
    with refusal("layers-mismatch", error=DataError):
        randomize_update(plan, dict(reversed(update(0.1).items())), 1)
    with refusal("wrong-shape", error=DataError):
        randomize_update(plan, update(0.1) | {"bias": np.zeros(4)}, 1)
    with refusal("out-of-range", error=ParameterError):
        randomize_update(plan, update(0.1), ROUNDS + 1)


def test_a_plan_for_anything_but_updates_is_refused(tmp_path: Path) -> None:
    box = ss.plan(users=USERS, shape=17, epsilon=4.0, delta=1e-6, mechanism="randomized-response")
    with refusal("wrong-type", error=ParameterError):
        Training(box, model(), rounds=tmp_path / "rounds.db")
    with refusal("wrong-type", error=ParameterError):
        randomize_update(box, np.zeros(17), 1)


def test_a_model_of_another_size_is_refused(plan: ss.Plan, tmp_path: Path) -> None:
    with refusal("wrong-shape", error=ParameterError):
        Training(plan, [np.zeros(16)], rounds=tmp_path / "rounds.db")


@pytest.mark.long
@pytest.mark.parametrize("step", [Momentum(0.5), pytest.param(Adam(0.1), marks=pytest.mark.slow)])
def test_a_restart_goes_on_as_if_nothing_had_happened(plan: ss.Plan, tmp_path: Path, step: Any) -> None:
    whole, cut = (
        Training(plan, model(), rounds=tmp_path / f"{name}.json", step=step, source=SeededSource(1)) for name in "ab"
    )
    for number in range(1, ROUNDS + 1):
        source = SeededSource(number)
        reports = [randomize_update(plan, update(0.2), number, source=source) for _ in range(USERS)]
        for server in (whole, cut):
            assert server.begin() == number
            server.move(server.estimate(reports, number))
        cut.save(tmp_path / "model.npz")
        cut = Training(plan, model(), rounds=RoundCounter(tmp_path / "b.json", plan), step=step)
        cut.restore(tmp_path / "model.npz")
        np.testing.assert_array_equal(vector_of(cut.parameters), vector_of(whole.parameters))
        assert cut.waiting is None


def test_a_round_that_began_after_the_model_was_saved_waits(plan: ss.Plan, tmp_path: Path) -> None:
    server = training(plan, tmp_path)
    server.save(tmp_path / "model.npz")
    server.begin()
    again = training(plan, tmp_path)
    again.restore(tmp_path / "model.npz")
    assert again.waiting == 1
    assert again.rounds_left == ROUNDS - 1
    with refusal("wrong-round", error=ReportsError):  # nobody knows whether it was estimated before
        again.estimate(sent(plan, 1), 1)


def test_a_damaged_or_foreign_model_is_refused(plan: ss.Plan, tmp_path: Path) -> None:
    server = training(plan, tmp_path)
    path = tmp_path / "model.npz"
    with refusal("unreadable", error=FileError):
        server.restore(path)
    server.save(path)
    whole = path.read_bytes()
    for damaged in (whole[:-30], b"", b"no such thing"):
        path.write_bytes(damaged)
        with refusal("damaged", error=FileError):
            server.restore(path)
    path.write_bytes(whole)
    other = ss.plan(users=USERS, domain=l2_ball_of(model(), clipping_norm=2.0), epsilon=4.0, delta=1e-6, rounds=ROUNDS)
    with refusal("plan-mismatch", error=FileError):
        Training(other, model(), rounds=tmp_path / "other.json").restore(path)
