"""A classifier trained on clients' pictures, of which only random bits leave each client.

Run in a clone: python -m examples.federated_softmax [--mnist FOLDER] [--network]
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shufflesum as ss
from experiments.federated.data import blobs, clients_of, load_mnist
from experiments.federated.models import Classifier, Network, Softmax
from shufflesum import federated

options = argparse.ArgumentParser()
options.add_argument("--mnist", help="folder with MNIST's four idx files; made-up pictures otherwise")
options.add_argument("--network", action="store_true", help="a network with one hidden layer, not softmax regression")
chosen = options.parse_args()

# The task: every client has a few pictures of its own.
if chosen.mnist:
    pictures, users, each, rounds = load_mnist(chosen.mnist), 6_000, 10, 30
else:
    pictures, users, each, rounds = blobs(), 2_000, 5, 10
clients = clients_of(pictures, users=users, each=each, seed=0)
model: Classifier = Network(pictures.pixels) if chosen.network else Softmax(pictures.pixels)

# The plan is public: what an update looks like, how long it may be, and how many rounds epsilon and delta cover.
ball = ss.L2Ball(model.layers, clipping_norm=0.5)
plan = ss.plan(users=users, domain=ball, epsilon=2.0, delta=1e-6, rounds=rounds)
print(f"{users} clients with {each} pictures each, {model.dimension} parameters, {rounds} rounds")
print(f"unit of privacy: one client in all rounds; epsilon {plan.epsilon}, delta {plan.delta}")
print(f"a client sends {plan.reports} bits a round, {plan.bytes_per_user['raw']} bytes as reports")


def client(number: int, parameters: dict[str, NDArray[np.float32]], round_number: int) -> ss.Reports:
    """See their own pictures and the model. An update that is too long is shortened, never refused."""
    flat = np.concatenate([layer.reshape(-1) for layer in parameters.values()])
    here = slice(number, number + 1)
    (update,) = model.updates(flat, clients.images[here], clients.labels[here]).rows()
    return federated.randomize_update(plan, ball.unflatten(update), round_number)


# The server sees shuffled bits. It writes down which rounds are used: a restart goes on with the next.
with tempfile.TemporaryDirectory() as folder:
    training = federated.Training(
        plan,
        ball.unflatten(model.start(np.random.default_rng(0))),
        rounds=Path(folder) / "rounds",
        step=federated.Momentum(2.0 if chosen.network else 3.0),
    )
    while training.rounds_left:
        number = training.begin()
        reports = [client(user, training.parameters, number) for user in range(users)]
        estimate = training.estimate(reports, number)
        training.move(estimate)
        flat = np.concatenate([layer.reshape(-1) for layer in training.parameters.values()])
        right = model.scores(flat, pictures.test_images).argmax(axis=1) == pictures.test_labels
        if number % (rounds // 5) == 0:
            print(f"round {number:2}: {right.mean():.1%} of the test pictures")
    try:
        training.begin()
    except ss.ShufflesumError as error:
        print(f"then: {error.problem}")
