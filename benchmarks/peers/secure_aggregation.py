"""What a client of secure aggregation (SecAgg+ as Flower has it) sends, gets and computes for a mean of 100 numbers.

All of the protocol, in this process, its messages counted as Flower would send them. It runs in Flower's environment,
as docs/comparisons.md says: `python benchmarks/peers/secure_aggregation.py [CLIENTS] [NEIGHBOURS]`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # before Flower is imported

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

NUMBERS = 100
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what a running ServerApp is told


class Clients(Grid):  # type: ignore[misc]
    """Clients in this process. Counts what all of them get, send and compute."""

    def __init__(self, held: np.ndarray) -> None:
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
            for node in range(1, len(held) + 1)
        }
        self.exchanges = self.received = self.sent = 0
        self.seconds = 0.0

        class Holder(NumPyClient):  # type: ignore[misc]
            def __init__(self, values: np.ndarray) -> None:
                self.values = values

            def fit(self, parameters: Any, config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
                return [self.values], 1, {}

        self.app = ClientApp(client_fn=lambda own: Holder(held[own.node_id - 1]).to_client(), mods=[secaggplus_mod])

    def set_run(self, run: Any) -> None:
        """There is one only."""

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=1)

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return self.contexts.keys()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        self.exchanges += 1
        replies = []
        for message in messages:
            given = recorddict_to_proto(message.content)
            message.content = recorddict_from_proto(given)  # each client gets its own
            begun = time.process_time()
            reply = self.app(message, self.contexts[message.metadata.dst_node_id])
            self.seconds += time.process_time() - begun
            self.received += given.ByteSize()
            self.sent += recorddict_to_proto(reply.content).ByteSize()
            replies.append(reply)
        return replies


class Mean(FedAvg):  # type: ignore[misc]
    """Keeps the mean that it is given."""

    found: np.ndarray | None = None

    def aggregate_fit(self, *arguments: Any) -> Any:
        parameters, metrics = super().aggregate_fit(*arguments)
        (self.found,) = parameters_to_ndarrays(parameters)
        return parameters, metrics


def main(clients: int = 100, neighbours: int = 51) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    held = np.random.default_rng(1).random((clients, NUMBERS))
    grid = Clients(held)
    strategy = Mean(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=clients,
        min_available_clients=clients,
        initial_parameters=ndarrays_to_parameters([np.zeros(NUMBERS)]),
    )
    context = LegacyContext(
        Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        config=ServerConfig(num_rounds=1),
        strategy=strategy,
    )
    begun, before = time.process_time(), grid.seconds
    # as many neighbours as may share a key; half of them bring back what a lost client leaves
    sums = SecAggPlusWorkflow(neighbours, neighbours // 2 + 1, max_weight=1, clipping_range=1.0)
    DefaultWorkflow(fit_workflow=sums, evaluate_workflow=lambda *_: None)(grid, context)
    server = time.process_time() - begun - (grid.seconds - before)
    if strategy.found is None:
        sys.exit("the aggregation was given up")
    error = np.sum((strategy.found - held.mean(axis=0)) ** 2)
    print(
        f"{clients} clients of {NUMBERS} numbers, {neighbours} neighbours each: {grid.exchanges} exchanges;"
        f" a client receives {grid.received // clients} bytes, sends {grid.sent // clients},"
        f" computes {1000 * grid.seconds / clients:.1f} ms; the server {1000 * server / clients:.1f} ms a client;"
        f" squared error of the mean {error:.1e}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
