"""`--budget` where others draw: servers enter their task before they listen, and jobs on Spark say what is spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.budgets import BUDGET, RANDOMIZE, make_task
from tests.refusals import lacking
from tests.service.processes import Program, ServerProcess

import shufflesum as ss
from shufflesum.errors import DataError
from shufflesum.wire import Task

if TYPE_CHECKING:
    from tests.cli.conftest import Command

SERVERS = {"shuffler": ("--analyzer", "http://127.0.0.1:1"), "analyzer": ("--key", "a.key")}


@pytest.fixture
def task(command: Command, folder: Path, plan: ss.Plan) -> Task:
    """In a file, with the keys of its analyzer and of another one (b), and the secret of both servers."""
    for name in ("a", "b"):
        command("keygen", "-o", name)
    make_task(command)
    (folder / "secret").write_text("s" * 32)
    (folder / "secret").chmod(0o600)
    return Task.load("task.json")


def refuse_to_serve(folder: Path, arguments: list[str], problem: str = "budget-spent") -> None:
    refused = Program(folder / "refused", ["serve", *arguments])
    try:
        assert refused.wait(60) == 2
    finally:
        refused.kill()
    assert f'"problem": "{problem}"' in (folder / "refused").read_text()


@pytest.mark.servers
@pytest.mark.parametrize("role", ["shuffler", pytest.param("analyzer", marks=pytest.mark.slow)])
def test_a_server_enters_its_task_before_it_listens_or_does_not_start(
    command: Command, budget: ss.Budget, task: Task, folder: Path, role: str
) -> None:
    common = ["--task", f"{folder}/task.json", "--secret-file", f"{folder}/secret", "--budget", f"{folder}/budget.db"]
    own = [f"{folder}/a.key" if word == "a.key" else word for word in SERVERS[role]]
    arguments = [role, *common, *own, "--store", f"sqlite:{folder}/store"]
    with ServerProcess(folder / "log", arguments) as server:
        assert [entry.collection for entry in budget.entries] == [f"task {task.id}"]
        server.kill()
        server.restart()
        (entry,) = budget.entries
        assert (entry.begun, len(entry.runs)) == ((1, 1) if role == "shuffler" else (0, 0))
    arguments[-1] = f"sqlite:{folder}/other"
    if role == "shuffler":  # a new store would not know which rounds there were
        refuse_to_serve(folder, arguments)
        assert not list(folder.glob("other*"))
    # another task for the same people does not fit any more
    (folder / "task.json").unlink()
    make_task(command, "--expires", "2098-01-01T00:00:00Z")
    refuse_to_serve(folder, arguments)
    assert not (folder / "other").exists()


@pytest.mark.servers
@pytest.mark.usefixtures("task")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("analyzer", "--key", "b.key", "--store", "sqlite:store"), "key-mismatch"),
        (("analyzer", "--key", "a.key", "--store", "file:store"), "unknown-choice"),
        (("shuffler", *SERVERS["shuffler"], "--release-at", "1", "--store", "sqlite:store"), "out-of-range"),
        (("shuffler", *SERVERS["shuffler"], "--store", "file:store"), "unknown-choice"),
    ],
)
def test_a_server_that_cannot_serve_its_task_enters_nothing(
    budget: ss.Budget, folder: Path, arguments: tuple[str, ...], problem: str
) -> None:
    refuse_to_serve(folder, [*arguments, "--task", "task.json", "--secret-file", "secret", *BUDGET], problem)
    assert budget.entries == ()
    assert not Path("store").exists()


@pytest.mark.usefixtures("plan")
def test_what_spark_meets_on_its_way_says_what_is_spent(
    command: Command, budget: ss.Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows on a cluster are not gone through before."""

    def meet(*_: object, begin: Callable[[str], None], **__: object) -> None:
        begin("run")
        raise DataError("unknown-label", "row 7: the label is not among them", row=7)

    monkeypatch.setattr("shufflesum.batch.spark.randomize_folder", meet)
    said = command(*RANDOMIZE, "--engine", "spark", "-o", "reports").err
    (entry,) = budget.entries
    assert not lacking(said, "[unknown-label]", "row 7", entry.plan[:12], f"{budget.price(entry)} %")
