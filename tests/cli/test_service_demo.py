from __future__ import annotations

import pytest

from shufflesum.cli.simulate import run_service_demo
from shufflesum.sealing import SEALED_BYTES


@pytest.mark.slow
def test_the_demo_shows_the_estimate_and_what_each_party_saw(capfd: pytest.CaptureFixture[str]) -> None:
    run_service_demo(users=500)
    text = capfd.readouterr().out
    assert "500 users" in text
    assert "epsilon 1.0, delta 1e-6" in text
    assert f"500 uploads of exactly {54 + 4 * SEALED_BYTES} bytes" in text
    assert f"one batch of 2,000 reports of {SEALED_BYTES} bytes in random order, 0 rejected" in text
    assert "both servers have stopped" in text
