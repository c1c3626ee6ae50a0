"""Federated learning: model updates with a bounded norm, randomized by each client, averaged by a server nobody trusts.

Both sides of a round of training in plain NumPy: a client's update to reports, all reports to the model's next step;
`flower` has the same inside Flower (extra `flower`).

A model's parameters are an array, a list or a dictionary of arrays, as frameworks hold them: NumPy's, or tensors that
can be detached and copied as PyTorch's can; PyTorch itself is never imported. An update is what is added to them: after
minus before, or minus a gradient. The server's step sees only the estimated mean of updates, and no user's data. A plan
covers so many rounds; each is written down before anything of it can be seen, so that no restart repeats one.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._checks import check_number
from shufflesum.domains import L2Ball
from shufflesum.errors import DataError, FileError, ParameterError, ReportsError
from shufflesum.estimate import MeanEstimate
from shufflesum.plans import Plan
from shufflesum.protocol import Analyzer, Randomizer, shuffle
from shufflesum.randomness import RandomSource
from shufflesum.reports import Reports
from shufflesum.rounds import RoundCounter
from shufflesum.tables.writers import StagedOutputs

Parameters: TypeAlias = Any
"""An array, a list of arrays, or a dictionary of arrays by name: NumPy arrays or PyTorch tensors."""


def l2_ball_of(parameters: Parameters, *, clipping_norm: float, center: ArrayLike | Parameters | None = None) -> L2Ball:
    """The domain of updates of a model with these parameters, of norm `clipping_norm` at most, layer by layer."""
    return L2Ball(_each(np.shape, _arrays(parameters)), clipping_norm=clipping_norm, center=center)


def vector_of(parameters: Parameters) -> NDArray[np.float64]:
    """All parameters as one vector, layer after layer, each in C order."""
    layers = _layers(_arrays(parameters))
    return np.concatenate([np.asarray(layer, dtype=np.float64).reshape(-1) for layer in layers])


def like(parameters: Parameters, vector: NDArray[Any]) -> Parameters:
    """A vector in the shape, order and kind of these parameters: tensors where they are tensors, of the same type."""
    layers = _layers(parameters)
    sizes = [int(np.prod(layer.shape)) for layer in layers]
    if vector.shape != (sum(sizes),):
        raise DataError(
            "wrong-shape", f"a vector of shape {vector.shape} for {sum(sizes)} parameters; the model is another one"
        )
    pieces = iter(np.split(vector, np.cumsum(sizes)[:-1]))
    return _each(lambda layer: _as(layer, next(pieces).reshape(tuple(layer.shape))), parameters)


def difference(after: Parameters, before: Parameters) -> Parameters:
    """What local training changed: after minus before, layer by layer, in NumPy arrays."""
    one, other = _arrays(after), _arrays(before)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if list(one) != list(other):
            raise DataError(
                "layers-mismatch",
                f"layers {list(one)[:5]} after training and {list(other)[:5]} before; keep their order",
            )
        return {name: _minus(one[name], other[name]) for name in one}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_minus(a, b) for a, b in zip(one, other, strict=True)]
    return _minus(one, other)


def _minus(one: Any, other: Any) -> NDArray[Any]:
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        raise DataError("wrong-shape", f"a layer has shape {one.shape} after training and {other.shape} before")
    difference: NDArray[Any] = one - other
    return difference


def _each(function: Callable[[Any], Any], parameters: Parameters) -> Any:
    """The same container with what the function makes of each layer."""
    if isinstance(parameters, Mapping):
        return {name: function(layer) for name, layer in parameters.items()}
    return [function(layer) for layer in parameters] if isinstance(parameters, list | tuple) else function(parameters)


def _layers(parameters: Parameters) -> list[Any]:
    if isinstance(parameters, Mapping):
        return list(parameters.values())
    return list(parameters) if isinstance(parameters, list | tuple) else [parameters]


def _arrays(parameters: Parameters) -> Any:
    """The same container with NumPy arrays in it."""
    if isinstance(parameters, Mapping):
        parameters = {str(name): layer for name, layer in parameters.items()}
    return _each(_array, parameters)


def _array(layer: Any) -> NDArray[Any]:
    if hasattr(layer, "detach"):  # a tensor, maybe on another device and part of a graph
        layer = layer.detach().cpu().numpy()
    array = np.asarray(layer)
    if array.dtype.kind != "f":
        raise DataError(
            "not-numbers",
            f"a layer holds {array.dtype}; only floating-point parameters are trained: leave counters and buffers out",
        )
    return array


def _as(layer: Any, values: NDArray[Any]) -> Any:
    """Values as this layer is: a tensor of its type and device, or an array of its type."""
    if hasattr(layer, "new_tensor"):
        return layer.new_tensor(values)
    return values.astype(np.asarray(layer).dtype)


_Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """What a step keeps from round to round: how many there were, and its running means."""

    steps: int = 0
    means: tuple[NDArray[np.float64], ...] = field(default=())


class Step(Protocol):
    """A rule for a server's step."""

    def move(self, update: _Floats, memory: OptimizerState) -> tuple[_Floats, OptimizerState]:
        """What to add to the parameters for this round's mean update, and what to remember."""


@dataclass(frozen=True, slots=True)
class SGD:
    """parameters += learning_rate x update."""

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no rate."""
        check_number("learning_rate", self.learning_rate, above=0, below=math.inf)

    def move(self, update: _Floats, memory: OptimizerState) -> tuple[_Floats, OptimizerState]:
        """The update, times the rate."""
        return self.learning_rate * update, OptimizerState(memory.steps + 1)


@dataclass(frozen=True, slots=True)
class Momentum:
    """velocity = momentum x velocity + update; parameters += learning_rate x velocity."""

    learning_rate: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        """Refuse what is no rate, and a momentum that never fades."""
        check_number("learning_rate", self.learning_rate, above=0, below=math.inf)
        check_number("momentum", self.momentum, least=0, below=1)

    def move(self, update: _Floats, memory: OptimizerState) -> tuple[_Floats, OptimizerState]:
        """The velocity, times the rate."""
        velocity = update + (self.momentum * memory.means[0] if memory.means else 0.0)
        return self.learning_rate * velocity, OptimizerState(memory.steps + 1, (velocity,))


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba, 2015) with the mean update in the place of minus the gradient.

    The squares hold the square of the noise as well: `epsilon` of about its standard error keeps coordinates that are
    all noise from being scaled up.
    """

    learning_rate: float
    beta_1: float = 0.9
    beta_2: float = 0.99
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        """Refuse what is no rate, and means that never fade."""
        check_number("learning_rate", self.learning_rate, above=0, below=math.inf)
        check_number("beta_1", self.beta_1, least=0, below=1)
        check_number("beta_2", self.beta_2, least=0, below=1)
        check_number("epsilon", self.epsilon, above=0, below=math.inf)

    def move(self, update: _Floats, memory: OptimizerState) -> tuple[_Floats, OptimizerState]:
        """The mean of updates over the root of the mean of their squares, both corrected for their start at 0."""
        mean, square = memory.means or (np.zeros_like(update), np.zeros_like(update))
        steps = memory.steps + 1
        mean = self.beta_1 * mean + (1 - self.beta_1) * update
        square = self.beta_2 * square + (1 - self.beta_2) * update**2
        scale = np.sqrt(square / (1 - self.beta_2**steps)) + self.epsilon
        return self.learning_rate * mean / (1 - self.beta_1**steps) / scale, OptimizerState(steps, (mean, square))


def l2_ball_domain(plan: Plan) -> L2Ball:
    """The plan's domain, which must be one of updates."""
    if not isinstance(plan.domain, L2Ball):
        raise ParameterError("wrong-type", "a plan for model updates is expected: domain=shufflesum.L2Ball(...)")
    return plan.domain


def randomize_update(
    plan: Plan, update: Parameters, round_number: int, *, source: RandomSource | None = None
) -> Reports:
    """A client's reports of one round: its update, clipped to the plan's clipping norm, as random bits.

    The update looks as the plan has it: an array, or a list or dictionary of arrays or tensors. NaN, infinity and other
    layers are refused, and then there are no reports at all.
    """
    flat = l2_ball_domain(plan).flatten(update)
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
        rounds: RoundCounter | str | Path,
        step: Step | None = None,
        source: RandomSource | None = None,
    ) -> None:
        size = vector_of(parameters).size
        if size != l2_ball_domain(plan).dimension:
            raise ParameterError(
                "wrong-shape",
                f"the model has {size} parameters, and the plan is for {plan.dimension}; plan with "
                "domain=l2_ball_of(parameters, clipping_norm=...)",
            )
        self.plan = plan
        self.parameters = parameters
        self.step: Step = SGD() if step is None else step
        self.memory = OptimizerState()
        self._rounds = rounds if isinstance(rounds, RoundCounter) else RoundCounter(rounds, plan)
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

    def estimate(self, reports: Iterable[Reports], round_number: int) -> MeanEstimate:
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
        found: MeanEstimate = analyzer.analyze(shuffle(Reports.concatenate(pieces), source=self._source))
        self._open = None
        return found

    def move(self, mean: MeanEstimate | Parameters) -> Parameters:
        """The model after the server's step with this mean update; it replaces `parameters`."""
        update = (
            np.asarray(mean.mean, dtype=np.float64).reshape(-1) if isinstance(mean, MeanEstimate) else vector_of(mean)
        )
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
            raise FileError("plan-mismatch", f"{path}: is of plan {plan[:12]}, not of {self.plan.id[:12]}")
        self.parameters = like(self.parameters, parameters)
        self.memory = OptimizerState(steps, means)
        self._moved = min(moved, self._rounds.used)
        return self.parameters
