"""Labels that nobody listed, found in data that one process holds: partition selection, in one call.

Rows are read first, which draws nothing and releases nothing. Then the round is begun in a budget, then noise is drawn.
What is drawn, and how often, depends on the data; only what exceeds all that noise alone can be leaves the process
(docs/privacy-discovery.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import OnlyOnce
from shufflesum.aggregation import complete_rows, round_of, without_rows
from shufflesum.budget import Budget
from shufflesum.domains import UnlistedLabels
from shufflesum.domains.frames import library_of
from shufflesum.domains.unlisted_labels.domain import Normalization
from shufflesum.domains.unlisted_labels.estimate import DiscoveryEstimate
from shufflesum.errors import DataError, ParameterError, ReportsError
from shufflesum.mechanisms import PartitionSelection
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan, check_plan
from shufflesum.randomness import RandomSource, SecureSource, random_uints
from shufflesum.release import release_found

_Codes = NDArray[np.int32]


def discover(
    values: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    max_items: int | None = None,
    ignore_case: bool = False,
    normalization: Normalization = "NFC",
    missing: str = "refuse",
    plan: Plan | None = None,
    round_number: int | None = None,
    source: RandomSource | None = None,
    budget: Budget | None = None,
) -> DiscoveryEstimate:
    """Find which labels many users hold, and how many do; nobody needs to list any label before.

    `values` are one label for each user, as for `Categories`. With `max_items` they are a list of labels for each, and
    that many of them count, drawn at random: counts are more accurate, and more labels are found, the fewer these are.
    Labels are text in Unicode's `normalization`, NFC or NFKC, capitals folded with `ignore_case`: such choices are
    public. `missing="drop"` leaves out rows with a missing label. A label that nobody holds is never listed, and one
    that few hold hardly ever: `estimate.plan.mechanism.found_from(0.9)` is how many it takes.

    All of it together, the list, the counts and the number of users who hold something not listed, is (`epsilon`,
    `delta`)-private. A `plan` made before, `shufflesum.plan(domain=shufflesum.UnlistedLabels(), noise_by="curator",
    ...)`, takes the place of these and of all that is said of labels; further rounds of it are `round_number` 2, 3, and
    so on. In a `budget` the plan is begun after all that can be refused, and before anything is drawn.
    """
    if missing not in ("refuse", "drop"):
        raise ParameterError("unknown-choice", f"missing={missing!r} is not allowed: give 'refuse' or 'drop'")
    library: Any = library_of(values)
    if plan is None:
        if epsilon is None or delta is None:
            lacking = "epsilon" if epsilon is None else "delta"
            raise ParameterError("missing-argument", f"{lacking} is missing; give epsilon and delta, or a plan")
        domain = UnlistedLabels(max_items, ignore_case=ignore_case, normalization=normalization)
    else:
        given: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "max_items": max_items,
            "ignore_case": ignore_case or None,
        }
        given |= {"normalization": None if normalization == "NFC" else normalization}
        for name in (name for name, value in given.items() if value is not None):
            raise ParameterError(
                "conflicting-arguments",
                f"{name} cannot be given with a plan, which fixes it already; leave one of them out",
            )
        domain = discovered_domain(plan)
    rows, left_out = complete_rows(domain.rows(values), missing)  # type: ignore[arg-type]
    if plan is None:
        assert epsilon is not None
        assert delta is not None
        plan = make_plan(users=len(rows), domain=domain, epsilon=epsilon, delta=delta, noise_by="curator")
    holdings = Holdings(plan)
    holdings.add(rows)
    estimate = holdings.find(begin=round_of(budget, plan), source=source, round_number=round_number)
    found: DiscoveryEstimate
    found = without_rows(replace(estimate, library=library if library != "pyarrow" else None), missing, left_out)
    return found


def discovered_domain(plan: Plan) -> UnlistedLabels:
    """What users hold under a plan that finds labels; any other is refused."""
    check_plan(plan)
    if not isinstance(plan.domain, UnlistedLabels):
        raise ParameterError(
            "impossible-combination",
            f"the plan is for {type(plan.domain).__name__}, whose labels are public or asked for; labels are found "
            "under a plan for UnlistedLabels",
        )
    return plan.domain


class Holdings(OnlyOnce):
    """The labels of all users of one round, read piece by piece; `find` draws, and ends it.

    It holds a number of four bytes for each label of each user, two of them for lists, and each different label once.
    """

    def __init__(self, plan: Plan) -> None:
        self._domain = discovered_domain(plan)
        assert isinstance(plan.mechanism, PartitionSelection)
        self.plan, self.users = plan, 0
        self._mechanism: PartitionSelection = plan.mechanism
        self._places: dict[str, int] = {}
        self._codes: list[_Codes] = []
        self._owners: list[_Codes] = []
        self._process = os.getpid()
        self._closed = False

    def add(self, rows: Any, *, first_row: int | None = None) -> None:
        """Take these users' labels; what is no label is refused, with its row."""
        self._refuse_if_closed()
        block = self._domain.block(rows, self.users if first_row is None else first_row)
        held = np.bincount(block.codes, minlength=len(block.texts)) > 0
        places = np.zeros(len(block.texts), dtype=np.int32)
        for code in np.flatnonzero(held).tolist():
            places[code] = self._places.setdefault(block.texts[code] or "", len(self._places))
        self._codes.append(places[block.codes])
        if block.users is not None:
            self._owners.append((block.users + self.users).astype(np.int32))
        self.users += len(block)

    def find(
        self,
        *,
        begin: Callable[[], int] | None = None,
        source: RandomSource | None = None,
        round_number: int | None = None,
    ) -> DiscoveryEstimate:
        """Begin the round, draw which labels of each user count, and the noise; and release what exceeds it."""
        self._refuse_if_closed()
        number = 1 if round_number is None else round_number
        self.plan.check_round(number)
        if self.users < self.plan.users:
            raise DataError(
                "too-few-users",
                f"labels of {self.users} users are given, but the plan needs at least {self.plan.users} users; add "
                "rows, or plan for fewer users",
            )
        self._closed = True
        if begin is not None:
            begun = begin()
            number = begun if round_number is None else number
        source = source or SecureSource()
        codes = np.concatenate(self._codes)
        owners = None if self._domain.max_items is None else np.concatenate(self._owners)
        if owners is not None:
            owners, codes = _distinct(owners, codes)
        kept = codes if owners is None else codes[_drawn(owners, self._domain.counted_items, source)]
        counts = np.bincount(kept, minlength=len(self._places))
        listed, noisy = self._mechanism.listed(counts, source)
        unlisted = np.ones(len(self._places), dtype=np.bool_)
        unlisted[listed] = False
        others = unlisted[codes]
        rest = int(np.count_nonzero(others)) if owners is None else len(np.unique(owners[others]))
        texts = list(self._places)
        labels = [texts[place] for place in listed.tolist()]
        # the order is that of what is released, and of nothing else: not in which the data had them
        order = sorted(range(len(labels)), key=lambda place: (-int(noisy[place]), labels[place]))
        table = np.append(noisy[order], self._mechanism.noisy_rest(rest, source))
        found: DiscoveryEstimate = release_found(
            self.plan, self.users, [labels[place] for place in order], table, number
        )
        return found

    def _refuse_if_closed(self) -> None:
        self._refuse_forked(self._process)
        if self._closed:
            raise ReportsError(
                "batch-closed", "labels were found in these rows already; the same with other noise is another round"
            )


def _distinct(owners: _Codes, codes: _Codes) -> tuple[_Codes, _Codes]:
    """Each label of a user once, in the order of the user's own list, which no other user's data changes."""
    pairs = (owners.astype(np.int64) << 32) | codes
    first = np.sort(np.unique(pairs, return_index=True)[1])
    return owners[first], codes[first]


def _drawn(owners: _Codes, most: int, source: RandomSource) -> NDArray[np.bool_]:
    """Which items count: up to `most` of each user's, drawn by the user's own random numbers."""
    sizes = np.bincount(owners)[owners]
    kept = sizes <= most
    places = np.flatnonzero(~kept)
    # whose numbers are equal, once in 2**64, are taken in the user's own order
    drawn = random_uints(source, len(places), np.uint64)
    order = places[np.lexsort((drawn, owners[places]))]
    rank = np.arange(len(order)) - np.searchsorted(owners[order], owners[order], side="left")
    kept[order[rank < most]] = True
    return kept
