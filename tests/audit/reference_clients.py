"""Clients that do what a plan says, written once more and slowly, so that they can be spoilt in one place each."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shufflesum as ss
from shufflesum.cells import BLANK
from shufflesum.domains.open_vocabulary.domain import HashedWords
from shufflesum.encodings import Cells, Values
from shufflesum.mechanisms.one_bit.randomize import Rotation
from shufflesum.randomness import SecureSource, UInts
from shufflesum.testing import SeededSource

__all__ = [
    "BitsClient",
    "Client",
    "ReplaceClient",
    "SeededPerProcess",
    "SilentFor",
    "SlotsClient",
    "Wrapped",
    "client_of",
    "with_noise",
]

KNOBS = {
    "randomized-response": "noise_probability",
    "noisy-slots": "chance",
    "noisy-counts": "probabilities",
    "one-bit": "amplitude",
}


class SeededPerProcess(SeededSource):
    """Repeatable, and other bits in each forked process, as a secure source has them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seed, self._process = seed, os.getpid()

    def fill(self, out: UInts) -> None:
        if os.getpid() != self._process:
            self.__init__(self._seed + os.getpid())  # type: ignore[misc]
        super().fill(out)


class Client:
    """Rows to (users, reports) cells, with a generator that a forked process seeds anew."""

    def __init__(self, plan: ss.Plan) -> None:
        self.plan = plan
        self._generator, self._process = np.random.default_rng(11), os.getpid()

    @property
    def rng(self) -> np.random.Generator:
        if self._process != os.getpid():
            self._generator, self._process = np.random.default_rng(), os.getpid()
        return self._generator

    def __call__(self, rows: Any) -> ss.Reports:
        domain: Any = self.plan.domain
        block = domain.block(domain.rows(rows))
        kinds: dict[Any, str] = {Values: "values", Cells: "cells", HashedWords: "words"}
        held = kinds[type(block)]
        cells = self.cells(getattr(block, held))
        return ss.Reports(self.plan.id, np.ascontiguousarray(cells, dtype=np.uint32).reshape(-1))

    def cells(self, prepared: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError


class ReplaceClient(Client):
    """Every coordinate of a box, or a label."""

    def cells(self, prepared: NDArray[Any]) -> NDArray[Any]:
        mechanism: Any = self.plan.mechanism
        if isinstance(self.plan.domain, ss.Categories):
            held = np.asarray(prepared)[:, None].astype(np.int64)
        else:
            held = self.rounded(prepared * float(mechanism.levels))
        replaced, fresh = self.replaced(held, mechanism.noise_probability), self.fresh(held, mechanism.values)
        return np.asarray(np.arange(held.shape[1]) * mechanism.values + np.where(replaced, fresh, held))

    def rounded(self, positions: NDArray[Any]) -> NDArray[Any]:
        near = np.rint(positions)
        positions = np.where(np.abs(positions - near) < 1e-9, near, positions)
        return np.floor(positions + self.rng.random(positions.shape)).astype(np.int64)

    def replaced(self, held: NDArray[Any], gamma: float) -> NDArray[Any]:
        return self.rng.random(held.shape) < gamma

    def fresh(self, held: NDArray[Any], values: int) -> NDArray[Any]:
        return self.rng.integers(values, size=held.shape)


class SlotsClient(Client):
    """A label or a word, and slots."""

    def cells(self, prepared: NDArray[Any]) -> NDArray[Any]:
        mechanism: Any = self.plan.mechanism
        own = self.own(prepared)
        used, fresh = self.used((len(own), mechanism.slots), mechanism.chance), self.fresh((len(own), mechanism.slots))
        return np.concatenate([own[:, None], np.where(used, fresh, BLANK)], axis=1)

    def own(self, prepared: Any) -> NDArray[Any]:
        domain = self.plan.domain
        if isinstance(domain, ss.OpenVocabulary):
            functions = self.rng.integers(domain.layout[0], size=len(prepared)).astype(np.uint32)
            return functions.astype(np.int64) * domain.layout[1] + domain.buckets_of(prepared, functions)
        return np.asarray(prepared).astype(np.int64)

    def used(self, shape: tuple[int, int], chance: float) -> NDArray[Any]:
        return self.rng.random(shape) < chance

    def fresh(self, shape: tuple[int, int]) -> NDArray[Any]:
        return self.rng.integers(self.plan.cells, size=shape)


class BitsClient(Client):
    """Vectors of bounded norm: a coin for every rotated coordinate."""

    def cells(self, prepared: NDArray[Any]) -> NDArray[Any]:
        mechanism: Any = self.plan.mechanism
        encoding: Any = self.plan.encoding
        levels = Rotation(encoding, mechanism.tau).of(prepared).astype(np.int64)[:, None, :]
        shape = (len(levels), mechanism.bits, levels.shape[2])
        chances = (1 + self.amplitudes(len(levels), mechanism.amplitude) * self.seen(levels) / 2**15) / 2
        bits = self.uniform(shape) < chances
        return np.asarray((2 * np.arange(shape[2]) + bits).reshape(len(levels), -1))

    def amplitudes(self, users: int, amplitude: float) -> NDArray[Any]:
        return np.full((users, 1, 1), amplitude)

    def seen(self, levels: NDArray[Any]) -> NDArray[Any]:
        return levels

    def uniform(self, shape: tuple[int, int, int]) -> NDArray[Any]:
        return self.rng.random(shape)


class Wrapped(Client):
    """The package's own randomizer, for mechanisms where what it sends is spoilt afterwards."""

    def __init__(self, plan: ss.Plan) -> None:
        super().__init__(plan)
        self.honest = ss.Randomizer(plan)

    def __call__(self, rows: Any) -> ss.Reports:
        cells = self.honest.randomize(rows).cells.reshape(-1, self.plan.reports).copy()
        return ss.Reports(self.plan.id, np.ascontiguousarray(self.spoilt(cells, rows)).reshape(-1))

    def spoilt(self, cells: NDArray[np.uint32], rows: Any) -> NDArray[np.uint32]:
        return cells


def with_noise(plan: ss.Plan, part: float) -> Any:
    """The plan's mechanism with so much of its noise; what is not amplitude is replaced."""
    knob = KNOBS[plan.mechanism.kind]
    planned = np.array(getattr(plan.mechanism, knob))
    changed = 1 - part * (1 - planned) if knob == "amplitude" else part * planned
    on_grid = np.minimum(np.floor(changed * 2.0**31) / 2.0**31, 1 - 2.0**-31) if part else changed
    value = tuple(on_grid.tolist()) if knob == "probabilities" else float(on_grid)
    whole: Any = plan.mechanism
    mechanism: Any = object.__new__(type(whole))  # not checked: no mechanism is without noise
    for field in dataclasses.fields(whole):
        object.__setattr__(mechanism, field.name, value if field.name == knob else getattr(whole, field.name))
    return mechanism


class SilentFor(Wrapped):
    """No noise for users whose numbers are `bare`; the others are honest."""

    def __init__(self, plan: ss.Plan) -> None:
        super().__init__(plan)
        self.silent = ss.Randomizer(plan)
        self.silent._encoder = with_noise(plan, 0.0).encoder(plan.encoding, SecureSource())

    def spoilt(self, cells: NDArray[np.uint32], rows: Any) -> NDArray[np.uint32]:
        values = np.asarray(rows[1] if isinstance(self.plan.domain, ss.GroupBy) else rows).reshape(len(cells), -1)
        silent = self.silent.randomize(rows).cells.reshape(cells.shape)
        return np.where(self.bare(values)[:, None], silent, cells)

    def bare(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        raise NotImplementedError


def client_of(plan: ss.Plan) -> type[Client]:
    """Which of these can run a plan."""
    kinds: dict[str, type[Client]] = {
        "randomized-response": ReplaceClient,
        "noisy-slots": SlotsClient,
        "one-bit": BitsClient,
    }
    return kinds.get(plan.mechanism.kind, Wrapped)
