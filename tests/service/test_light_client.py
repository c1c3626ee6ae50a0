"""A device with the extra `client` alone, in a new environment: it takes part under every mechanism and domain."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.forked_processes import wait_until
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment

import shufflesum as ss
from shufflesum.service.client import Client, estimates_in, fetch_estimate

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::shufflesum.cautions.ArraysAreBetterWarning")]

ROOT = Path(__file__).parents[2]
USERS, LIGHT = 40, 20
LEVEL = 1 - 1e-7  # so that an interval misses the truth with probability at most 1e-7
ABSENT = "numba llvmlite starlette uvicorn psycopg sqlalchemy click rich pyarrow scipy"

SEND = """
import json, sys
from importlib.util import find_spec
from shufflesum.errors import MissingExtraError
from shufflesum.service.client import Client
from shufflesum.wire import Task

asked = json.load(open(sys.argv[1]))
found = [name for name in asked["absent"].split() if find_spec(name)]
assert not found, found
try:
    Task.load(asked["task"])
except MissingExtraError as error:
    assert "verify=False" in str(error), error
else:
    raise AssertionError("a guarantee was computed without numba")
with Client(Task.load(asked["task"], verify=False), contributions=asked["contributions"]) as client:
    for user, held in asked["users"].items():
        print(client.upload(held, user=user).contribution)
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with nothing but the extra."""
    folder = tmp_path_factory.mktemp("device")
    source = folder / "source"  # a copy, because building leaves files behind
    source.mkdir()
    for part in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / part, source / part)
    shutil.copytree(ROOT / "src", source / "src")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, f"{source}[client]"], check=True)
    return python


PEOPLE = [0.25, 0.75] * (USERS // 2)
CASES: dict[str, tuple[dict[str, Any], list[Any], list[float]]] = {
    "randomized-response": ({"shape": 2, "mechanism": "randomized-response"}, [[x, 0.5] for x in PEOPLE], [0.5, 0.5]),
    "randomized response, some coordinates": (
        {"shape": 4, "mechanism": ss.RandomizedResponse.Options(coordinates=2)},
        [[x] * 4 for x in PEOPLE],
        [0.5] * 4,
    ),
    "randomized response, a subset": (
        {"shape": 4, "mechanism": ss.RandomizedResponse.Options(coordinates=2, sampling="uniform")},
        [[x] * 4 for x in PEOPLE],
        [0.5] * 4,
    ),
    "randomized response, labels": (
        {"domain": ss.Categories(["a", "b"]), "mechanism": "randomized-response"},
        ["a", "b"] * 20,
        [0.5, 0.5],
    ),
    "noisy-counts": ({"shape": 2, "mechanism": "noisy-counts"}, [[x, 0.5] for x in PEOPLE], [0.5, 0.5]),
    "noisy counts, labels": (
        {"domain": ss.Categories(["a", "b"]), "mechanism": "noisy-counts"},
        ["a", "b"] * 20,
        [0.5, 0.5],
    ),
    "noisy counts, multi-choice": ({"domain": ss.MultiChoice(["a", "b"], max_choices=1)}, [["a"], []] * 20, [0.5, 0.0]),
    "noisy counts, groups": ({"domain": ss.GroupBy(["a", "b"])}, [["a", 0.2], ["b", 0.8]] * 20, [0.2, 0.8]),
    "noisy counts, words": ({"domain": ss.OpenVocabulary(8, 2, bytes(16))}, ["a", "b"] * 20, []),
    "ball": ({"domain": ss.L2Ball(2, clipping_norm=1.0)}, [[x, 0.5] for x in PEOPLE], [0.5, 0.5]),
}


@pytest.mark.parametrize(("question", "held", "truth"), CASES.values(), ids=CASES.keys())
def test_light_and_compiled_clients_are_counted_in_one_batch(
    question: dict[str, Any], held: list[Any], truth: list[float], device: Path, tmp_path: Path
) -> None:
    plan = ss.plan(users=USERS, epsilon=6.0, delta=1e-2, **question)
    names = [f"user {i}" for i in range(USERS)]
    with LossyProxy(lambda: shuffler.port, loss=0, seed=0) as front:
        deployment = Deployment(tmp_path, plan, shuffler_url=front.url)
        with deployment.analyzer("--processes", "1") as analyzer, deployment.shuffler(analyzer.url) as shuffler:
            asked = {
                "task": str(deployment.task_file),
                "contributions": str(tmp_path / "light contributions"),
                "users": dict(zip(names[:LIGHT], held[:LIGHT], strict=True)),
                "absent": ABSENT,
            }
            (tmp_path / "asked.json").write_text(json.dumps(asked))
            done = subprocess.run(
                [device, "-I", "-c", SEND, tmp_path / "asked.json"], capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stdout.split()) == (0, ["accepted"] * LIGHT), done.stderr
            with Client(deployment.task, contributions=tmp_path / "contributions") as client:
                client._randomizer_for(1, compiled=True)
                for name, row in zip(names[LIGHT:], held[LIGHT:], strict=True):
                    client.upload(row, user=name)
            wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1, 120)
            document = fetch_estimate(deployment.task, analyzer.url)
    (estimate,) = estimates_in(deployment.task, document).values()
    assert (estimate.users, estimate.rejected) == (USERS, 0)
    if truth:
        low, high = estimate.confidence_interval(LEVEL, simultaneous=True)  # type: ignore[attr-defined]
        assert np.all((low <= truth) & (truth <= high))
