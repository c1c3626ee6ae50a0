"""Every way in which a randomizer is known to go wrong, each caught; the same clients unspoilt pass.

Audits here draw a small part of what the default time allows, and are without the bounds on epsilon, which would catch
some of this, too. Their confidence is 1 - 1e-6, so an honest client is accused less than once in a million.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.audit.audited_plans import SETTINGS, planned
from tests.audit.reference_clients import BitsClient, Client, ReplaceClient, SilentFor, SlotsClient, Wrapped, client_of
from tests.slow_params import slow_among

import shufflesum as ss
from shufflesum.audit import AuditResult, audit
from shufflesum.cells import BLANK

pytestmark = pytest.mark.usefixtures("findings_only")

NAMES = tuple(name for name in SETTINGS if name != "ball, narrow")
NUMBERS = (
    "randomized-response",
    "randomized response, wide",
    "randomized response, blocks",
    "randomized response, subsets",
    "noisy-counts",
    "groups",
)


def audited(plan: ss.Plan, client: Any, samples: int = 200_000, **paths: Any) -> AuditResult:
    return audit(plan, randomize=client, samples=samples, trials=0, seconds=600, **paths)  # samples end it, anywhere


@pytest.mark.parametrize(
    "name", slow_among(NAMES, ("randomized response, subsets", "randomized response, labels", "multi-choice"))
)
def test_the_clients_that_are_spoilt_below_pass(name: str) -> None:
    plan = planned(name)
    kind = Wrapped if name in ("randomized response, blocks", "randomized response, subsets") else client_of(plan)
    result = audited(plan, kind(plan))
    assert result.passed, result.findings
    assert {tested.kind for tested in result.tested} >= {
        "cells, values and coordinates",
        "single users",
        "neighbouring users",
        "variance across batches",
        "parity",
        "two calls",
        "forked processes",
        "what is held",
        "reports per user",
    }
    assert [drawn.path for drawn in result.paths] == ["many rows", "one row at a time"]


def test_our_own_client_is_looked_at_with_and_without_compiling_and_others_by_name() -> None:
    plan = planned("labels")
    honest = audit(plan, samples=200_000, trials=0)
    assert honest.passed
    ours = ["many rows", "whole batches in one process"]
    one_row = ["one row at a time", "one row at a time, nothing compiled"]
    assert [drawn.path for drawn in honest.paths] == ours + one_row
    caught = audit(plan, one_row={"a device": SlotsNeverUsed(plan)}, samples=200_000, trials=0)
    assert [drawn.path for drawn in caught.paths] == [*ours, "a device"]
    assert caught.findings
    assert all(finding.startswith("a device: ") for finding in caught.findings)


class TenthLessReplaced(ReplaceClient):
    def replaced(self, held: NDArray[Any], gamma: float) -> NDArray[Any]:
        return super().replaced(held, 0.9 * gamma)


class TenthLessInSlots(SlotsClient):
    def used(self, shape: tuple[int, int], chance: float) -> NDArray[Any]:
        return super().used(shape, 0.9 * chance)


class TenthMoreAmplitude(BitsClient):
    def amplitudes(self, users: int, amplitude: float) -> NDArray[Any]:
        return super().amplitudes(users, 1.1 * amplitude)


class TenthLessAdded(Wrapped):
    def __init__(self, plan: ss.Plan) -> None:
        super().__init__(plan)
        encoder: Any = self.honest._encoder
        encoder._numerators = (encoder._numerators * 0.9).astype(np.uint64)


class Neighbourly(Wrapped):
    """Every second user sends what the one before sent, where all hold the same."""

    def spoilt(self, cells: NDArray[np.uint32], rows: Any) -> NDArray[np.uint32]:
        held = rows[0] if isinstance(rows, tuple) else rows
        if len(cells) > 2 and np.array_equal(held[1], held[2]):  # crowds; not where users hold things in turn
            pairs = len(cells) // 2
            cells[1 : 2 * pairs : 2] = cells[: 2 * pairs : 2]
        return cells


class KeepsAllOrNone(ReplaceClient):
    def replaced(self, held: NDArray[Any], gamma: float) -> NDArray[Any]:
        return np.broadcast_to(self.rng.random((len(held), 1)) < gamma, held.shape)


class AllSlotsOrNone(SlotsClient):
    def used(self, shape: tuple[int, int], chance: float) -> NDArray[Any]:
        return np.broadcast_to(self.rng.random((shape[0], 1)) < chance, shape)


class OneCoinForAll(BitsClient):
    def uniform(self, shape: tuple[int, int, int]) -> NDArray[Any]:
        return np.broadcast_to(self.rng.random((shape[0], 1, 1)), shape)


class SameSeedEveryCall(Client):
    """Whatever the mechanism, with the generator at its beginning whenever more than one row comes."""

    def __init__(self, plan: ss.Plan) -> None:
        super().__init__(plan)
        self._inner = client_of(plan)(plan)

    def __call__(self, rows: Any) -> ss.Reports:
        self._inner._generator = np.random.default_rng(3)
        return self._inner(rows)


class SameSeedAfterAFork(SameSeedEveryCall):
    def __call__(self, rows: Any) -> ss.Reports:
        self._inner._process = os.getpid()
        return self._inner(rows)


class ReplacesBySmallValues(ReplaceClient):
    """In the last coordinate, one time in five, the smallest of two draws."""

    def fresh(self, held: NDArray[Any], values: int) -> NDArray[Any]:
        drawn = super().fresh(held, values)
        again = np.minimum(drawn[:, -1], self.rng.integers(values, size=len(drawn)))
        drawn[:, -1] = np.where(self.rng.random(len(drawn)) < 0.2, again, drawn[:, -1])
        return drawn


class FavouriteCoordinate(Wrapped):
    """One user in fifty reports the first coordinate of the first block."""

    def spoilt(self, cells: NDArray[np.uint32], rows: Any) -> NDArray[np.uint32]:
        mechanism: Any = self.plan.mechanism
        cells[::50, 0] %= mechanism.values
        return cells


class BiasedBit(BitsClient):
    def uniform(self, shape: tuple[int, int, int]) -> NDArray[Any]:
        drawn = super().uniform(shape)
        drawn[:, :, 3] *= 0.9
        return drawn


class LinkedValues(ReplaceClient):
    """All replaced values of a user are the same one."""

    def fresh(self, held: NDArray[Any], values: int) -> NDArray[Any]:
        return np.broadcast_to(self.rng.integers(values, size=(len(held), 1)), held.shape)


class LinkedSlots(SlotsClient):
    """All noise of a user is in one cell."""

    def fresh(self, shape: tuple[int, int]) -> NDArray[Any]:
        return np.broadcast_to(self.rng.integers(self.plan.cells, size=(shape[0], 1)), shape)


class LinkedBits(BitsClient):
    """Two coordinates share a coin."""

    def uniform(self, shape: tuple[int, int, int]) -> NDArray[Any]:
        drawn = super().uniform(shape)
        drawn[:, :, 1::2] = drawn[:, :, ::2]
        return drawn


class AllNoiseOrNone(Wrapped):
    """One coin decides for all cells of a user: half of them add no noise, the others twice as much."""

    def __init__(self, plan: ss.Plan) -> None:
        super().__init__(plan)
        self.silent, self.loud = ss.Randomizer(plan), ss.Randomizer(plan)
        for randomizer, factor in ((self.silent, 0), (self.loud, 2)):
            encoder: Any = randomizer._encoder
            encoder._numerators = encoder._numerators * np.uint64(factor)
            encoder._cap = 10**6  # none

    def spoilt(self, cells: NDArray[np.uint32], rows: Any) -> NDArray[np.uint32]:
        silent, loud = (
            randomizer.randomize(rows).cells.reshape(cells.shape) for randomizer in (self.silent, self.loud)
        )
        return np.where(self.rng.random((len(cells), 1)) < 0.5, silent, loud)


class NeverReplaced(ReplaceClient):
    """Who holds the largest but one is never replaced."""

    def replaced(self, held: NDArray[Any], gamma: float) -> NDArray[Any]:
        mechanism: Any = self.plan.mechanism
        return np.asarray(super().replaced(held, gamma) & (held != mechanism.levels - 1))


class NoNoiseForOneLabel(SlotsClient):
    def cells(self, prepared: NDArray[Any]) -> NDArray[Any]:
        cells = super().cells(prepared)
        cells[np.asarray(prepared) == 23, 1:] = BLANK
        return cells


class FixedCoin(BitsClient):
    """Each user and coordinate has a coin of its own, always the same."""

    def uniform(self, shape: tuple[int, int, int]) -> NDArray[Any]:
        return np.random.default_rng(5).random(shape)


class RoundsToTheNearest(BitsClient):
    """Replaced by a fair bit as often as planned, but no coin rounds."""

    def seen(self, levels: NDArray[Any]) -> NDArray[Any]:
        return np.where(levels >= 0, 2**15, -(2**15))


class RoundsToTheNearestLevel(ReplaceClient):
    """Replaced as often as planned, but no coin rounds."""

    def rounded(self, positions: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.rint(positions), dtype=np.int64)


class SilentBetweenLevels(SilentFor):
    """Bounds are 0 and 1 here: levels are multiples of one part of that."""

    def bare(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        mechanism: Any = self.plan.mechanism
        positions = values * mechanism.levels
        return np.asarray((np.abs(positions - np.rint(positions)) > 1e-9).any(axis=1))


class SilentForASingleEntry(SilentFor):
    """Unless it is the first one: an audit's other rows have that."""

    def bare(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((np.count_nonzero(values, axis=1) == 1) & (values[:, 0] == 0))


class SilentForASingleEntryWithinBounds(SilentFor):
    def bare(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((np.count_nonzero(values, axis=1) == 1) & (values.max(axis=1) < 1))


class SilentInside(SilentFor):
    """A vector that is not clipped goes without noise."""

    def bare(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        domain: Any = self.plan.domain
        return np.asarray(np.linalg.norm(values, axis=1) < 0.999 * domain.clipping_norm)


class SlotsNeverUsed(SlotsClient):
    def used(self, shape: tuple[int, int], chance: float) -> NDArray[Any]:
        return np.zeros(shape, dtype=bool)


class LastSlotNeverUsed(SlotsClient):
    def used(self, shape: tuple[int, int], chance: float) -> NDArray[Any]:
        used = super().used(shape, chance)
        used[:, -1] = False
        return used


class IgnoresTheKey(SlotsClient):
    """The buckets of another key."""

    def own(self, prepared: Any) -> NDArray[Any]:
        domain = self.plan.domain
        assert isinstance(domain, ss.OpenVocabulary)
        other = dataclasses.replace(domain, key=bytes(16))
        functions = self.rng.integers(domain.layout[0], size=len(prepared)).astype(np.uint32)
        return functions.astype(np.int64) * domain.layout[1] + other.buckets_of(prepared, functions)


def one_in_a_thousand(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    return rng.random(shape) < 0.001


class FewNeverReplaced(ReplaceClient):
    def replaced(self, held: NDArray[Any], gamma: float) -> NDArray[Any]:
        return super().replaced(held, gamma) & ~one_in_a_thousand(self.rng, (len(held), 1))


class FewAtFullAmplitude(BitsClient):
    def amplitudes(self, users: int, amplitude: float) -> NDArray[Any]:
        return np.where(one_in_a_thousand(self.rng, (users, 1, 1)), 1.0, super().amplitudes(users, amplitude))


RARE = (FewAtFullAmplitude, FewNeverReplaced, TenthMoreAmplitude)

OFTEN = ("randomized-response", "noisy-counts", "labels", "ball")  # a plan of each mechanism
SABOTAGE: list[tuple[tuple[type[Client], ...], tuple[str, ...], tuple[str, ...], str]] = [
    # who is spoilt, in which plans, in which others much like them (slow), and what a finding says
    ((TenthLessReplaced,), ("randomized-response",), ("randomized response, labels",), ""),
    ((TenthLessAdded,), ("noisy-counts", "groups"), ("multi-choice",), ""),
    ((TenthLessInSlots,), ("labels",), ("words",), ""),
    ((TenthMoreAmplitude,), ("ball, wide",), (), ""),
    ((Neighbourly,), OFTEN, tuple(name for name in NAMES if name not in OFTEN), "by both of two neighbours"),
    ((KeepsAllOrNone,), ("randomized-response",), ("randomized response, wide",), "in both of two sets of cells"),
    ((AllSlotsOrNone,), ("words",), (), "by one user"),
    ((AllNoiseOrNone,), ("noisy-counts",), ("multi-choice", "groups"), "in both of two sets of cells"),
    ((OneCoinForAll, LinkedBits), ("ball",), ("ball, wide",), "in both of two sets of cells"),
    ((SameSeedEveryCall,), ("randomized-response", "ball"), ("labels", "words"), "by the same user both times"),
    ((SameSeedAfterAFork,), ("randomized-response", "labels"), ("words", "ball"), "by the same user both times"),
    ((ReplacesBySmallValues,), ("randomized-response",), (), "coordinate 5"),
    ((FavouriteCoordinate,), ("randomized response, blocks",), ("randomized response, subsets",), "coordinate"),
    ((BiasedBit,), ("ball",), (), "coordinate 3"),
    ((LinkedValues,), ("randomized-response",), (), "in both of two sets of cells"),
    ((LinkedSlots,), ("words",), (), "a cell twice"),
    ((NeverReplaced,), ("randomized-response",), ("randomized response, labels",), "hold variant"),
    ((NoNoiseForOneLabel,), ("labels",), (), "hold variant"),
    ((FixedCoin, RoundsToTheNearest), ("ball",), ("ball, wide",), ""),
    ((SilentBetweenLevels,), ("randomized-response", "noisy-counts", "groups"), NUMBERS[1:4], "where users hold"),
    ((SilentForASingleEntry,), ("noisy-counts", "ball"), (*NUMBERS[:4], "groups", "ball, wide"), "where users hold"),
    ((SilentForASingleEntryWithinBounds,), ("randomized-response", "groups"), NUMBERS[1:5], "where users hold"),
    ((SilentInside,), ("ball",), ("ball, wide",), "where users hold"),
    ((RoundsToTheNearestLevel,), ("randomized-response",), ("randomized response, wide",), "where users hold"),
    ((SlotsNeverUsed,), ("labels",), ("words",), ""),
    ((LastSlotNeverUsed,), ("words",), ("labels",), ""),
    ((IgnoresTheKey,), ("words",), (), "no report that may be the own one"),
    ((FewNeverReplaced,), ("randomized response, wide",), (), "6 deviations"),
    ((FewAtFullAmplitude,), ("ball, wide",), (), "6 deviations"),
    ((FewAtFullAmplitude,), ("ball",), (), "by one user, at least"),
]


@pytest.mark.parametrize(
    ("sabotage", "names", "kind"),
    [
        *((spoilt, names, kind) for spoilt, names, _, kind in SABOTAGE),
        *(pytest.param(spoilt, more, kind, marks=pytest.mark.slow) for spoilt, _, more, kind in SABOTAGE if more),
    ],
    ids=lambda value: value[0].__name__ if isinstance(value, tuple) and isinstance(value[0], type) else "",
)
def test_every_sabotage_is_caught(sabotage: tuple[type[Client], ...], names: tuple[str, ...], kind: str) -> None:
    for spoilt in sabotage:
        for name in names:
            plan = planned(name)
            samples = 200_000 if spoilt not in RARE else 24_000_000 if name == "ball" else 8_000_000
            result = audited(plan, spoilt(plan), samples, one_row={})  # tests/audit/test_paths.py is about those
            assert not result.passed, (spoilt.__name__, name)
            assert any(kind in finding for finding in result.findings), (spoilt.__name__, name, result.findings)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_honest_randomizer_passes_a_hundred_runs(name: str) -> None:
    """At a confidence of 1 - 1e-6 one of a hundred runs fails less than once in ten thousand times."""
    for _ in range(-(-100 // len(NAMES))):
        result = audit(planned(name), samples=100_000, trials=0)
        assert result.passed, result.findings
