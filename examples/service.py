"""A whole deployment on this machine: made-up users, a shuffler and an analyzer as servers, and what each of them saw.

Run: python examples/service.py [USERS]
"""

import json
import sys
import time

import numpy as np

import shufflesum as ss
from shufflesum.loopback import deployed
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.client import Client, estimates_in, fetch_estimate
from shufflesum.synthetic import heartbeats

SAMPLES, COORDINATES = 20, 4


def main(users: int) -> None:
    mechanism = ss.RandomizedResponse.Options(coordinates=COORDINATES)
    plan = ss.plan(users=users, shape=SAMPLES, epsilon=1.0, delta=1e-6, mechanism=mechanism)
    beats = heartbeats(users, SAMPLES)
    with deployed("demo", plan) as deployment:
        task = deployment.task
        print(f"analyzer, shuffler and {users:,} users run on this machine, each with their own files")
        start = time.monotonic()
        with Client(task, contributions=deployment.contributions) as client:
            client.upload_many(beats, [f"user {i}" for i in range(users)])
        print(f"{users:,} uploads randomized, sealed and acknowledged in {time.monotonic() - start:.1f} s")
        document = fetch_estimate(task, deployment.analyzer_url, wait=120.0)
        found = document["rounds"][0]
        print("\nWhat the analyzer publishes")
        print(estimates_in(task, document)[1])
        off = np.abs(np.array(found["mean"]) - beats.mean(axis=0, dtype=np.float64)).max()
        print(f"no mean is farther than {off:.2g} from the true one, known only because the crowd is made up")
        print("\nWhat the shuffler saw: sizes only")
        print(f"  {found['uploads']:,} uploads of exactly {task.upload_bytes} bytes, sealed for the analyzer")
        print("  after the release it keeps upload ids and no reports")
        for event in deployment.shuffler.events():
            print(f"  log: {json.dumps(event)}")
        print("What the analyzer saw: unlinked reports")
        print(f"  one batch of {found['uploads'] * plan.reports:,} reports of {SEALED_BYTES} bytes in random order")
        print(f"  {found['rejected_reports']} rejected; it keeps only how often each value came for each sample")
    print("both servers have stopped, and their files are gone")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
