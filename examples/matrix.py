"""A matrix: which parts of a heartbeat rise and fall together, learned without seeing anybody's beat.

Run: python examples/matrix.py [beats.npz]
"""

import numpy as np

import shufflesum as ss
from beats import load

# On each user's device: ten features, the level of each tenth of the beat against the whole beat. They are clipped to a
# public range and scaled to [-1, 1], so their products lie in [-1, 1] and their squares in [0, 1], whatever the beat.
beats = load()
levels = beats.reshape(-1, 10, 10).mean(axis=2)
features = np.clip((levels - levels.mean(axis=1, keepdims=True)) / 0.25, -1, 1)
matrices = features[:, :, None] * features[:, None, :]  # (users, 10, 10), one matrix per user

# A symmetric matrix has 55 numbers to protect, not 100. The bounds may differ from entry to entry.
lower = np.where(np.eye(10, dtype=bool), 0.0, -1.0)
estimate = ss.aggregate(matrices, shape=ss.Symmetric(10), bounds=(lower, np.ones((10, 10))), epsilon=1.0, delta=1e-6)
plan = estimate.plan
print(f"{estimate.users} users, {plan.dimension} numbers each; unit of privacy: one row, here one beat")
print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

truth = matrices.mean(axis=0)
print("feature pair   truth    estimate")
for i, j in [(6, 6), (3, 3), (3, 6), (0, 6), (0, 9)]:
    print(f"({i}, {j})        {truth[i, j]:7.4f}  {estimate.mean[i, j]:7.4f} +- {estimate.standard_error[i, j]:.4f}")

# Whatever is computed from the estimate is as private as the estimate: here the direction in which beats vary most.
strength, direction = (values[..., -1] for values in np.linalg.eigh(estimate.mean))
true_strength, true_direction = (values[..., -1] for values in np.linalg.eigh(truth))
print(f"\nlargest eigenvalue: truth {true_strength:.4f}, estimate {strength:.4f}")
print(f"its direction: cosine with the true one {abs(direction @ true_direction):.4f}\n")

pairs = np.triu_indices(10)  # each number once
lower_end, upper_end = estimate.confidence_interval(0.95)
inside = ((lower_end <= truth) & (truth <= upper_end))[pairs]
squared_error = np.sum((estimate.mean - truth)[pairs] ** 2)
print(f"95% intervals that hold the truth: {inside.sum()} of {inside.size}")
print(f"squared error {squared_error:.2e}, expected at worst {plan.expected_error.total:.2e}")
