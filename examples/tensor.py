"""A 3-way tensor: class x quarter of the beat x time, so that kinds of beats can be told apart.

Run: python examples/tensor.py [beats.npz]
"""

import numpy as np
from numpy.typing import NDArray

import shufflesum as ss
from beats import load, real_file


def classes_of(beats: NDArray[np.float64]) -> NDArray[np.intp]:
    """The class 0..4 of each beat: by annotation (label), else by strength."""
    if path := real_file():
        with np.load(path) as file:
            if "label" in file:
                return np.asarray(file["label"], dtype=np.intp)
    return np.asarray(np.digitize(beats.std(axis=1), [0.07, 0.08, 0.09, 0.10]), dtype=np.intp)


# On each user's device: the beat, cut into quarters, goes into the slice of its class. The other slices stay 0, so the
# mean over all users is the mean beat of each class times the share of that class. The class itself stays private.
beats = load()
classes = classes_of(beats)
tensors = np.zeros((len(beats), 5, 4, 25), dtype=np.float32)
tensors[np.arange(len(beats)), classes] = beats.reshape(-1, 4, 25)

estimate = ss.aggregate(
    tensors, bounds=(0.0, 1.0), mechanism=ss.RandomizedResponse.Options(coordinates=500), epsilon=1.0, delta=1e-6
)
plan = estimate.plan
print(f"{estimate.users} users, a tensor of shape {plan.shape} each; unit of privacy: one row, here one beat")
print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

# Averages over time have smaller error bars than single entries. Every user reported every entry (coordinates=500),
# each with noise of its own, so squared errors add up.
truth = tensors.mean(axis=0, dtype=np.float64)
by_quarter, true_by_quarter = estimate.mean.mean(axis=2), truth.mean(axis=2)
error_bar = np.sqrt(np.sum(estimate.standard_error**2, axis=2)) / 25
print("class  quarter by quarter: estimate (truth)")
for c in range(5):
    cells = (f"{by_quarter[c, q]:.4f} ({true_by_quarter[c, q]:.4f})" for q in range(4))
    print(f"{c}      " + "  ".join(cells))
print(f"each +- {error_bar.max():.4f} or less\n")

lower_end, upper_end = estimate.confidence_interval(0.95)
inside = (lower_end <= truth) & (truth <= upper_end)
squared_error = np.sum((estimate.mean - truth) ** 2)
print(f"95% intervals that hold the truth: {inside.sum()} of {inside.size}")
print(f"squared error {squared_error:.2e}, expected at worst {plan.expected_error.total:.2e}")
