from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.mutation.__main__ import PACKAGE, PARTS, ROOT, files, in_kernels_elsewhere, modules
from tests.mutation.mutants import mutants_of

GATE = PACKAGE / "release.py"
LAWS = PACKAGE / "privacy/engine/laws.py"
JUDGED = """
import math
from pathlib import Path
from tests.mutation.__main__ import ROOT, mutants_of, reached_by, verdicts, warm_up

reached = reached_by(["tests/test_release_gate.py"], 1, None)
found = {mutant.after: mutant for mutant in mutants_of(ROOT, Path("src/shufflesum/release.py"))}
wrong, harmless = found["if counts.users <= plan.users:"], found["warnings.warn(warning, stacklevel=4)"]
warm_up()
count = verdicts([wrong, harmless], reached, (), 1, math.inf)
print(f"{count['noticed']} noticed, {count['SURVIVED']} survived")
"""


def test_mutants_differ_in_one_line_and_are_python() -> None:
    for path in (GATE, LAWS):
        found = mutants_of(ROOT, path)
        assert len(found) > 10
        assert len({mutant.source for mutant in found}) == len(found)
        for mutant in found:
            ast.parse(mutant.source)
            assert mutant.before != mutant.after
    tail = f"{LAWS}:_fill: return used, total, term * ratio / (1.0 - ratio)"
    (wrong,) = [mutant for mutant in found if mutant.name == f"{tail} -> {tail.split(': ')[1].replace('/', '*')}"]
    assert wrong.kernel


def test_what_keeps_a_bound_safe_is_taken_away_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text(
        "def bound(x):\n    return x * (1.0 + 16.0 * ULP) + slack(3) + 2.0**-50 + 1e-12\n"
    )
    found = [mutant.after for mutant in mutants_of(tmp_path, Path("some.py")) if mutant.charge]
    assert found == [
        "return x * (1.0 + 0.0) + slack(3) + 2.0**-50 + 1e-12",
        "return x * (1.0 + 16.0 * ULP) + 0.0 + 2.0**-50 + 1e-12",
        "return x * (1.0 + 16.0 * ULP) + slack(3) + 0.0 + 1e-12",
        "return x * (1.0 + 16.0 * ULP) + slack(3) + 2.0**-50 + 0.0",
    ]


def test_kernels_of_other_files_are_known() -> None:
    assert {"blanket", "noisy_slots"} <= in_kernels_elsewhere(LAWS)
    assert not in_kernels_elsewhere(PACKAGE / "privacy/noisy_counts.py")


def test_every_part_and_its_tests_exist() -> None:
    assert all(modules(part) for part in PARTS)
    assert all((ROOT / file).exists() for file in files())


def test_every_survivor_that_is_explained_is_still_a_mutant() -> None:
    known = tomllib.loads((Path(__file__).parent / "survivors.toml").read_text())["survivor"]
    names = {
        path: [mutant.name for mutant in mutants_of(ROOT, path)]
        for path in {Path(e["mutant"].split(":")[0]) for e in known}
    }
    for entry in known:
        assert set(entry) == {"mutant", "why"}
        assert any(name.startswith(entry["mutant"]) for name in names[Path(entry["mutant"].split(":")[0])]), entry


@pytest.mark.slow
def test_a_gate_that_lets_too_few_users_through_is_noticed_and_a_harmless_change_is_not() -> None:
    """In a process of its own, as the runner forks before anything of the package is imported."""
    done = subprocess.run([sys.executable, "-c", JUDGED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "1 noticed, 1 survived"
