from __future__ import annotations

import io

import pytest
from rich.console import Console

from shufflesum.cli.loopback import run_service_demo
from shufflesum.wire import SEALED_BYTES


@pytest.mark.slow
def test_the_demo_shows_the_estimate_and_what_each_party_saw() -> None:
    shown = io.StringIO()
    run_service_demo(Console(file=shown, width=200), users=500)
    text = shown.getvalue()
    assert "500 users, epsilon 1.0, delta 1e-6" in text
    assert f"500 uploads of exactly {54 + 4 * SEALED_BYTES} bytes" in text
    assert f"one batch of 2,000 reports of {SEALED_BYTES} bytes in random order, 0 rejected" in text
    assert "both servers have stopped" in text
