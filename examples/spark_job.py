"""The three roles as one Spark job: a table of users' vectors in, their private mean out.

In earnest each role is a job of its own, run by whoever has that role: `spark.write` hands a folder from one to the
next, and `spark.read` takes it.

Run on this machine: python examples/spark_job.py [beats.parquet]
Run on a cluster, where every node has shufflesum installed, and a folder that all nodes share:

    spark-submit --master spark://HOST:7077 \
        --conf spark.checkpoint.dir=hdfs:///checkpoints examples/spark_job.py hdfs:///beats.parquet
"""

import sys

import numpy as np
import pyarrow as pa

import shufflesum as ss
from shufflesum.batch import spark
from shufflesum.synthetic import heartbeats


def main() -> None:
    session = spark.session()
    if len(sys.argv) > 1:
        users = session.read.parquet(sys.argv[1])  # columns of numbers, or one of arrays; each row one user
    else:
        beats = heartbeats(50_000, 100, seed=0)
        users = session.createDataFrame(pa.table({"beat": pa.FixedSizeListArray.from_arrays(beats.reshape(-1), 100)}))
    users = users.persist()

    plan = ss.plan(users=users.count(), shape=100, bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6)
    print(f"{plan.users} users, {plan.reports} reports each")
    print("unit of privacy: one row, here one beat")
    print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

    reports = spark.randomize(users, plan)  # drawn, and written down before anything depends on it
    shuffled = spark.shuffle(reports)  # refuses a batch that is too small to hide in
    estimate = spark.analyze(shuffled, plan)

    if len(sys.argv) == 1:
        truth = beats.mean(axis=0)
        lower_end, upper_end = estimate.confidence_interval(0.95)
        inside = (lower_end <= truth) & (truth <= upper_end)
        print(
            f"sample 39: truth {truth[39]:.4f}, estimate {estimate.mean[39]:.4f} +- {estimate.standard_error[39]:.4f}"
        )
        print(f"95% intervals that hold the truth: {inside.sum()} of {inside.size}")
        squared_error = np.sum((estimate.mean - truth) ** 2)
        print(f"squared error {squared_error:.2e}, expected at worst {plan.expected_error.total:.2e}")
    else:
        for sample, (mean, error) in enumerate(zip(estimate.mean, estimate.standard_error, strict=True)):
            print(f"{sample:3d}  {mean:.4f} +- {error:.4f}")
    session.stop()


if __name__ == "__main__":
    main()
