from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tests.pages.elements import Elements

if TYPE_CHECKING:
    from tests.cli.conftest import Command

PLAN = ("--users", "500", "--dimension", "2", "--epsilon", "4", "--delta", "1e-3", "--digits", "3")


def test_a_plan_is_tried_on_made_up_users(command: Command, folder: Path) -> None:
    done = command(
        "simulate", *PLAN, "--repeats", "3", "--plot", "try.svg", "--report", "try.html", "--distribution", "skewed"
    )
    assert done.code == 0, done.err
    for words in ("500 users, made up: numbers skewed", "error to expect, worst data", "tried 3 times", "reports"):
        assert words in done.out
    assert "True mean" in (folder / "try.svg").read_text()
    page = Elements((folder / "try.html").read_text())
    assert "A simulation:" in page.text
    assert "shufflesum simulate --users 500" in page.text
    assert "If the shuffler and the analyzer collude" in page.text
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert not page.tags & {"script", "link", "iframe"}


def test_a_plan_file_is_tried_on_public_data(command: Command, folder: Path) -> None:
    np.save(folder / "public.npy", np.full((600, 2), 0.25))
    assert command("plan", *PLAN, "-o", "plan.json").code == 0
    found = command("simulate", "--plan", "plan.json", "--data", "public.npy", "--repeats", "2", "--json").document
    assert found["simulation"]["users"] == 600
    assert found["simulation"]["intervals"] == 4
    assert found["simulation"]["data"] == "public data of public.npy"


def test_shape_names_and_users_are_those_of_the_file(command: Command, folder: Path) -> None:
    (folder / "public.csv").write_text("age;height\n" + "0,5;0,25\n" * 500)
    privacy = ("--epsilon", "4", "--delta", "1e-3", "--digits", "3", "--repeats", "1", "--decimal", ",")
    found = command("simulate", "--data", "public.csv", *privacy, "--json").document
    assert found["simulation"]["users"] == 500
    assert found["plan"]["domain"]["columns"] == ["age", "height"]


def test_labels_of_a_file_and_made_up_ones(command: Command, folder: Path) -> None:
    (folder / "public.csv").write_text("answer\n" + "yes\nno\n" * 250)
    plan = ("--users", "500", "--labels", "yes,no", "--epsilon", "4", "--delta", "1e-3", "--repeats", "2")
    own = command("simulate", "--data", "public.csv", "--column", "answer", *plan, "--report", "own.html")
    assert own.code == 0, own.err
    assert command("simulate", *plan, "--distribution", "uniform").code == 0


def test_what_makes_no_sense_is_refused(command: Command, folder: Path) -> None:
    np.save(folder / "few.npy", np.zeros((10, 2)))
    assert command("plan", *PLAN, "-o", "plan.json").code == 0
    for problem, *arguments in (
        ("conflicting-arguments", "--plan", "plan.json", "--users", "5"),
        ("conflicting-arguments", "--plan", "plan.json", "--data", "few.npy", "--distribution", "normal"),
        ("conflicting-arguments", *PLAN, "--candidates", "plan.json"),
        ("too-few-users", "--plan", "plan.json", "--data", "few.npy"),
        ("missing-argument", "--users", "5", "--dimension", "2"),
        ("unknown-file-type", *PLAN, "--report", "try.pdf"),
    ):
        done = command("simulate", *arguments)
        assert done.code == 2
        assert f"[{problem}]" in done.err
