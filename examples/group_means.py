"""Means by group: the user's group is as private as the user's numbers, and so is the size of the group.

Run: python examples/group_means.py [beats.npz]
"""

import numpy as np

import shufflesum as ss
from beats import load

# On each user's device: whether the beat is weak, usual or strong (by the standard deviation of its samples), and the
# levels of its twenty parts. Which groups there are is public; who is in which is not.
beats = load()
GROUPS = ["weak", "usual", "strong"]
group = np.array(GROUPS)[np.digitize(beats.std(axis=1), [0.075, 0.1])]
levels = beats.reshape(-1, 20, 5).mean(axis=2)

estimate = ss.aggregate(levels, group_by=group, domain=ss.GroupBy(GROUPS, 20), epsilon=1.0, delta=1e-6)
assert isinstance(estimate, ss.GroupEstimate)
plan = estimate.plan
print(
    f"{estimate.users} users, one of {len(GROUPS)} groups and 20 numbers each; unit of privacy: one row, here one beat"
)
print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

seen = np.flatnonzero(~estimate.too_few)  # the size of a group must be told from 0, or it has no mean
truth = np.array([levels[group == GROUPS[g]].mean(axis=0) for g in seen])
print("group   users, truth above estimate; mean levels of five of the parts, the same")
for g, true in zip(seen, truth, strict=True):
    print(f"{GROUPS[g]:6}  {np.sum(group == GROUPS[g]):8}          " + "  ".join(f"{level:.4f}" for level in true[::4]))
    size = f"{estimate.counts[g]:8.0f} +- {estimate.count_standard_error[g]:<4.0f}"
    print(f"        {size}  " + "  ".join(f"{level:.4f}" for level in estimate.mean[g, ::4]), end="")
    print(f"  +- {estimate.standard_error[g].max():.4f}")

# What the plan predicts is for groups of equal size; the squared error of a group goes with the square of its share.
parts = (len(GROUPS) * np.array([np.mean(group == GROUPS[g]) for g in seen])) ** -2.0 / len(GROUPS)
low, high = estimate.confidence_interval(0.95)
inside = (low[seen] <= truth) & (truth <= high[seen])
squared_error = np.sum((estimate.mean[seen] - truth) ** 2)
print(f"\na trusted curator's squared error would be about {plan.curator_error * parts.sum():.2e}")
print(f"95% intervals that hold the truth: {inside.sum()} of {inside.size}")
print(f"squared error {squared_error:.2e}, expected at worst {plan.expected_error.total * parts.sum():.2e}")
