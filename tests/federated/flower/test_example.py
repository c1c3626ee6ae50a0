"""The example, run as a reader runs it, in Flower's own simulation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; make test-flower runs these tests")
pytest.importorskip("ray", reason="Flower's simulation is not installed; make test-flower runs these tests")

ROOT = Path(__file__).parents[3]


@pytest.mark.processes
def test_a_classifier_is_trained_in_flowers_simulation() -> None:
    command = [sys.executable, "-m", "examples.federated_flower"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=True)
    found = [float(percent) for percent in re.findall(r"round \d: (\S+)%", done.stdout)]
    assert len(found) == 6
    assert found[0] < 25  # ten labels, nothing learned
    assert found[-1] > 75
