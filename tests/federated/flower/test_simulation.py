"""The mod and the strategy with reports in the replies, in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refusal

pytest.importorskip("flwr", reason="Flower is not installed; make test-flower runs these tests")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from tests.federated.flower.crowd import Crowd, context, trainer

import shufflesum as ss
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.federated import Training, l2_ball_of, vector_of
from shufflesum.federated.flower import ROUND_KEY, Shuffled, reports_mod

USERS, ROUNDS = 300, 3


def model() -> dict[str, NDArray[np.float32]]:
    return {"weight": np.zeros((3, 4), dtype=np.float32), "bias": np.zeros(5, dtype=np.float32)}


@pytest.fixture(scope="module")
def plan() -> ss.Plan:
    return ss.plan(users=USERS, domain=l2_ball_of(model(), clipping_norm=1.0), epsilon=8.0, delta=1e-6, rounds=ROUNDS)


def updates(users: int = USERS) -> NDArray[np.float32]:
    random = np.random.default_rng(1)
    rows = random.normal(0.1, 0.05, (users, 17))
    short: NDArray[np.float64] = rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    return short.astype(np.float32)


def strategy(plan: ss.Plan, folder: Path) -> Shuffled:
    return Shuffled(Training(plan, model(), rounds=folder / "rounds.db"))


def instruction(number: int | None, values: dict[str, NDArray[np.float32]] | None = None) -> Message:
    config = ConfigRecord({} if number is None else {ROUND_KEY: number})
    arrays = ArrayRecord({name: Array(value) for name, value in (values or model()).items()})
    return Message(RecordDict({"arrays": arrays, "config": config}), dst_node_id=0, message_type="train")


def test_a_training_in_flower_moves_the_model_by_the_mean_of_the_updates(plan: ss.Plan, tmp_path: Path) -> None:
    used, crowd = strategy(plan, tmp_path), Crowd(trainer(reports_mod(plan), updates()), USERS)
    result = used.start(grid=crowd, initial_arrays=ArrayRecord({}), num_rounds=ROUNDS)
    moved = np.concatenate([array.numpy().reshape(-1) for array in result.arrays.values()])
    deviation = np.sqrt(ROUNDS * plan.expected_error.total / plan.dimension)
    # Seven standard errors in each of 17 entries, which the plan's expected error bounds: about 4e-11.
    assert np.all(np.abs(moved - ROUNDS * updates().mean(axis=0)) < 7 * deviation)
    np.testing.assert_array_equal(moved, vector_of(used.training.parameters).astype(np.float32))
    assert used.training.rounds_left == 0
    with refusal("rounds-spent", error=PrivacyError):
        used.start(grid=crowd, initial_arrays=ArrayRecord({}), num_rounds=1)


def test_a_reply_holds_reports_and_nothing_that_the_client_said_beside(plan: ss.Plan, tmp_path: Path) -> None:
    crowd = Crowd(trainer(reports_mod(plan), updates()), USERS)
    strategy(plan, tmp_path).start(grid=crowd, initial_arrays=ArrayRecord({}), num_rounds=1)
    assert len(crowd.replies) == USERS
    for reply in crowd.replies:
        content = reply.content
        assert not content.metric_records
        (cells,) = (array.numpy() for record in content.array_records.values() for array in record.values())
        assert (cells.dtype, cells.shape) == (np.uint32, (plan.reports,))
        (config,) = content.config_records.values()
        assert dict(config) == {"plan": plan.id, ROUND_KEY: 1}


def test_too_few_clients_leave_the_model_as_it_is_and_the_round_is_spent(plan: ss.Plan, tmp_path: Path) -> None:
    used, crowd = strategy(plan, tmp_path), Crowd(trainer(reports_mod(plan), updates()), USERS)
    crowd.silent = {7}
    result = used.start(grid=crowd, initial_arrays=ArrayRecord({}), num_rounds=1)
    assert not result.arrays
    assert not np.any(vector_of(used.training.parameters))
    assert used.training.rounds_left == ROUNDS - 1


def test_after_a_restart_of_the_server_rounds_go_on_and_clients_answer_no_round_twice(
    plan: ss.Plan, tmp_path: Path
) -> None:
    crowd = Crowd(trainer(reports_mod(plan), updates()), USERS)
    for _ in range(2):
        strategy(plan, tmp_path).start(grid=crowd, initial_arrays=ArrayRecord({}), num_rounds=1)
    numbers = [next(iter(reply.content.config_records.values()))[ROUND_KEY] for reply in crowd.replies]
    assert numbers == [1] * USERS + [2] * USERS
    (tmp_path / "rounds.db").unlink()  # a server that forgets is not believed
    crowd.replies.clear()
    result = strategy(plan, tmp_path).start(grid=crowd, initial_arrays=ArrayRecord({}), num_rounds=1)
    assert not result.arrays
    assert all(reply.has_error() for reply in crowd.replies)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_wrong_with_an_update_stays_with_the_client(plan: ss.Plan, bad: float) -> None:
    rows = updates(1)
    rows[0, 3] = bad
    reply = trainer(reports_mod(plan), rows)(instruction(1), context(0))
    assert reply.has_error()
    assert reply.error.reason == "nothing was sent"


def test_what_a_client_raises_while_it_trains_stays_with_the_client(plan: ss.Plan) -> None:
    secret = "the label of row 3 is 'ill'"

    def raises(message: Message, _: Context) -> Message:
        raise ValueError(secret)

    def replies(message: Message, _: Context) -> Message:
        return Message(Error(0, secret), reply_to=message)

    for train in (raises, replies):
        reply = reports_mod(plan)(instruction(1), context(0), train)
        assert reply.has_error()
        assert reply.error.reason == "nothing was sent"


def test_messages_that_are_no_round_of_this_plan_get_no_reports(plan: ss.Plan) -> None:
    app = trainer(reports_mod(plan), updates(1))
    turned = dict(reversed(model().items()))
    for message in (instruction(None), instruction(ROUNDS + 1), instruction(1, turned), instruction(0)):
        assert app(message, context(0)).has_error()
    assert not app(instruction(1), context(0)).has_error()


def test_evaluation_is_left_alone(plan: ss.Plan) -> None:
    message = instruction(1)
    asked = Message(message.content, dst_node_id=0, message_type="evaluate")
    reply = trainer(reports_mod(plan))(asked, context(0))
    assert next(iter(reply.content.metric_records.values()))["seen"] == 1.0


def test_replies_that_are_no_reports_are_left_out(plan: ss.Plan, tmp_path: Path) -> None:
    extra = 3
    used, crowd = strategy(plan, tmp_path), Crowd(trainer(reports_mod(plan), updates(USERS + extra)), USERS + extra)
    replies = list(crowd.send_and_receive(used.configure_train(1, ArrayRecord({}), ConfigRecord({}), crowd)))
    first, second, third = (replies[i].content for i in range(extra))
    first.array_records["reports"] = ArrayRecord({"reports": Array(np.zeros(plan.reports + 1, dtype=np.uint32))})
    del second.array_records["reports"]
    third.config_records["shufflesum"] = ConfigRecord({"plan": plan.id, ROUND_KEY: 2})
    arrays, metrics = used.aggregate_train(1, replies)
    assert arrays is not None
    assert metrics is not None
    assert used.training.rounds_left == ROUNDS - 1


def test_an_analyzer_and_its_task_are_given_together(plan: ss.Plan, tmp_path: Path) -> None:
    with refusal("conflicting-arguments", error=ParameterError):
        Shuffled(Training(plan, model(), rounds=tmp_path / "rounds.db"), analyzer="http://127.0.0.1:1")
