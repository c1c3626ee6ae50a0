"""Each example runs as it is run by a reader, and is as accurate as it says.

The examples draw secure randomness, so each run is a new one. Every statistical check here raises a false alarm with
probability at most 1e-6 a run; twins with a wrong noise probability must be rejected.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from tests.slow_params import slow_but_for
from tests.stat_tests import FALSE_ALARM

from shufflesum.synthetic import heartbeats

FOLDER = Path(__file__).parent.parent / "examples"

# How many numbers share the predicted squared error: its total over the largest share. Equal for equal bounds; of the
# matrix's 55 numbers, 45 have squared width 4 and 10 have squared width 1; squared errors of groups go with the square
# of their shares, which are 0.24, 0.57 and 0.19; the 15,625 words share buckets, so they count for less.
NUMBERS = {
    "data_frames": 100,
    "group_means": 20 * (0.24**-2 + 0.57**-2 + 0.19**-2) * 0.19**2,
    "histogram": 25,
    "matrix": (45 * 4 + 10) / 4,
    "subspace": 34,
    "tensor": 500,
    "three_roles": 100,
    "vocabulary": 1000,
}

_OFTEN = {"histogram", "matrix", "three_roles", "vocabulary"}  # one of each kind: the others in the slow suite only
_OTHERS = sorted(NUMBERS.keys() - {"matrix"})  # sabotaged in the slow suite only

WRONG_ANALYZER = """
from dataclasses import replace
import shufflesum.domains.open_vocabulary.estimate as h
import shufflesum.mechanisms.noisy_counts.mechanism as a
import shufflesum.mechanisms.noisy_slots as s
import shufflesum.mechanisms.noisy_sums.mechanism as n
import shufflesum.mechanisms.noisy_table.noise as t
import shufflesum.mechanisms.randomized_response.decode as r
replaced, added, grouped = r.RandomizedResponseMeans, a.NoisyCountsMeans, a.NoisyCountsGroupSums
slots, scores, sums = s.surplus_reports, h._Subtraction._score, n.NoisySums.decode
def half_replaced(noise_probability, **rest):
    return replaced(noise_probability=noise_probability / 2, **rest)
def half(right):
    def wrong(mechanism, *rest):
        halves = tuple(int(p * 2**52) / 2**53 for p in mechanism.probabilities)
        return right(replace(mechanism, probabilities=halves), *rest)
    return wrong
def half_scores(self, block, buckets):
    counts, heavier = scores(self, block, buckets)
    return counts + (self.table.sum() - self.subtracted.sum()) / self.table.shape[1] / 2, heavier
r.RandomizedResponseMeans, a.NoisyCountsMeans, a.NoisyCountsGroupSums = half_replaced, half(added), half(grouped)
s.surplus_reports = lambda table, users: slots(table, users) // 2
h._Subtraction._score = half_scores
t.TableNoise.mean = property(lambda self: self.draws * self.distribution.half_length / 2)
def half_summed(self, encoding, table, users):
    return sums(self, encoding, table + int(self.noise_mean / 2), users)
n.NoisySums.decode = half_summed
"""
NO_NOISE = """
import shufflesum.mechanisms.noisy_table.randomize as t
noisy = t.NoisyTableTally.noise
t.NoisyTableTally.noise = lambda self, users: 0 * noisy(self, users) + self._mechanism.noise[0].half_length
"""


def run(example: str, *arguments: str, beats: str = "", first: str = "") -> str:
    """What the example prints; `first` is Python that sabotages the library before."""
    path = str(FOLDER / f"{example}.py")
    sabotage = (
        f"{first}\nimport runpy, sys\nsys.argv = sys.argv[1:]\nsys.path.insert(0, {str(FOLDER)!r})\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, *(["-c", sabotage] if first else []), path, *arguments],
        env=os.environ | {"SHUFFLESUM_HEARTBEATS": beats},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def figures(printed: str) -> tuple[float, float, int, int]:
    """Squared error, its prediction, intervals that hold the truth, intervals."""
    error = re.search(r"squared error (\S+), (?:predicted|expected at worst) (\S+)$", printed, flags=re.MULTILINE)
    intervals = re.search(r"95% intervals that hold the truth: (\d+) of (\d+)$", printed, flags=re.MULTILINE)
    assert error is not None
    assert intervals is not None
    return float(error[1]), float(error[2]), int(intervals[1]), int(intervals[2])


def largest_error(predicted: float, numbers: float) -> float:
    """What a sum of squares of independent normal errors exceeds with probability at most 1e-6 (Laurent and Massart).

    With w the shares of the prediction it is sum w + 2 |w| sqrt(u) + 2 max w u, u = log 1e6, and |w|^2 is at most
    max w x sum w.
    """
    u = -math.log(FALSE_ALARM)
    return predicted * 1.01 * (1 + 2 * math.sqrt(u / numbers) + 2 * u / numbers)  # 1.01: printed with three digits


def words(text: str) -> list[str]:
    """The text without its figures, which differ in each run."""
    return [re.sub(r"[\d.e+\-#\s]+", " ", line).strip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("example", slow_but_for(sorted(NUMBERS), _OFTEN))
def test_it_runs_prints_what_the_readme_shows_and_errs_as_predicted(example: str) -> None:
    printed = run(example)
    shown = re.search(rf"python examples/{example}\.py\n(.*?)```", (FOLDER / "README.md").read_text(), flags=re.DOTALL)
    assert shown is not None
    assert words(printed) == words(shown[1])
    assert "unit of privacy: one row" in printed
    assert "epsilon 1.0, delta 1e-06" in printed

    error, predicted, holding, intervals = figures(printed)
    assert error <= largest_error(predicted, NUMBERS[example])
    # The made-up beats' errors are at least 0.4 of what is predicted (the matrix; the others more): below a tenth
    # something was not random. The chance is largest for the histogram, P[chi2(24) < 24 / 10] = 6e-9 (its errors are
    # just as predicted), and for the matrix, about P[chi2(47) < 47.5 / 4] = 4e-8.
    assert error >= predicted / 10
    assert holding >= binom.ppf(FALSE_ALARM, intervals, 0.95)


@pytest.mark.parametrize(
    "example",
    ["matrix", *(pytest.param(name, marks=pytest.mark.slow) for name in _OTHERS)],
)
def test_with_half_the_noise_corrected_the_error_is_rejected(example: str) -> None:
    error, predicted, _, _ = figures(run(example, first=WRONG_ANALYZER))
    assert error > largest_error(predicted, NUMBERS[example])


def test_without_noise_the_error_is_too_small_to_be_true() -> None:
    error, predicted, _, _ = figures(run("histogram", first=NO_NOISE))
    assert error < predicted / 10


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Beats of 187 samples as whole numbers over a scale of their own, as recordings come."""
    path = tmp_path_factory.mktemp("recorded") / "beats.npz"
    scales = np.arange(20_000, dtype=np.uint16) % 500 + 300
    beats = heartbeats(len(scales), 187, seed=1) * scales[:, None]
    np.savez(path, num=np.rint(beats).astype(np.uint16), den=scales, split=np.zeros(len(scales), dtype=np.uint8))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(NUMBERS))
def test_it_takes_recorded_beats(example: str, recorded: str) -> None:
    assert run(example, recorded).startswith("20000 users")


def test_the_file_of_beats_can_be_named_by_a_variable(recorded: str) -> None:
    assert run("histogram", beats=recorded).startswith("20000 users")


@pytest.mark.slow
def test_a_classifier_is_trained_from_random_bits_as_the_readme_shows() -> None:
    command = [sys.executable, "-m", "examples.federated_softmax"]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout
    shown = re.search(r"examples\.federated_softmax\n(.*?)```", (FOLDER / "README.md").read_text(), flags=re.DOTALL)
    assert shown is not None
    assert words(printed) == words(shown[1])
    # Ten labels at random are 10 %. With 40 seeds it was 91.5 to 92.5 %, with a deviation of 0.25: 80 is far away.
    last = re.findall(r"round +\d+: (\S+)%", printed)[-1]
    assert float(last) > 80


def test_every_example_is_in_the_readme_and_tested() -> None:
    files = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "beats")
    # Spark's and Flower's are among the tests of these, because they are not everywhere.
    assert files == sorted([*NUMBERS, "federated_flower", "federated_softmax", "service", "spark_job"])
    text = (FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"\]\((\w+)\.py\)", text)) == files
