"""Change one thing at a time in what privacy and estimates rest on, and see whether any test notices.

    python -m tests.mutation [--sample 200] [--seed N] [--only privacy/engine] [--workers 2] [--minutes 55]

Each mutant runs with the quick tests of its part, and with the long ones if it survives those. Compiled code is cached
by numba file by file, and kernels of another file would go on with the old one: where there may be such, a mutant of a
kernel starts with an empty cache. Survivors that `survivors.toml` explains are only counted. When the time is up, those
not yet begun are not tried: the sample is in random order, so those tried are a sample, too.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.changed import FILE, MODULE
from tests.mutation.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src/shufflesum")

TESTS: dict[str, tuple[str, ...]] = {
    "privacy/engine": (
        "privacy/engine/test_charges.py",
        *(f"privacy/{p}" for p in ("engine", "slots", "add", "replace")),
    ),
    "privacy/add": ("privacy/add/test_add_charges.py", "privacy/add"),
    "privacy/ball": ("privacy/ball/test_ball_charges.py", "privacy/ball"),
    "privacy/replace": ("privacy/replace/test_replace_charges.py", "privacy/replace"),
    "privacy/slots": ("privacy/slots/test_slots_charges.py", "privacy/slots"),
    "privacy/curator.py": ("privacy/test_curator.py", "planning/test_ball_plans.py"),
    "privacy/guarantees.py": ("privacy/test_guarantees.py", "test_plans.py"),
    "protocol": ("protocol", "test_release_gate.py", "test_aggregation.py"),
    "release.py": ("test_release_gate.py", "protocol"),
    "estimate": ("estimate", "mechanisms/replace/test_decode.py", "test_suggested_bounds.py", "test_moments.py"),
}
"""What is mutated, and which tests must notice; those that notice most come first."""

IN_PROCESS = "not slow and not servers and not cluster and not processes"
STAGES = (f"{IN_PROCESS} and not long", f"{IN_PROCESS} and long")
PROCESSOR_SECONDS = 400  # who takes longer runs in circles, which counts as noticed
_PASSED = (0, 5)  # or there was no test; any other end is the mutant's doing, once all has passed without


def pass_all(tests: tuple[str, ...], **environment: str) -> bool:
    """Whether these tests pass, with some variables more in their environment."""
    return all(_pass(tests, stage, environment) for stage in STAGES)


def _pass(tests: tuple[str, ...], stage: str, environment: dict[str, str]) -> bool:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.mutation.changed", "-x", "-q", "-p", "no:cacheprovider"),
            *("--hypothesis-seed=0", "-m", stage, *(f"tests/{test}" for test in tests)),
        ],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS)),
    )
    if done.returncode not in _PASSED and not environment:
        print(f"{done.stdout.decode()[-2000:]}{done.stderr.decode()[-2000:]}")
    return done.returncode in _PASSED


def survives(mutant: Mutant, tests: tuple[str, ...]) -> bool:
    """Whether no test notices."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        file = Path(folder) / mutant.path.name
        file.write_text(mutant.source)
        environment = {MODULE: dotted(mutant.path), FILE: str(file)}
        if mutant.kernel and in_kernels_elsewhere(mutant.path):
            environment["NUMBA_CACHE_DIR"] = str(Path(folder) / "kernels")
        return pass_all(tests, **environment)


def dotted(path: Path) -> str:
    return ".".join(path.relative_to("src").with_suffix("").parts)


def in_kernels_elsewhere(path: Path) -> bool:
    """Whether a module with kernels imports this one."""
    texts = (other.read_text() for other in (ROOT / PACKAGE).rglob("*.py"))
    return any("@kernel" in text and f"from {dotted(path)} import" in text for text in texts)


def modules(part: str) -> list[Path]:
    """The part's modules; what a package imports is no place for mistakes."""
    place = ROOT / PACKAGE / part
    found = [place] if part.endswith(".py") else sorted(place.rglob("*.py"))
    return [path.relative_to(ROOT) for path in found if path.name != "__init__.py"]


def drawn(sample: int, seed: int, only: str) -> list[tuple[Mutant, str]]:
    """A random sample of all mutants, with the part they belong to."""
    parts = [part for part in TESTS if part.startswith(only)]
    everything = [(mutant, part) for part in parts for path in modules(part) for mutant in mutants_of(ROOT, path)]
    size = min(sample, len(everything))
    print(f"{size} of {len(everything)} mutants, seed {seed}", flush=True)
    return random.Random(seed).sample(everything, size)


def main() -> None:
    """Print who survives, and fail if anybody does who is not explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal(), help="another one every day")
    parser.add_argument("--only", default="", help="a part: " + ", ".join(TESTS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=55.0, help="begin no mutant after so many")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    known = tomllib.loads((Path(__file__).parent / "survivors.toml").read_text())["survivor"]
    explained = tuple(entry["mutant"] for entry in known)
    sample = drawn(options.sample, options.seed, options.only)
    needed = sorted({test for _, part in sample for test in TESTS[part]})
    if not pass_all(tuple(needed)):  # and all kernels are compiled
        raise SystemExit(f"{', '.join(needed)} fail without any mutant")

    def judged(drawn: tuple[Mutant, str]) -> str:
        mutant, part = drawn
        if time.monotonic() > end:
            return "not tried"
        if not survives(mutant, TESTS[part]):
            verdict = "noticed"
        else:
            verdict = "explained" if mutant.name.startswith(explained) else "SURVIVED"
        print(verdict, mutant.name if verdict == "SURVIVED" else "", flush=True)
        return verdict

    with ThreadPoolExecutor(options.workers) as threads:
        verdicts = list(threads.map(judged, sample))
    every = ("noticed", "explained", "SURVIVED", "not tried")
    print(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in every))
    sys.exit("SURVIVED" in verdicts)


if __name__ == "__main__":
    main()
