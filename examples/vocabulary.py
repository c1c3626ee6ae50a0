"""Words out of no list: users hold any text at all, and whoever has the estimate asks for any words afterwards.

Run: python examples/vocabulary.py [beats.npz]
"""

from itertools import product

import numpy as np

import shufflesum as ss
from beats import load

# On each user's device: the beat spelled as a word, one letter for the level of each of its six parts.
levels = load()[:, :96].reshape(-1, 6, 16).mean(axis=2)
letters = np.array(list("abcde"))[np.minimum((levels * 8).astype(int), 4)]
words = ["".join(row) for row in letters]

# Every user reports one of 64 hashes of the word, and a few slots of noise. The hash is public and keyed; its key is
# drawn with the plan.
estimate = ss.aggregate(words, domain=ss.OpenVocabulary(depth=64), epsilon=1.0, delta=1e-6)
assert isinstance(estimate, ss.VocabularyEstimate)
plan = estimate.plan
print(f"{estimate.users} users, one word of any kind each; unit of privacy: one row, here one beat")
print(f"guarantee: epsilon {plan.epsilon}, delta {plan.delta}\n")

# Afterwards, as often as one likes, for any list: here all 15,625 words that could be spelled.
candidates = ["".join(letters) for letters in product("abcde", repeat=6)]
found = estimate.counts_of(candidates)
spelled, times = np.unique(words, return_counts=True)
truth = dict(zip(spelled.tolist(), times.tolist(), strict=True))
true_counts = np.array([truth.get(word, 0) for word in candidates])

print("word      truth  estimate")
for row in found.top(8).rows:
    print(f"{row.label}  {truth.get(str(row.label), 0):7}  {row.count:8.1f}")
print(f"each +- about {np.median(found.count_standard_error):.1f}")
best = {candidates[i] for i in np.argsort(-true_counts)[:20]}
print(f"of the 20 most frequent words {len(best & set(found.top(20).labels))} are among the 20 estimated so\n")

low, high = found.count_interval(0.95)
inside = (low <= true_counts) & (true_counts <= high)
squared_error = np.sum((found.frequencies - true_counts / estimate.users) ** 2)
print(f"a trusted curator's squared error, for as many words, would be {len(candidates) * plan.curator_error:.2e}")
print(f"95% intervals that hold the truth: {inside.sum()} of {inside.size}")
print(f"squared error {squared_error:.2e}, predicted {len(candidates) * plan.expected_error.total:.2e}")
