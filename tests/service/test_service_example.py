from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shufflesum.sealing import SEALED_BYTES

EXAMPLE = Path(__file__).parents[2] / "examples" / "service.py"


@pytest.mark.slow
def test_the_example_shows_the_estimate_and_what_each_party_saw() -> None:
    done = subprocess.run([sys.executable, EXAMPLE, "500"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "500 users" in text
    assert "epsilon 1.0, delta 1e-6" in text
    assert f"500 uploads of exactly {54 + 4 * SEALED_BYTES} bytes" in text
    assert f"one batch of 2,000 reports of {SEALED_BYTES} bytes in random order" in text
    assert "0 rejected" in text
    assert "both servers have stopped" in text
