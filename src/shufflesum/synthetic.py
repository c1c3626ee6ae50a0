"""Made-up heartbeats: a crowd to try the protocol on without anybody's data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import ParameterError

# One row per wave, P Q R S T: centre and width as fractions of the beat, height in millivolts.
_WAVES = np.array(
    [(0.22, 0.026, 0.16), (0.365, 0.010, -0.14), (0.40, 0.013, 1.15), (0.437, 0.012, -0.28), (0.66, 0.048, 0.32)]
)
# Millivolts that become 0 and 1; the same for everybody, so means stay comparable.
_LOWEST, _HIGHEST = -0.5, 1.7
_PEOPLE_AT_ONCE = 4096  # keeps the working arrays in cache


def heartbeats(people: int, samples: int = 100, *, seed: int = 0) -> NDArray[np.float32]:
    """One synthetic heartbeat per person: an array (people, samples) with values in [0, 1].

    Each beat is a sum of five bells, the P, Q, R, S and T waves. People differ in heart rate, in the timing,
    height and width of each wave, in slow baseline wander and in recording noise. The same arguments give the
    same beats. The seed is for repeatable pictures and tests; it has nothing to do with privacy.
    """
    if people < 1 or samples < 1:
        raise ParameterError("out-of-range", f"heartbeats(people={people}, samples={samples}): both must be at least 1")
    random = np.random.default_rng(seed)
    time = ((np.arange(samples) + 0.5) / samples).astype(np.float32)
    beats = np.empty((people, samples), dtype=np.float32)
    for start in range(0, people, _PEOPLE_AT_ONCE):
        block = beats[start : start + _PEOPLE_AT_ONCE]
        _draw_block(random, time, block)
    return beats


def _draw_block(random: np.random.Generator, time: NDArray[np.float32], block: NDArray[np.float32]) -> None:
    count = len(block)

    def vary(deviation: float, *shape: int) -> NDArray[np.float32]:
        return np.float32(deviation) * random.standard_normal((count, *shape), dtype=np.float32)

    centre, width, height = _WAVES.T.astype(np.float32)
    # Waves move with the whole beat (a faster heart squeezes it around R) and a little on their own.
    squeeze = 1 + vary(0.05, 1)
    centres = 0.40 + (centre - 0.40) * squeeze + vary(0.005, 1) + vary(0.003, 5)
    widths = width * np.exp(vary(0.12, 5))
    heights = height * np.exp(vary(0.15, 1) + vary(0.12, 5))

    random.standard_normal(out=block, dtype=np.float32)
    block *= np.float32(0.02)
    wander_phase = 2 * np.pi * random.random((count, 1), dtype=np.float32)
    block += vary(0.04, 1) + np.abs(vary(0.04, 1)) * np.sin(2 * np.pi * 0.3 * time + wander_phase)
    for wave in range(len(_WAVES)):
        distance = (time - centres[:, wave : wave + 1]) / widths[:, wave : wave + 1]
        block += heights[:, wave : wave + 1] * np.exp(-0.5 * distance * distance)
    block -= np.float32(_LOWEST)
    block /= np.float32(_HIGHEST - _LOWEST)
    np.clip(block, 0.0, 1.0, out=block)
