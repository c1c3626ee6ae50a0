"""The same in Flower, simulated: a mod turns each client's update into random bits, a strategy averages them.

Run in a clone: python -m examples.federated_flower (needs: pip install 'shufflesum[flower]' 'flwr[simulation]')
"""

import tempfile
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from numpy.typing import NDArray

import shufflesum as ss
from experiments.federated.data import blobs, clients_of
from experiments.federated.models import Softmax
from shufflesum import federated
from shufflesum.federated.flower import Shuffled, reports_mod

USERS, EACH, ROUNDS = 300, 10, 5
pictures = blobs(users=USERS, each=EACH)
clients = clients_of(pictures, users=USERS, each=EACH, seed=0)
model = Softmax(pictures.pixels)
# Server and clients must have the very same plan, seed of the rotation included: in earnest, from one file.
ball = ss.L2Ball(model.layers, clipping_norm=0.5)
plan = ss.plan(users=USERS, domain=ball, epsilon=8.0, delta=1e-6, rounds=ROUNDS)


def flat(arrays: ArrayRecord) -> NDArray[np.float32]:
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()]).astype(np.float32)


client_app = ClientApp(mods=[reports_mod(plan)])


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """As without privacy: take the model, return it trained. Only the mod's reports leave the client."""
    before = flat(message.content["arrays"])
    user = int(context.node_config["partition-id"])
    (update,) = model.updates(before, clients.images[user : user + 1], clients.labels[user : user + 1]).rows()
    after = {name: Array(layer) for name, layer in ball.unflatten(before + update).items()}
    private = MetricRecord({"num-examples": EACH})  # the mod drops it
    return Message(RecordDict({"arrays": ArrayRecord(after), "metrics": private}), reply_to=message)


def accuracy(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    right = model.scores(flat(arrays), pictures.test_images).argmax(axis=1) == pictures.test_labels
    print(f"round {server_round}: {right.mean():.1%} of the test pictures", flush=True)
    return MetricRecord({"accuracy": float(right.mean())})


server_app = ServerApp()


@server_app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    start = ball.unflatten(model.start(np.random.default_rng(0)))
    with tempfile.TemporaryDirectory() as folder:
        training = federated.Training(plan, start, rounds=Path(folder) / "rounds.db", step=federated.Momentum(3.0))
        initial = ArrayRecord({name: Array(layer) for name, layer in start.items()})
        Shuffled(training).start(grid=grid, initial_arrays=initial, num_rounds=ROUNDS, evaluate_fn=accuracy)


if __name__ == "__main__":
    print(f"{USERS} clients, epsilon {plan.epsilon}, delta {plan.delta} over {ROUNDS} rounds", flush=True)
    run_simulation(server_app, client_app, num_supernodes=USERS)
