"""Speed of labels in one process, and of asking a hashed estimate for a million words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import numpy as np

import shufflesum as ss
from benchmarks.accounting import seconds_row
from benchmarks.timing import Row, at_most, best_times
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains import OpenVocabulary
from shufflesum.domains.open_vocabulary.estimate import VocabularyEstimate

ROWS, LABELS = 10_000_000, 1_000
USERS, WORDS, BUCKETS, FUNCTIONS = 1_000_000, 1_000_000, 50_000, 64


def categories() -> Row:
    labels = np.random.default_rng(0).integers(0, LABELS, ROWS)
    plan = ss.plan(users=ROWS, domain=ss.Categories(LABELS), epsilon=1.0, delta=1e-6, noise_by="curator")
    ours, bare = best_times(
        lambda: aggregate_batches([labels], plan, workers=1), lambda: np.bincount(labels, minlength=LABELS)
    )
    return at_most(
        f"{ROWS:,} int64 labels of {LABELS:,} categories aggregated in one process, one thread, against "
        "`numpy.bincount`",
        ours / bare,
        10.0,
        f" ({1e9 * ours / ROWS:.1f} ns against {1e9 * bare / ROWS:.1f} ns a label)",
    )


def texts() -> Row:
    """Strings, as Arrow and pandas hold them: the different ones are looked up once."""
    import pandas as pd

    names = [f"label {i}" for i in range(LABELS)]
    labels = pd.Series(pd.Categorical.from_codes(np.random.default_rng(0).integers(0, LABELS, ROWS), names))
    plan = ss.plan(users=ROWS, domain=ss.Categories(names), epsilon=1.0, delta=1e-6, noise_by="curator")
    codes = labels.cat.codes.to_numpy()
    ours, bare = best_times(
        lambda: aggregate_batches([labels], plan, workers=1), lambda: np.bincount(codes, minlength=LABELS), repeats=3
    )
    return at_most(
        f"{ROWS:,} labels of {LABELS:,} categories in a pandas Categorical, the same, against `numpy.bincount` of its "
        "codes",
        ours / bare,
        10.0,
        f" ({1e9 * ours / ROWS:.1f} ns a label)",
    )


def words() -> list[Row]:
    """Users hold them by Zipf's law, so that many are found and subtracted from the others' cells."""
    plan = ss.plan(users=USERS, domain=ss.OpenVocabulary(BUCKETS, FUNCTIONS), epsilon=1.0, delta=1e-6)
    asked = [f"word {i}" for i in range(WORDS)]
    weights = 1 / np.arange(1, WORDS + 1)
    held = np.random.default_rng(0).choice(WORDS, USERS, p=weights / weights.sum())
    estimate = cast("VocabularyEstimate", aggregate_batches([[asked[i] for i in held.tolist()]], plan))
    domain = cast("OpenVocabulary", plan.domain)

    def hashing() -> None:
        labels = domain.texts(asked)
        for first in range(0, WORDS, 1 << 16):
            domain.bucket_table(labels[first : first + (1 << 16)])

    scored, hashed = _processor_seconds(lambda: estimate.counts_of(asked)), _processor_seconds(hashing)
    what = f"{WORDS:,} words asked of a hashed estimate, {FUNCTIONS} functions into {BUCKETS:,} buckets"
    return [
        at_most(f"{what}, against hashing them alone, in processor time", scored / hashed, 3.0),
        Row(what, f"{scored:.1f} s of processor time", "below 20 s", scored < 20),
    ]


def _processor_seconds(job: Callable[[], object]) -> float:
    """Of the better of two runs; both jobs use one core, and hundreds of megabytes that others compete for."""
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        job()
        best = min(best, time.process_time() - start)
    return best


def rows() -> list[Row]:
    slots = iter(range(1, 1000))

    def plan() -> object:
        """Not one that is remembered."""
        return ss.plan(users=50_000 + next(slots), domain=ss.Categories(LABELS), epsilon=1.0, delta=1e-6)

    return [categories(), texts(), *words(), seconds_row(f"a full automatic plan of {LABELS:,} categories", 10.0, plan)]
