"""Made-up users of every domain: nobody's data, by a law and a seed. The seed has nothing to do with privacy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum.domain import Ball, Box, Categories, Choices, Domain, Groups, Hashed
from shufflesum.errors import ParameterError

__all__ = ["LABEL_LAWS", "LAWS", "Rows", "described", "made_up", "vocabulary"]

Rows = Any
_Floats = NDArray[np.float64]

LAWS = ("normal", "uniform", "skewed", "constant")
LABEL_LAWS = ("zipf", "uniform")
_WORDS = 1000  # that made-up users of open vocabularies hold
_VALUES_AT_ONCE = 1 << 22
_SCALES = {  # of numbers, as parts of the width of their bounds
    "normal": "around 40 % of the way through the bounds, give or take 15 %",
    "uniform": "anywhere within the bounds",
    "skewed": "mostly near the lower bound, a few far above it",
    "constant": "the same for everybody",
}


def described(domain: Domain, law: str | None, label_law: str | None) -> str:
    """The law in words; refuses one for numbers where there are none, and for labels likewise."""
    numbers = isinstance(domain, Ball | Box | Groups)
    labels = not isinstance(domain, Ball | Box)
    what = type(domain).__name__
    for name, given, there, remedy in (
        ("law", law, numbers, "label_law (--label-law)"),
        ("label_law", label_law, labels, "law (--law)"),
    ):
        if given is not None and not there:
            raise ParameterError("conflicting-arguments", f"{name}={given!r} is not for {what}; give {remedy}")
    words = []
    if numbers:
        check_choice("law", law or LAWS[0], LAWS)
        words.append(f"{'vectors' if isinstance(domain, Ball) else 'numbers'} {law or LAWS[0]}")
        if not isinstance(domain, Ball):
            words[-1] += f" ({_SCALES[law or LAWS[0]]})"
    if labels:
        check_choice("label_law", label_law or LABEL_LAWS[0], LABEL_LAWS)
        words.append(f"labels {label_law or LABEL_LAWS[0]}")
    return "made up: " + ", ".join(words)


def made_up(domain: Domain, users: int, law: str | None, label_law: str | None, seed: int) -> Iterator[Rows]:
    """Batches of so many users' rows, as the domain takes them; the same arguments give the same rows."""
    random = np.random.default_rng(seed)
    size = max(1, _VALUES_AT_ONCE // domain.entries)
    common = _direction(random, domain.dimension) if isinstance(domain, Ball) else np.empty(0)
    for start in range(0, users, size):
        yield domain.rows(_drawn(domain, min(size, users - start), law or LAWS[0], label_law, random, common))


def vocabulary() -> list[str]:
    """The words that made-up users hold, the most frequent first under a Zipf law."""
    return [f"word {number}" for number in range(1, _WORDS + 1)]


def _drawn(
    domain: Domain, users: int, law: str, label_law: str | None, random: np.random.Generator, common: _Floats
) -> Any:
    if isinstance(domain, Box):
        return _arrays(domain, users, law, random)
    if isinstance(domain, Ball):
        return _vectors(domain, users, law, random, common)
    held = _held(domain)
    if isinstance(domain, Choices):
        codes = _codes(random, len(held), users * domain.most, label_law).reshape(users, -1)
        sizes = random.integers(1, domain.most, users, endpoint=True).tolist()
        return [list({held[code] for code in row[:size]}) for row, size in zip(codes, sizes, strict=True)]
    labels = [held[code] for code in _codes(random, len(held), users, label_law)]
    return (labels, _arrays(domain.box, users, law, random)) if isinstance(domain, Groups) else labels


def _held(domain: Categories | Choices | Groups | Hashed) -> Sequence[Any]:
    """What a user of each label holds."""
    match domain:
        case Categories():
            return [domain.example(cell) for cell in range(domain.cells)]
        case Hashed():
            return vocabulary()
    return domain.cell_labels


def _codes(random: np.random.Generator, labels: int, users: int, label_law: str | None) -> NDArray[np.int64]:
    """Under Zipf's law label number i is held in proportion to 1 / i."""
    if label_law == "uniform":
        return random.integers(0, labels, users)
    ends = np.cumsum(1 / np.arange(1, labels + 1))
    found: NDArray[np.int64] = np.searchsorted(ends, random.random(users) * ends[-1], side="right")
    return found.clip(max=labels - 1)


def _units(random: np.random.Generator, law: str, shape: tuple[int, ...]) -> _Floats:
    """Numbers between 0 and 1."""
    match law:
        case "uniform":
            return random.random(shape)
        case "normal":
            return np.clip(random.normal(0.4, 0.15, shape), 0, 1)
        case "skewed":
            return random.random(shape) ** 8
    return np.full(shape, 0.4)


def _arrays(box: Box, users: int, law: str, random: np.random.Generator) -> _Floats:
    coordinates = box.lower + box.width * _units(random, law, (users, box.dimension))
    coordinates = np.clip(coordinates, box.lower, box.lower + box.width)
    if len(box.shape) <= 1 and not box.structure.mixes:
        return coordinates.reshape(users, *box.shape)
    return np.stack([box.structure.restore(row) for row in coordinates])


def _direction(random: np.random.Generator, size: int) -> _Floats:
    vector = random.standard_normal(size)
    return vector / np.linalg.norm(vector)


def _vectors(ball: Ball, users: int, law: str, random: np.random.Generator, common: _Floats) -> _Floats:
    """Vectors of the ball: a common direction with differences, any directions, few large entries, or all equal."""
    size = ball.dimension
    spread = random.standard_normal((users, size))
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    match law:
        case "uniform":
            vectors = spread * random.random((users, 1))
        case "normal":
            vectors = 0.5 * common + 0.5 * spread
        case "skewed":
            weights = 1 / np.arange(1, size + 1)
            vectors = spread * weights
            vectors *= 0.9 / np.linalg.norm(vectors, axis=1, keepdims=True)
        case _:
            vectors = np.broadcast_to(0.5 * common, (users, size))
    vectors = ball.radius * (1 - 1e-9) * vectors
    if ball.center is not None:
        vectors = vectors + ball.center
    return vectors.reshape(users, *ball.shape)
