"""Both sides of a round of training in plain NumPy: a client's update to reports, all reports to the model's next step.

A plan covers so many rounds; each is written down before anything of it can be seen, so that no restart repeats one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Ball
from shufflesum.errors import DataError, FileError, ParameterError, ReportsError
from shufflesum.estimate import Estimate
from shufflesum.federated.parameters import Parameters, like, vector_of
from shufflesum.federated.steps import Memory, Plain, Step
from shufflesum.plans import Plan
from shufflesum.protocol import Analyzer, Randomizer, shuffle
from shufflesum.randomness import RandomSource
from shufflesum.reports import Reports
from shufflesum.rounds import RoundsUsed
from shufflesum.tables import StagedOutputs

__all__ = ["Training", "ball_domain", "randomize_update"]


def ball_domain(plan: Plan) -> Ball:
    """The plan's domain, which must be one of updates."""
    if not isinstance(plan.domain, Ball):
        raise ParameterError("wrong-type", "a plan for model updates is expected: shape=shufflesum.Ball(...)")
    return plan.domain


def randomize_update(
    plan: Plan, update: Parameters, round_number: int, *, source: RandomSource | None = None
) -> Reports:
    """A client's reports of one round: its update, clipped to the plan's radius, as random bits.

    The update looks as the plan has it: an array, or a list or dictionary of arrays or tensors. NaN, infinity and other
    layers are refused, and then there are no reports at all.
    """
    flat = ball_domain(plan).flatten(update)
    randomizer = Randomizer(plan, clip=True, source=source, round_number=round_number)
    return randomizer.randomize(flat.reshape(1, *plan.shape))


class Training:
    """The server's side: the model, its step, and the rounds used.

    A round is `begin`, then `estimate` (which shuffles all clients' reports here, and averages them) or an estimate
    from elsewhere, then `move`. `rounds` is the file where rounds are counted, made where there is none, and never
    deleted while the plan is used; `source` is for tests.
    """

    def __init__(
        self,
        plan: Plan,
        parameters: Parameters,
        *,
        rounds: RoundsUsed | str | Path,
        step: Step | None = None,
        source: RandomSource | None = None,
    ) -> None:
        size = vector_of(parameters).size
        if size != ball_domain(plan).dimension:
            raise ParameterError(
                "wrong-shape",
                f"the model has {size} parameters, and the plan is for {plan.dimension}; plan with "
                "shape=ball_of(parameters, radius=...)",
            )
        self.plan = plan
        self.parameters = parameters
        self.step: Step = Plain() if step is None else step
        self.memory = Memory()
        self._rounds = rounds if isinstance(rounds, RoundsUsed) else RoundsUsed(rounds, plan)
        self._moved = self._rounds.used  # the last round that the model has, or never will have
        self._open: int | None = None  # begun here, and not estimated
        self._source = source

    @property
    def rounds_left(self) -> int:
        """How many rounds can still begin."""
        return self._rounds.left

    @property
    def waiting(self) -> int | None:
        """The round that began and has not moved the model, if there is one."""
        used = self._rounds.used
        return used if used > self._moved else None

    def begin(self) -> int:
        """Begin the next round, durably, and give its number; refused after the plan's last ("rounds-spent")."""
        self._open = self._rounds.begin()
        return self._open

    def estimate(self, reports: Iterable[Reports], round_number: int) -> Estimate:
        """The mean update from all clients' reports of the round that was begun last, shuffled as a whole.

        Refused below the plan's users; the round is spent all the same. Once for each round, and only by the training
        that began it: reports that are collected again have other coins, which no guarantee counts.
        """
        if round_number != self._open or round_number != self.waiting:
            raise ReportsError(
                "wrong-round",
                f"round {round_number} was not begun here, or has been estimated, or another was begun since; begin() "
                "the next one",
            )
        analyzer = Analyzer(self.plan, round_number=round_number)
        pieces = list(reports)
        if not pieces:
            raise ReportsError(
                "too-few-users", f"no reports of round {round_number}; {self.plan.users} users are needed"
            )
        found = analyzer.analyze(shuffle(Reports.concatenate(pieces), source=self._source))
        self._open = None
        return found

    def move(self, mean: Estimate | Parameters) -> Parameters:
        """The model after the server's step with this mean update; it replaces `parameters`."""
        update = np.asarray(mean.mean, dtype=np.float64).reshape(-1) if isinstance(mean, Estimate) else vector_of(mean)
        before = vector_of(self.parameters)
        if update.shape != before.shape or not np.isfinite(update).all():
            raise DataError(
                "wrong-shape", f"a mean update of shape {update.shape}, or not finite; expected {before.shape}"
            )
        move, self.memory = self.step.move(update, self.memory)
        self.parameters = like(self.parameters, before + move)
        self._moved = self._rounds.used
        return self.parameters

    def save(self, path: str | Path) -> None:
        """Write model, step and round to an .npz file, whole or not at all, for `restore`."""
        kept: dict[str, Any] = {
            "parameters": vector_of(self.parameters),
            "state": np.array([self._moved, self.memory.steps]),
            "plan": np.array(self.plan.id),
        }
        kept |= {f"mean {number}": array for number, array in enumerate(self.memory.means)}
        try:
            with StagedOutputs() as outputs:
                np.savez(outputs.stage(Path(path), (".npz",)), **kept)
        except OSError as error:
            raise FileError("unwritable", f"cannot write {path}: {error.strerror or error}") from error

    def restore(self, path: str | Path) -> Parameters:
        """Go on from what `save` wrote. A round that began after it and is lost stays used."""
        try:
            with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as found:
                arrays: dict[str, NDArray[Any]] = dict(found)
            moved, steps = (int(number) for number in arrays["state"])
            parameters, plan = arrays["parameters"], str(arrays["plan"])
            means = tuple(arrays[f"mean {number}"] for number in range(len(arrays) - 3))
        except OSError as error:
            raise FileError("unreadable", f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise FileError("damaged", f"{path}: is no saved training, or was cut short ({error})") from error
        if plan != self.plan.id:
            raise FileError("other-plan", f"{path}: is of plan {plan[:12]}, not of {self.plan.id[:12]}")
        self.parameters = like(self.parameters, parameters)
        self.memory = Memory(steps, means)
        self._moved = min(moved, self._rounds.used)
        return self.parameters
