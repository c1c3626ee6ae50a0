"""The fixed example for other implementations: from a vector to the cells that it is sent as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.plan_builders import encoding_for

from shufflesum.domains import L2Ball
from shufflesum.mechanisms import OneBit
from shufflesum.mechanisms.one_bit.randomize import Rotation, squares_allowed

GOLDEN = json.loads((Path(__file__).parents[2] / "vectors" / "golden_l2_ball.json").read_text())


class Draws:
    """Uniform numbers of 47 bits, as words of 16 bits and, on a tie, the other 31 highest of 64."""

    def __init__(self, draws: list[int], thresholds: list[int]) -> None:
        self._coins = [draw >> 31 for draw in draws]
        ties = [draw >> 31 == threshold >> 31 for draw, threshold in zip(draws, thresholds, strict=True)]
        self._spare = [(draw & (2**31 - 1)) << 33 for draw, tie in zip(draws, ties, strict=True) if tie]

    def fill(self, out: NDArray[Any]) -> None:
        out.reshape(-1)[:] = self._coins if out.dtype == np.uint16 else self._spare


@pytest.mark.parametrize("golden", GOLDEN["rounds"], ids=lambda golden: f"round {golden['round']}")
def test_the_golden_vector_becomes_the_golden_cells(golden: dict[str, Any]) -> None:
    shape, seed = tuple(GOLDEN["shape"]), bytes.fromhex(GOLDEN["seed"])
    ball = L2Ball(shape, GOLDEN["clipping_norm"], seed=seed).of_round(golden["round"])
    mechanism, encoding = OneBit(1, GOLDEN["amplitude"], GOLDEN["tau"]), encoding_for(ball, OneBit)
    assert ball.signs().tolist() == golden["signs"]
    assert squares_allowed(ball.padded, mechanism.tau) == GOLDEN["squares_allowed"]
    for dtype in (np.float32, np.float64):
        row = np.array([GOLDEN["update"]], dtype=dtype)
        levels = Rotation(encoding, mechanism.tau).of(ball.block(row).values)[0].tolist()
        assert levels == golden["levels"]
        assert [2**46 + mechanism.numerator * level for level in levels] == golden["ones_of_2_47"]
        for which in (0, 1):
            draws = [pair[which] for pair in golden["draws"]]
            encoder = mechanism.encoder(encoding, Draws(draws, golden["ones_of_2_47"]))
            cells = encoder.encode(ball.block(row)).tolist()
            assert cells == [pair[which] for pair in golden["cells"]]
