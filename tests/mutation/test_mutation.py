from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
from tests.mutation.__main__ import PACKAGE, ROOT, TESTS, in_kernels_elsewhere, modules, survives
from tests.mutation.mutants import mutants_of

GATE = PACKAGE / "release.py"
LAWS = PACKAGE / "privacy/engine/laws.py"


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


def test_kernels_of_other_files_are_known() -> None:
    assert in_kernels_elsewhere(LAWS)
    assert not in_kernels_elsewhere(PACKAGE / "privacy/add/cell.py")


def test_every_part_and_its_tests_exist() -> None:
    for part, tests in TESTS.items():
        assert modules(part)
        assert all((ROOT / "tests" / test).exists() for test in tests)


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
    found = {mutant.after: mutant for mutant in mutants_of(ROOT, GATE)}
    tests = ("test_release_gate.py",)
    assert not survives(found["if counts.users <= plan.users:"], tests)
    assert survives(found["warnings.warn(warning, stacklevel=4)"], tests)
