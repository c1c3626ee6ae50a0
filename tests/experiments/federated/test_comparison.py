from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.refusals import refusal

from experiments.__main__ import command
from experiments.federated import comparison
from experiments.federated.comparison import Comparison, Federated, compare
from experiments.federated.methods import CURATOR, METHODS, NO_PRIVACY, OURS, Setting
from experiments.federated.runs import FILE_NAME
from shufflesum.errors import FileError

pytestmark = pytest.mark.slow  # its parts have tests of their own

SMALL = Setting(users=400, rounds=4, clipping_norm=0.5, epsilon=2.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    folder = tmp_path_factory.mktemp("federated") / "report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "_MADE_UP", SMALL)
        return folder, compare(Federated(folder, seeds=2, quick=True), lambda percent: None)


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "figures" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_method_is_trained_on_the_same_clients_and_drawn(finished: tuple[Path, Comparison]) -> None:
    folder, found = finished
    assert found.measured == 2 * (len(METHODS) + 3)
    rows = table(folder, "federated_softmax")
    assert {row["line"] for row in rows} == set(METHODS)
    assert {int(row["round"]) for row in rows} == set(range(1, SMALL.rounds + 1))
    for row in rows:
        assert 0 <= float(row["lowest"]) <= float(row["accuracy"]) <= float(row["highest"]) <= 1
    last = {row["line"]: float(row["accuracy"]) for row in rows if int(row["round"]) == SMALL.rounds}
    assert last[NO_PRIVACY] > 0.8  # ten labels at random are 0.1
    assert len(table(folder, "federated_softmax_two_labels")) == 3 * SMALL.rounds
    page = found.page.read_text(encoding="utf-8")
    assert "Federated learning with a server nobody has to trust" in page
    assert "made-up pictures, not MNIST" in page


def test_the_summary_has_accuracies_costs_the_papers_formula_and_what_others_published(
    finished: tuple[Path, Comparison],
) -> None:
    folder, found = finished
    words = " ".join(found.summary)
    for name in (CURATOR, OURS):
        assert re.search(rf"{re.escape(name)} 0\.\d{{4}} ± 0\.\d{{4}} \(2 seeds\)", words)
    assert "published noise probability" in words
    assert "76.7%" in words
    assert "87.9%" in words
    assert "FLAME" in words
    (costs,) = table(folder, "costs")
    assert int(costs["bytes sealed"]) == 13 * int(costs["bytes raw"]) == 52 * int(costs["reports"])


def test_a_second_run_trains_nothing_again(finished: tuple[Path, Comparison], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, found = finished
    monkeypatch.setattr(comparison, "_MADE_UP", SMALL)
    again = compare(Federated(folder, seeds=2, quick=True), lambda percent: None)
    assert (again.measured, again.reused) == (0, found.measured)


def test_curves_of_other_data_and_damaged_ones_are_kept_and_refused(
    finished: tuple[Path, Comparison], tmp_path: Path
) -> None:
    text = (finished[0] / FILE_NAME).read_text(encoding="utf-8")
    content = json.loads(text)
    for damaged, problem in (
        (text[:-20], "damaged"),
        (json.dumps(content | {"fingerprint": "0" * 64}), "measurements-mismatch"),
    ):
        (tmp_path / FILE_NAME).write_text(damaged)
        with refusal(problem, error=FileError):
            compare(Federated(tmp_path, quick=True), lambda percent: None)
        assert (tmp_path / FILE_NAME).read_text() == damaged
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "mine.txt").write_text("mine")
    with refusal("exists", error=FileError):
        compare(Federated(tmp_path / "else", quick=True), lambda percent: None)


def test_the_command_prints_what_the_page_says_in_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_MADE_UP", SMALL)
    done = CliRunner().invoke(command, ["federated", "--quick", "-o", str(tmp_path / "report")])
    assert (done.exit_code, done.exception) == (0, None)
    assert (tmp_path / "report" / "report.html").exists()
