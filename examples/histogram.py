"""A histogram: how strong are beats? Each user says which of 25 public bins their own number falls in.

Run: python examples/histogram.py [beats.npz]
"""

import numpy as np

import shufflesum as ss
from beats import load

# On each user's device: the strength of the beat, the standard deviation of its samples. Values in [0, 1] have a
# standard deviation of at most 1/2, so that the bins need no look at the data: they are public, and part of the plan.
strength = load().std(axis=1)
bins = np.linspace(0, 0.5, 26).round(2).tolist()

# Every user reports their own bin and a few slots, most of them blank. The noise in a count is the same whatever the
# number of bins: labels (ss.Categories(["yes", "no"])) and numbers in bins pay for two of them, not for all.
estimate = ss.aggregate(strength, domain=ss.Categories(bins=bins), epsilon=1.0, delta=1e-6)
assert isinstance(estimate, ss.CountEstimate)
plan = estimate.plan
print(f"{estimate.users} users, one of {len(estimate.labels)} bins each; unit of privacy: one row, here one beat")
print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

truth, _ = np.histogram(strength, bins)
print(f"strength          truth  estimate, each +- {estimate.count_standard_error[0]:.1f}")
for b in np.flatnonzero(truth > 25):
    bar = "#" * round(60 * estimate.frequencies[b])
    print(f"{estimate.names[b]:14}  {truth[b]:7}  {estimate.counts[b]:8.1f}  {bar}".rstrip())

top = estimate.top(3)
print(f"\nthe three most frequent: {', '.join(map(str, top.labels))}")
print(f"no count below 0, and {estimate.consistent_counts.sum():.0f} users in all: the consistent counts")

low, high = estimate.count_interval(0.95)
inside = (low <= truth) & (truth <= high)
squared_error = np.sum((estimate.frequencies - truth / estimate.users) ** 2)
print(f"\na trusted curator's squared error would be about {plan.curator_error:.2e}")
print(f"95% intervals that hold the truth: {inside.sum()} of {inside.size}")
print(f"squared error {squared_error:.2e}, predicted {plan.expected_error.total:.2e}")
