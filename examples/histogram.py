"""A statistical query: each user answers q(x) in [0, 1]^d, here "which of 25 bins does my value fall in?".

Run: python examples/histogram.py [beats.npz]
"""

import numpy as np

import shufflesum as ss
from beats import load
from shufflesum.mechanisms.replace.error import report_variance

BINS = 25


# On each user's device: the strength of the beat (the standard deviation of its samples) as a one-hot vector. Values in
# [0, 1] have a standard deviation of at most 1/2, so the bins need no look at the data.
strength = load().std(axis=1)
bin_of_user = np.minimum((strength / 0.5 * BINS).astype(int), BINS - 1)
answers = np.eye(BINS, dtype=np.float32)[bin_of_user]  # (users, 25): a single 1 in each row

# The answers are 0 or 1: with one rounding step nothing is ever rounded, and the noise can be smallest. Every user
# reports every bin.
estimate = ss.aggregate(answers, bounds=(0.0, 1.0), levels=1, coordinates=BINS, epsilon=1.0, delta=1e-6)
plan = estimate.plan
print(f"{estimate.users} users, one of {BINS} bins each; unit of privacy: one row, here one beat")
print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

# estimate.standard_error allows for answers between 0 and 1, which one rounding step would blur. We know there are
# none, so the noise is all there is, and it is public: the same for every bin and every crowd.
assert isinstance(plan.mechanism, ss.Replace)
variance = float(report_variance(0.0, 1, plan.mechanism.noise_probability)) / estimate.users
truth = answers.mean(axis=0, dtype=np.float64)
print(f"strength      truth   estimate, each +- {np.sqrt(variance):.4f}")
for b in np.flatnonzero(truth > 0.0005):
    low, high = b * 0.5 / BINS, (b + 1) * 0.5 / BINS
    print(f"{low:.2f} - {high:.2f}  {truth[b]:7.4f}  {estimate.mean[b]:7.4f}  {'#' * round(60 * estimate.mean[b])}")

inside = np.abs(estimate.mean - truth) <= 1.96 * np.sqrt(variance)
squared_error = np.sum((estimate.mean - truth) ** 2)
print(f"\n95% intervals that hold the truth: {inside.sum()} of {inside.size}")
print(f"squared error {squared_error:.2e}, predicted {BINS * variance:.2e}")
