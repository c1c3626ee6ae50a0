"""Arrays in a public subspace: 100 samples that are really 34 numbers cost the noise of 34.

Run: python examples/subspace.py [beats.npz]
"""

import numpy as np

import shufflesum as ss
from beats import load

# A cheap sensor measures every third sample and joins them by straight lines. Its curves have 100 samples, but each is
# a sum of 34 public "hats" (1 at one knot, 0 at all others), with the measured values as coefficients.
knots = np.arange(0, 100, 3)
hats = np.array([np.interp(np.arange(100), knots, one) for one in np.eye(len(knots))])
curves = load()[:, knots] @ hats  # (users, 100)

# Bounds are on the coefficients: measured values, so 0 to 1. A curve that is no such sum would be refused.
estimate = ss.aggregate(curves, shape=ss.Span(hats), bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6)
plan = estimate.plan
print(f"{estimate.users} users, {curves.shape[1]} samples each, of which {plan.dimension} are free")
print("unit of privacy: one row, here one beat")
print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

# The estimate comes back as a curve, with error bars at every sample, also between the knots.
truth = curves.mean(axis=0)
print("sample   truth  estimate")
for s in (0, 20, 38, 39, 40, 41, 42, 65, 90):
    print(f"{s:6}  {truth[s]:.4f}    {estimate.mean[s]:.4f} +- {estimate.standard_error[s]:.4f}")

plain = ss.plan(users=estimate.users, shape=100, bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6)
ratio = plain.expected_error.total / plain.dimension / (plan.expected_error.total / plan.dimension)
print(f"\nsent as 100 plain samples, the squared error at a knot would be about {ratio:.1f} times as large")

# At a knot one hat is 1 and all others are 0: the curve's value there is the coefficient the plan speaks about.
lower_end, upper_end = estimate.confidence_interval(0.95)
inside = ((lower_end <= truth) & (truth <= upper_end))[knots]
squared_error = np.sum((estimate.mean - truth)[knots] ** 2)
print(f"95% intervals that hold the truth: {inside.sum()} of {inside.size}")
print(f"squared error {squared_error:.2e}, expected at worst {plan.expected_error.total:.2e}")
