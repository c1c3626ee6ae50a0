"""Data frames in, private means out: pandas, Polars and PyArrow, cell by cell as in a notebook.

Run: python examples/data_frames.py [beats.npz]
"""

# %% One row per user: the mean of each fifth of the user's beat, as a pandas table with names.
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import shufflesum as ss
from beats import load

beats = load()
fifths = pd.DataFrame(
    beats.reshape(len(beats), 5, -1).mean(axis=2), columns=["first", "second", "third", "fourth", "last"]
)

# %% The table goes in as it is. Every column counts: leave out what is no measurement, such as a user number.
estimate = ss.aggregate(fifths, bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6)
plan = estimate.plan
print(f"{estimate.users} users, {fifths.shape[1]} columns; unit of privacy: one row, here one beat")
print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

# %% The estimate comes back in the order of the columns.
result = pd.DataFrame({"truth": fifths.mean(), "estimate": estimate.mean, "+-": estimate.standard_error})
print(result.round(4).to_string())

# %% PyArrow, and the three roles: the randomizer takes the same tables. Nulls are missing values.
table = pa.table({name: pa.array(fifths[name], mask=np.arange(len(fifths)) % 1000 == 0) for name in fifths.columns})
sending = ss.plan(users=len(fifths), shape=5, bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6)
reports = ss.Randomizer(sending, missing="midpoint").randomize(table)
again = ss.Analyzer(sending).analyze(ss.shuffle(reports))
print(f"\nPyArrow: {len(reports)} reports of {again.users} users, of whom {table['first'].null_count} had nulls")

# %% Polars: one column of lists, 100 numbers each, which the shape makes matrices.
lists = pl.DataFrame({"beat": beats}).with_columns(pl.col("beat").arr.to_list())
matrix = ss.aggregate(lists, shape=(5, 20), bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6)
print(f"Polars: lists of 100 became a mean of shape {matrix.mean.shape}")

# %% The truth beside the estimate, which nobody could do in earnest.
truth = beats.mean(axis=0).reshape(5, 20)
low, high = matrix.confidence_interval(0.95)
squared_error, expected = np.sum((matrix.mean - truth) ** 2), matrix.plan.expected_error.total
print(f"\n95% intervals that hold the truth: {((low <= truth) & (truth <= high)).sum()} of {truth.size}")
print(f"squared error {squared_error:.2e}, expected at worst {expected:.2e}")
