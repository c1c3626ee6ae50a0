"""Plans and outputs that `run` refuses: exit code 2, one line that names the value and the knob, nothing written."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.plan_builders import replace_of, with_guarantee, with_mechanism
from tests.refusals import lacking

import shufflesum as ss

if TYPE_CHECKING:
    from tests.cli.conftest import Command, Refused


# The plan


@pytest.fixture
def plan(folder: Path) -> ss.Plan:
    plan = ss.plan(
        users=1000, shape=3, epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=3)
    )
    (folder / "plan.json").write_text(plan.to_json())
    return plan


@pytest.mark.parametrize(
    "option",
    [
        "--epsilon 1",
        "--delta 1e-6",
        "--bounds 0:1",
        "--coordinates 1",
        "--max-reports 1",
        "--levels 3",
        "--sampling stratified",
        "--accountant exact",
        "--honest-fraction 1",
        "--rounds 1",
    ],
)
def test_a_plan_fixes_its_options_even_at_their_defaults(
    refused: Refused, good: str, plan: ss.Plan, option: str
) -> None:
    name, *values = option.split()
    said = refused(good, "--plan", "plan.json", name, *values)
    assert lacking(said, "[conflicting-arguments]", name, "--plan") == []


def test_too_few_rows_for_the_plan(refused: Refused, folder: Path, plan: ss.Plan) -> None:
    np.save(folder / "x.npy", np.zeros((999, 3)))
    said = refused("x.npy", "--plan", "plan.json")
    assert lacking(said, "[too-few-users]", "999 rows", "1000 users", "--plan") == []


@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 1), (1, 3)])
def test_a_plan_for_another_shape(refused: Refused, folder: Path, plan: ss.Plan, shape: tuple[int, ...]) -> None:
    np.save(folder / "x.npy", np.zeros((1000, *shape)))
    said = refused("x.npy", "--plan", "plan.json")
    assert lacking(said, "[wrong-shape]", f"shape {shape}", "(3,)", "--columns", "--plan") == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mechanism.noise_probability", 0.0),
        ("guarantee.epsilon", 0.1),
        ("guarantee.users", 10),
        ("domain.bounds", [0.0, 0.5]),
    ],
)
def test_a_plan_changed_by_hand(
    refused: Refused, folder: Path, good: str, plan: ss.Plan, field: str, value: Any
) -> None:
    changed = json.loads(plan.to_json())
    part, name = field.split(".")
    changed[part][name] = value
    (folder / "plan.json").write_text(json.dumps(changed))
    said = refused(good, "--plan", "plan.json")
    assert lacking(said, "[changed-afterwards]", "plan.json", f"id {plan.id[:12]}") == []


def test_a_plan_whose_figures_do_not_follow_from_its_parameters(
    refused: Refused, folder: Path, good: str, plan: ss.Plan
) -> None:
    (folder / "plan.json").write_text(json.dumps(json.loads(plan.to_json()) | {"dimension": 2}))
    assert lacking(refused(good, "--plan", "plan.json"), "[changed-afterwards]", "dimension 2", "give 3") == []


def test_a_plan_that_claims_more_privacy_than_it_gives(
    refused: Refused, folder: Path, good: str, plan: ss.Plan
) -> None:
    less = math.floor(replace_of(plan).noise_probability * 2.0**52) / 2.0**53
    forged = with_mechanism(plan, noise_probability=less)
    (folder / "plan.json").write_text(forged.to_json())
    said = refused(good, "--plan", "plan.json")
    assert lacking(said, "[claim-not-confirmed]", "plan.json", "epsilon = 1.0", "delta") == []
    unproven = with_guarantee(plan, accountant="none")
    (folder / "plan.json").write_text(unproven.to_json())
    assert lacking(refused(good, "--plan", "plan.json"), "[no-guarantee]", "plan.json") == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "\x00", '{"format": "shufflesum-plan-9"}'])
def test_a_file_that_is_no_plan(refused: Refused, folder: Path, good: str, text: str) -> None:
    (folder / "plan.json").write_text(text)
    problem = "[format-mismatch]" if text[1:2] in ("}", '"') else "[malformed]"
    assert lacking(refused(good, "--plan", "plan.json"), problem, "plan.json", "shufflesum plan -o FILE") == []


def test_a_plan_file_of_the_format_before_is_refused_by_name(refused: Refused, folder: Path, good: str) -> None:
    old = Path(__file__).parent.parent / "vectors" / "old_plan_1.json"
    (folder / "plan.json").write_text(old.read_text())
    said = refused(good, "--plan", "plan.json")
    assert lacking(said, "[format-mismatch]", "plan.json", "'shufflesum-plan-1'", "shufflesum plan -o FILE") == []


def test_a_plan_that_cannot_be_read(refused: Refused, good: str) -> None:
    assert lacking(refused(good, "--plan", "nowhere.json"), "[unreadable]", "nowhere.json") == []
    assert lacking(refused(good, "--plan", "out"), "[unreadable]", "out") == []


def test_the_round_after_the_last_is_refused_and_nothing_is_written(
    refused: Refused, command: Command, folder: Path, good: str
) -> None:
    plan = ss.plan(
        users=1000,
        shape=3,
        epsilon=1.0,
        delta=1e-6,
        mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=3),
        rounds=2,
    )
    (folder / "plan.json").write_text(plan.to_json())
    counted = ("--plan", "plan.json", "--rounds-file", "rounds.db")
    assert command("run", good, *counted, "--json").estimate["round"] == 1
    assert lacking(command("run", good, *counted).out, "round 2 of 2") == []
    assert lacking(refused(good, *counted), "[rounds-spent]", "rounds.db", "all 2 rounds") == []
    (folder / "rounds.db").write_text("{}")
    assert lacking(refused(good, *counted), "[damaged]", "rounds.db") == []
    said = refused(good, "--epsilon", "1", "--delta", "1e-6", "--rounds-file", "rounds.db")
    assert lacking(said, "[missing-argument]", "--rounds-file", "--plan") == []


# The outputs


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ("-o missing/e.json --plot out/p.svg", ("[unwritable]", "missing/e.json")),
        ("-o out/e.json --plot missing/p.svg", ("[unwritable]", "missing/p.svg")),
        ("-o good.npy/e.json", ("[unwritable]", "good.npy/e.json")),
        ("-o out/e.txt --plot out/p.svg", ("[unknown-file-type]", "out/e.txt", "'.txt'", ".json, .csv")),
        ("-o out/e.json --plot out/p.pdf", ("[unknown-file-type]", "out/p.pdf", "'.pdf'", ".png, .svg, .html")),
        ("-o out", ("[unknown-file-type]", "out:", "''")),
        ("-o good.csv", ("[unwritable]", "good.csv")),
        ("-o plan.json --plot out/p.svg", ("[conflicting-arguments]", "plan.json")),
    ],
)
def test_an_output_that_cannot_be_written(
    refused: Refused, folder: Path, good: str, plan: ss.Plan, outputs: str, said: tuple[str, ...]
) -> None:
    (folder / "good.csv").mkdir()
    assert lacking(refused(good, "--plan", "plan.json", outputs=tuple(outputs.split())), *said) == []


def test_the_data_is_never_replaced_by_the_estimate(refused: Refused, folder: Path) -> None:
    (folder / "x.csv").write_text("a\n" + "0.5\n" * 100)
    (folder / "link.csv").symlink_to("x.csv")
    for output in ("x.csv", "out/../x.csv", "link.csv"):
        said = refused("x.csv", "--epsilon", "1", "--delta", "1e-6", "--coordinates", "1", outputs=("-o", output))
        assert lacking(said, "[conflicting-arguments]", str(Path(output))) == []
