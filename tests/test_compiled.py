"""Kernels are compiled when they are called, once, and nothing heavy is imported before."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba.core import event

from shufflesum._compiled import tell_before_compiling

KERNELS = '''
from shufflesum._compiled import kernel

@kernel
def power(base: float, times: int, less: float = 1.0) -> float:
    """base ** times - less."""
    product = 1.0
    for _ in range(times):
        product *= base
    return product - less

@kernel
def powers(base: float, times: int) -> float:
    return power(base, 2, 0.0) + power(base, 3, 0.0) + power(base, times=times, less=0.0)
'''


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Two kernels, one of which calls the other, that no process has compiled before."""
    (tmp_path / "small_kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("small_kernels")
    del sys.modules["small_kernels"]


def compiled(call: Any) -> Counter[str]:
    """How often each kernel is compiled by a call."""
    with event.install_recorder("numba:compile") as recorder:
        call()
    names = [found.data["dispatcher"].py_func.__name__ for _, found in recorder.buffer if found.is_start]
    return Counter(name for name in names if name in ("power", "powers"))


def test_a_kernel_that_others_call_with_constants_is_compiled_once_for_all(kernels: ModuleType) -> None:
    assert compiled(lambda: kernels.powers(2.0, 4)) == {"powers": 1, "power": 1}
    assert kernels.powers(2.0, 4) == 4 + 8 + 16
    assert not compiled(lambda: kernels.power(2.0, 5, 1.0))
    assert kernels.power(2.0, times=5) == 31


def test_threads_that_call_first_compile_once(kernels: ModuleType) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert compiled(lambda: list(pool.map(kernels.powers, [2.0] * 4, [4] * 4))) == {"powers": 1, "power": 1}


def test_what_is_compiled_is_found_on_disk(kernels: ModuleType) -> None:
    assert kernels.powers(2.0, 1) == 4 + 8 + 2
    again = importlib.reload(kernels)
    assert not compiled(lambda: again.powers(2.0, 1))
    assert again.powers(2.0, 1) == 4 + 8 + 2


def test_before_the_first_compilation_one_is_told_once(kernels: ModuleType) -> None:
    told: list[str] = []
    tell_before_compiling(lambda: told.append("compiling"))
    assert not told
    kernels.power(2.0, 3)
    assert told == ["compiling"]
    kernels.powers(2.0, 3)
    kernels.powers(2.0, 3)
    assert told == ["compiling"]


def test_a_kernel_looks_like_its_function_and_travels_by_name(kernels: ModuleType) -> None:
    assert list(inspect.signature(kernels.power).parameters) == ["base", "times", "less"]
    assert kernels.power.__doc__ == "base ** times - less."
    assert pickle.loads(pickle.dumps(kernels.power)) is kernels.power


def loaded(program: str) -> set[str]:
    """The modules that a program of its own has imported at its end."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


def test_importing_the_library_is_light() -> None:
    modules = loaded("import shufflesum\nshufflesum.Randomizer, shufflesum.plan, shufflesum.aggregate")
    assert not modules & {"numba", "llvmlite", "pyarrow", "altair", "rich", "click", "scipy", "pandas"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "run rows.csv --epsilon 2 --delta 1e-4 --bounds 0:1",
        "privacy --users 1000 --levels 3 --noise-probability 0.2 --rounds 9 --delta 1e-4",
    ],
)
def test_a_first_command_compiles_no_kernel_twice(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n" + "0.25,0.75\n" * 500)
    program = (
        "import sys\nfrom numba.core import event\nfrom shufflesum.cli import main\n"
        f"sys.argv = ['shufflesum', *{arguments.split()}]\n"
        "with event.install_recorder('numba:compile') as recorder:\n"
        "    try: main()\n"
        "    except SystemExit as ended: assert not ended.code\n"
        "for _, found in recorder.buffer:\n"
        "    function = found.data['dispatcher'].py_func\n"
        "    if found.is_start and function.__module__.startswith('shufflesum.'):\n"
        "        print(function.__module__, function.__name__, file=sys.stderr)\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    times = Counter(done.stderr.splitlines())
    assert times
    assert set(times.values()) == {1}, times
