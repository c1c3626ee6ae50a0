"""Users' devices, shuffler and analyzer as three functions that share nothing but bytes.

Run: python examples/three_roles.py [beats.npz]
"""

import math

import numpy as np
from numpy.typing import NDArray

import shufflesum as ss
from beats import load

REPORT = np.dtype(">u4")  # 4 bytes: all that a report is, one cell: coordinate x (levels + 1) + value


def pack(reports: ss.Reports) -> bytes:
    return reports.cells.astype(REPORT).tobytes()


def unpack(plan_id: str, message: bytes) -> ss.Reports:
    return ss.Reports(plan_id, np.frombuffer(message, dtype=REPORT).astype(np.uint32))


def devices(plan_json: str, beats: NDArray[np.float64]) -> bytes:
    """See their own beats. They read the plan, which proves its guarantee again, so they need not believe it.

    A device clips: one that refused an odd beat would reveal, by its silence, that the beat was odd.
    """
    return pack(ss.Randomizer(ss.Plan.from_json(plan_json), clip=True).randomize(beats))


def shuffler(plan_id: str, messages: list[bytes]) -> bytes:
    """Sees noisy reports and who sent them. It mixes the reports of all users at once.

    Mixing each half alone would hide a user among half as many: the plan's guarantee would not hold.
    """
    return pack(ss.shuffle(unpack(plan_id, b"".join(messages))))


def analyzer(plan_json: str, shards: list[bytes]) -> ss.Estimate:
    """Sees mixed reports. Shards of them can be counted on different machines; the counts are merged."""
    plan = ss.Plan.from_json(plan_json)
    total = ss.Analyzer(plan)
    for shard in shards:
        part = ss.Analyzer(plan)
        part.add(unpack(plan.id, shard))
        total.merge(part)
    found: ss.Estimate = total.estimate()
    return found


beats = load()
# Reports go to the shuffler in the open here, so noise must be in each: with mechanism "noisy-counts" they have to be
# sealed.
plan = ss.plan(users=len(beats), shape=100, bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6, mechanism="randomized-response")
plan_json = plan.to_json()  # public: everybody has it
print(f"{plan.users} users, {plan.reports} reports of {REPORT.itemsize} bytes each")
print("unit of privacy: one row, here one beat")
print(f"guarantee against the analyzer: epsilon {plan.epsilon}, delta {plan.delta}")
if plan.local_epsilon is not None:
    print(f"if the shuffler helps it: epsilon {math.ceil(plan.local_epsilon)}, which is next to nothing\n")

sent = [devices(plan_json, half) for half in np.array_split(beats, 2)]
mixed = shuffler(plan.id, sent)
cut = len(mixed) // 8 * 4  # between two reports
estimate = analyzer(plan_json, [mixed[:cut], mixed[cut:]])
print("the shuffler sees user 0 send:  ", np.frombuffer(sent[0], dtype=REPORT)[:6], "...")
print("the analyzer sees somebody send:", np.frombuffer(mixed, dtype=REPORT)[:6], "...\n")

truth = beats.mean(axis=0)
lower_end, upper_end = estimate.confidence_interval(0.95)
inside = (lower_end <= truth) & (truth <= upper_end)
squared_error = np.sum((estimate.mean - truth) ** 2)
print(f"sample 39: truth {truth[39]:.4f}, estimate {estimate.mean[39]:.4f} +- {estimate.standard_error[39]:.4f}")
print(f"95% intervals that hold the truth: {inside.sum()} of {inside.size}")
print(f"squared error {squared_error:.2e}, expected at worst {plan.expected_error.total:.2e}")
