"""Change one thing at a time in what privacy and estimates rest on, and see whether any test notices.

    python -m tests.mutation [--sample 200] [--seed N] [--only privacy/engine] [--charges] [--workers 2] [--minutes 55]

First all tests run once, unchanged, to see which functions each of them reaches (`reach.py`; `--reached FILE` keeps
that for the next run). Then each mutant meets those that reach its function, beginning with its own part's and the
shortest, up to 40 seconds of them. Those that `survivors.toml` explains are only counted. When the time is up, those
not yet begun are not tried: the sample is in random order, so those tried are a sample, too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from tests.mutation.changed import judge, warm_up
from tests.mutation.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
PACKAGE = Path("src/shufflesum")
PARTS = (
    *("privacy", "protocol.py", "release.py", "estimate.py", "budget.py"),
    *(
        "domains/counts.py",
        *(
            f"domains/{name}/estimate.py"
            for name in ("arrays", "group_by", "l2_ball", "open_vocabulary", "unlisted_labels")
        ),
    ),
    *("discovery.py", "mechanisms/partition_selection.py"),
)
TESTS = (
    *("privacy", "estimate", "protocol", "test_release_gate.py", "test_aggregation.py", "test_plans.py"),
    *("planning/test_l2_ball_plans.py", "mechanisms/randomized_response/test_decode.py"),
    *("test_suggested_bounds.py", "test_moments.py", "test_discovery.py", "test_cautions.py"),
    *("test_budget.py", "test_budget_ask.py", "test_budget_files.py", "test_budget_model.py"),
)
"""What is mutated, and which tests must notice."""

SECONDS = 40.0  # of tests, as long as they take by themselves; who takes far longer runs in circles

Reached = dict[str, list[tuple[float, str]]]
"""The tests of each function, with how long they take."""


def dotted(path: Path) -> str:
    return ".".join(path.relative_to("src").with_suffix("").parts)


def modules(part: str) -> list[Path]:
    """The part's modules; what a package imports is no place for mistakes."""
    place = ROOT / PACKAGE / part
    found = [place] if part.endswith(".py") else sorted(place.rglob("*.py"))
    return [path.relative_to(ROOT) for path in found if path.name != "__init__.py"]


def drawn(sample: int, seed: int, only: str, charges: bool) -> list[Mutant]:
    """A random sample of all mutants."""
    paths = [path for part in PARTS for path in modules(part) if str(path.relative_to(PACKAGE)).startswith(only)]
    everything = [mutant for path in paths for mutant in mutants_of(ROOT, path) if mutant.charge or not charges]
    size = min(sample, len(everything))
    print(f"{size} of {len(everything)} mutants, seed {seed}", flush=True)
    return random.Random(seed).sample(everything, size)


def reached_by(tests: list[str], workers: int, kept: Path | None) -> Reached:
    """Which tests reach which function, and which any function of a module; all must pass."""
    if kept is None or not kept.exists():
        with tempfile.TemporaryDirectory(prefix="reached-") as folder:
            files = [Path(folder) / f"{worker}.json" for worker in range(workers)]
            runs = [
                subprocess.Popen(
                    [sys.executable, "-m", "tests.mutation.reach", file, *tests[worker::workers]], cwd=ROOT
                )
                for worker, file in enumerate(files)
            ]
            codes = [run.wait() for run in runs]
            if any(codes):
                raise SystemExit("tests fail without any mutant")
            everything = {test: found for file in files for test, found in json.loads(file.read_text()).items()}
        if kept is not None:
            kept.write_text(json.dumps(everything))
    else:
        everything = json.loads(kept.read_text())
    reached: Reached = defaultdict(list)
    for test, (seconds, functions) in everything.items():
        classes = {function.rpartition(".")[0] for function in functions}  # whose fields are reached with a method
        for function in {*functions, *classes, *(f"{function.split(':')[0]}:module" for function in functions)}:
            reached[function].append((seconds, test))
    return reached


def chosen(mutant: Mutant, reached: Reached) -> list[str]:
    """Of the tests that reach it, its own part's first, of these those of roundings, then the shortest, up to a sum."""
    part = f"tests/{mutant.path.relative_to(PACKAGE).parent}/"
    found = sorted(
        reached.get(f"{dotted(mutant.path)}:{mutant.function}", []),
        key=lambda test: (not test[1].startswith(part), not re.search(r"charges|roundings", test[1]), test[0]),
    )
    total = 0.0
    tests: list[str] = []
    for seconds, test in found:
        if total + seconds <= SECONDS or not tests:
            total += seconds
            tests.append(test)
    return tests


def in_kernels_elsewhere(path: Path) -> set[str]:
    """The modules with kernels that import this one, or such a module: what is kept of theirs is compiled from it."""
    texts = {other: other.read_text() for other in (ROOT / PACKAGE).rglob("*.py")}
    found: set[Path] = set()
    while True:
        names = [dotted(path), *(dotted(other.relative_to(ROOT)) for other in found)]
        new = {
            other
            for other, text in texts.items()
            if "@kernel" in text and any(f"from {name} import" in text for name in names)
        } - found
        if not new:
            return {other.stem for other in found}
        found |= new


def verdicts(
    sample: list[Mutant], reached: Reached, explained: tuple[str, ...], workers: int, end: float
) -> Counter[str]:
    """Judge all, each in a process of its own."""
    count: Counter[str] = Counter()
    running: dict[int, tuple[Mutant, tempfile.TemporaryDirectory[str]]] = {}

    def ended() -> None:
        process, status = os.wait()
        mutant, folder = running.pop(process)
        folder.cleanup()
        if mutant.before == mutant.after and status:
            raise SystemExit(f"{mutant.path} fails its tests as it is")
        if mutant.before != mutant.after:
            count["noticed" if status else "SURVIVED"] += 1
            print("noticed" if status else f"SURVIVED {mutant.name}", flush=True)

    def begin(mutant: Mutant, tests: list[str]) -> None:
        while len(running) >= workers:
            ended()
        folder = tempfile.TemporaryDirectory(prefix="mutant-")
        file = Path(folder.name) / mutant.path.name
        file.write_text(mutant.source)
        stale = in_kernels_elsewhere(mutant.path) if mutant.kernel else set()
        running[judge(dotted(mutant.path), file, tests, stale, SECONDS)] = mutant, folder

    for mutant in sample:  # who notices nothing but changes lets the first that has tests pass, unchanged
        if tests := chosen(mutant, reached):
            begin(replace(mutant, after=mutant.before, source=(ROOT / mutant.path).read_text()), tests)
            break
    for mutant in sample:
        if mutant.name.startswith(explained):
            count["explained"] += 1
        elif time.monotonic() > end:
            count["not tried"] += 1
        elif not (tests := chosen(mutant, reached)):
            count["SURVIVED"] += 1
            print(f"SURVIVED, reached by no test: {mutant.name}", flush=True)
        else:
            begin(mutant, tests)
    while running:
        ended()
    return count


def main() -> None:
    """Print who survives, and fail if anybody does who is not explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal(), help="another one every day")
    parser.add_argument("--only", default="", help="a folder or module: " + ", ".join(PARTS))
    parser.add_argument("--charges", action="store_true", help="only those without what keeps a bound safe")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=55.0, help="begin no mutant after so many")
    parser.add_argument("--reached", type=Path, help="where to keep which tests reach what; read if it is there")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    known = tomllib.loads((Path(__file__).parent / "survivors.toml").read_text())["survivor"]
    explained = tuple(entry["mutant"] for entry in known)
    sample = drawn(options.sample, options.seed, options.only, options.charges)
    reached = reached_by(files(), options.workers, options.reached)
    warm_up()
    count = verdicts(sample, reached, explained, options.workers, end)
    print(", ".join(f"{count[verdict]} {verdict}" for verdict in ("noticed", "explained", "SURVIVED", "not tried")))
    sys.exit(bool(count["SURVIVED"]))


def files() -> list[str]:
    """The modules of all tests that must notice."""
    places = [ROOT / "tests" / test for test in TESTS]
    found = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("test_*.py")))]
    return [str(file.relative_to(ROOT)) for file in found]


if __name__ == "__main__":
    main()
