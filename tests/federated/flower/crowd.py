"""A federation in this process: nodes that run a ClientApp, behind the interface that strategies talk to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("flwr", reason="Flower is not installed; make test-flower runs these tests")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from shufflesum.federated.flower import Mod

__all__ = ["Crowd", "context", "trainer"]


TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what a running ServerApp is told


def context(node: int, number: int | None = None) -> Context:
    """A node's own; `number` is what the server calls it, if not the same."""
    called = node if number is None else number
    return Context(run_id=1, node_id=called, node_config={"partition-id": node}, state=RecordDict(), run_config={})


def trainer(mod: Mod, updates: NDArray[np.float32] | None = None) -> ClientApp:
    """Adds to the model what is given for the node; its metrics are nobody's business."""
    app = ClientApp(mods=[mod])

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Message, own: Context) -> Message:
        arrays = next(iter(message.content.array_records.values()))
        node = int(own.node_config["partition-id"])
        moved, done = {}, 0
        for name, array in arrays.items():
            values = array.numpy()
            added = np.zeros(values.size) if updates is None else updates[node][done : done + values.size]
            moved[name] = Array((values + np.reshape(added, values.shape)).astype(np.float32))
            done += values.size
        private = MetricRecord({"num-examples": 10 + node, "loss": 0.123})
        return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": private}), reply_to=message)

    @app.evaluate()  # type: ignore[untyped-decorator]
    def evaluate(message: Message, own: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "seen": 1.0})}), reply_to=message)

    return app


class Crowd(Grid):  # type: ignore[misc]
    """So many nodes; those in `silent` never answer. Keeps every reply."""

    def __init__(self, app: ClientApp, nodes: int) -> None:
        self.app, self.nodes = app, nodes
        self.silent: set[int] = set()
        self.contexts = [context(node) for node in range(nodes)]
        self.replies: list[Message] = []

    def set_run(self, run: Any) -> None:
        """There is one only."""

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return range(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        found = []
        for message in messages:
            node = message.metadata.dst_node_id
            if node not in self.silent:
                found.append(self.app(message, self.contexts[node]))
        self.replies += found
        return found
