"""Federated learning in Flower: a client mod that sends reports, not an update, and a strategy that averages them.

Two ways, by where reports go. `reports_mod` puts them into the reply and `Shuffled(...)` shuffles them itself: for
simulations, because Flower's server then sees who sent which reports. `upload_mod` seals them, sends them to our
shuffler and replies with nothing; `Shuffled(..., analyzer=URL)` asks our analyzer for the round's estimate: Flower's
server learns who took part, and nothing else. Either mod replaces the whole reply: what a client says of itself beside
the update (its loss, how many examples it has) is not private, and does not leave.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import MissingExtraError, ParameterError, ReportsError, ShufflesumError
from shufflesum.federated import Training, difference, l2_ball_domain, randomize_update
from shufflesum.plans import Plan
from shufflesum.reports import Reports
from shufflesum.service.client import Client, ContributedError, RefusedError, UnreachableError, fetch_estimate
from shufflesum.wire import Task

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
except ImportError as error:
    raise MissingExtraError(
        "missing-extra", f"Flower is not installed ({error}); install it with: pip install 'shufflesum[flower]'"
    ) from error


Mod: TypeAlias = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]

ROUND_KEY = "shufflesum-round"
"""Where a message's configuration holds the round of the plan; Flower's own counts from 1 again after a restart."""

_RECORD, _REPORTS, _PLAN = "shufflesum", "reports", "plan"
_TRAIN = "train"

log = logging.getLogger(__name__)


def reports_mod(plan: Plan) -> Mod:
    """A mod under which a client's reply holds reports and nothing else; see the module about who sees what.

    A round is answered once: the client remembers the last in its state, which Flower keeps for as long as a run.
    """
    l2_ball_domain(plan)

    def send(update: Any, round_number: int, context: Context) -> RecordDict:
        state = context.state.config_records.setdefault(_RECORD, ConfigRecord())
        if int(state.get(plan.id, 0)) >= round_number:
            raise ReportsError(
                "duplicate-contribution", f"this client has sent its reports of round {round_number} already"
            )
        reports = randomize_update(plan, _as_planned(plan, update), round_number)
        state[plan.id] = round_number
        return RecordDict(
            {
                _REPORTS: ArrayRecord({_REPORTS: Array(reports.cells)}),
                _RECORD: ConfigRecord({_PLAN: plan.id, ROUND_KEY: round_number}),
            }
        )

    return _mod(send)


def upload_mod(
    task: Task,
    *,
    user: Callable[[Context], str] | None = None,
    contributions: str | Path | None = None,
    timeout: float = 60.0,
    allow_plain_http: bool = False,
    ca_file: str | Path | None = None,
) -> Mod:
    """A mod under which a client sends sealed reports to the task's shuffler; its reply says only that it did.

    `user` names the client among the contributions of this machine (by its node's configuration unless given). It must
    depend on nothing that the server chooses: a client with a new name sends its round again, and counts twice. The
    other arguments are those of `shufflesum.service.client.Client`. A round that was sent before counts as sent.
    """
    l2_ball_domain(task.plan)

    def send(update: Any, round_number: int, context: Context) -> RecordDict:
        label = _own_name(context) if user is None else user(context)
        with Client(
            task, contributions=contributions, timeout=timeout, allow_plain_http=allow_plain_http, ca_file=ca_file
        ) as client:
            try:
                client.upload(_as_planned(task.plan, update), user=label, round_number=round_number)
            except ContributedError:
                log.info("round %d was sent before", round_number)
        return RecordDict({_RECORD: ConfigRecord({_PLAN: task.plan.id, ROUND_KEY: round_number})})

    return _mod(send)


def _mod(send: Callable[[Any, int, Context], RecordDict]) -> Mod:
    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        if message.metadata.message_type.split(".")[0] != _TRAIN:
            return call_next(message, context)
        try:
            before, round_number = _instructions(message)
            reply = call_next(message, context)
            if reply.has_error():
                log.warning("nothing was sent: training ended with an error: %s", reply.error.reason)
                return _nothing_sent(message)
            after = _only(reply.content.array_records, "reply")
            update = difference(_layers(after), _layers(before))
            content = send(update, round_number, context)
        # The reason stays here: what is wrong with an update, or with the data that it came from, is as private as they
        # are. Of what is raised Flower would tell its server the text.
        except ShufflesumError as error:
            log.warning("nothing was sent: %s", error)
            return _nothing_sent(message)
        except Exception:
            log.exception("nothing was sent")
            return _nothing_sent(message)
        return Message(content, reply_to=message)

    return mod


def _own_name(context: Context) -> str:
    """What whoever started the node calls it; its number, and a run's configuration, are the server's to choose."""
    return "node " + json.dumps(dict(context.node_config), sort_keys=True)


def _nothing_sent(message: Message) -> Message:
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, "nothing was sent"), reply_to=message)


class Shuffled(FedAvg):  # type: ignore[misc]
    """A strategy whose round is one of the plan's: it averages reports, and moves the model by the training's step.

    `training` holds the plan, the model and the rounds used. With an `analyzer` and its `task` the round's estimate is
    asked of it, for `timeout` seconds at most; else reports are taken from the replies and shuffled here. All other
    arguments are those of `FedAvg`; all clients train, as the plan counts on all of its users.
    """

    def __init__(
        self,
        training: Training,
        *,
        analyzer: str | None = None,
        task: Task | None = None,
        timeout: float = 600.0,
        allow_plain_http: bool = False,
        ca_file: str | Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **options: Any,
    ) -> None:
        if (analyzer is None) != (task is None):
            raise ParameterError("conflicting-arguments", "an analyzer and its task are given together, or neither")
        if task is not None and task.plan.id != training.plan.id:
            raise ParameterError("conflicting-arguments", "the task is of another plan than the training; use one plan")
        users = training.plan.users
        for name in ("min_train_nodes", "min_available_nodes"):
            options[name] = max(users, options.get(name, 0))
        options.setdefault("fraction_evaluate", 0.0)
        super().__init__(**options)
        self.training = training
        self._analyzer, self._task, self._timeout = analyzer, task, timeout
        self._web: dict[str, Any] = {"allow_plain_http": allow_plain_http, "ca_file": ca_file}
        self._clock = clock
        self._round = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages with the model and the plan's next round, which begins here; refused when all are spent.

        With an analyzer a round that found too few clients goes on: who has sent their reports does not send others.
        """
        waiting = self.training.waiting if self._task is not None else None
        self._round = self.training.begin() if waiting is None else waiting
        config[ROUND_KEY] = self._round
        own = ArrayRecord(_named(self.training.parameters))
        messages: Iterable[Message] = super().configure_train(server_round, own, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model after this round; None, and the model stays as it is, where too few clients took part."""
        number = self._round
        good, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        try:
            mean = self._asked(number) if self._task is not None else self._averaged(number, good)
        except (ReportsError, RefusedError, UnreachableError) as error:
            log.warning("round %d of the plan has no estimate: %s", number, error)
            return None, None
        self.training.move(mean)
        metrics = MetricRecord({"round": number, "replies": len(good)})
        return ArrayRecord(_named(self.training.parameters)), metrics

    def _averaged(self, number: int, replies: list[Message]) -> NDArray[np.float64]:
        plan = self.training.plan
        pieces = []
        for message in replies:
            try:
                pieces.append(_reports_of(message, plan, number))
            except ReportsError as error:
                log.warning("the reply of node %d is left out: %s", message.metadata.src_node_id, error)
        return self.training.estimate(pieces, number).mean.reshape(-1)

    def _asked(self, number: int) -> NDArray[np.float64]:
        """What the analyzer says of the round, once it does."""
        assert self._task is not None
        assert self._analyzer is not None
        (found,) = fetch_estimate(
            self._task, self._analyzer, round_number=number, wait=self._timeout, clock=self._clock, **self._web
        )["rounds"]
        if not found["guarantee"]["holds"]:
            raise ReportsError("guarantee-broken", f"the guarantee of round {number} does not hold")
        return np.array(found["mean"], dtype=np.float64).reshape(-1)


def _instructions(message: Message) -> tuple[ArrayRecord, int]:
    """The model as it was sent, and the round."""
    config = _only(message.content.config_records, "message")
    number = config.get(ROUND_KEY)
    if not isinstance(number, int):
        raise ParameterError("missing-argument", f"the server's message has no {ROUND_KEY}; use the strategy Shuffled")
    return _only(message.content.array_records, "message"), number


def _only(records: Any, what: str) -> Any:
    if len(records) != 1:
        raise ParameterError("wrong-type", f"a {what} with {len(records)} records of a kind; exactly one is expected")
    return next(iter(records.values()))


def _layers(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in record.items()}


def _named(parameters: Any) -> dict[str, Array]:
    """Parameters by name; layers of a list are called by their number."""
    if isinstance(parameters, dict):
        layers = parameters
    else:
        listed = parameters if isinstance(parameters, list | tuple) else [parameters]
        layers = {str(number): layer for number, layer in enumerate(listed)}
    arrays = {}
    for name, layer in layers.items():
        array = layer.detach().cpu().numpy() if hasattr(layer, "detach") else np.asarray(layer)
        arrays[name] = Array(array)
    return arrays


def _as_planned(plan: Plan, update: dict[str, NDArray[Any]]) -> Any:
    """An update by name in the form that the plan has: by name, a list, or a single array."""
    layers = l2_ball_domain(plan).layers
    if isinstance(layers, dict):
        return update
    listed = list(update.values())
    return listed if isinstance(layers, list) or len(listed) != 1 else listed[0]


def _reports_of(message: Message, plan: Plan, number: int) -> Reports:
    """A reply's reports: as many as the plan asks of a user, of this plan and round."""
    content = message.content
    config = content.config_records.get(_RECORD, {})
    if config.get(_PLAN) != plan.id or config.get(ROUND_KEY) != number:
        raise ReportsError("round-mismatch", f"it is no reply of reports_mod to round {number} of this plan")
    try:
        cells = content.array_records[_REPORTS][_REPORTS].numpy()
    except (KeyError, ValueError) as error:
        raise ReportsError("malformed", "it holds no reports") from error
    if cells.dtype != np.uint32 or cells.shape != (plan.reports,):
        raise ReportsError("wrong-length", f"it holds {cells.dtype} of shape {cells.shape}, not {plan.reports} reports")
    return Reports(plan.id, cells, number)
