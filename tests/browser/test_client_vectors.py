"""The browser client against the fixed examples for other implementations, in both directions."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.browser.node import Node, needs_node
from tests.refusals import refusal

from shufflesum.cells import BLANK
from shufflesum.sealing import Opener
from shufflesum.wire import Task, TaskError, Upload

pytestmark = needs_node

VECTORS = Path(__file__).parents[1] / "vectors"
GOLDEN = [
    "golden",
    "golden_noisy_counts",
    "golden_noisy_slots",
    "golden_open_vocabulary",
    "golden_multi_choice",
    "golden_group_by",
]
POSITIONS = ["golden_positions", "golden_positions_groups"]
YES, NO = 0, 2**32 - 1
"""Words that make a coin of any chance but 0 and 1 show heads, and tails."""


def vector(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_bytes())
    return document


@pytest.mark.parametrize("name", GOLDEN + POSITIONS)
def test_a_golden_task_has_its_id(name: str, node: Node) -> None:
    text = (VECTORS / f"{name}_task.json").read_text()
    assert node.ask("parse", text=text) == vector(f"{name}_upload")["task_id"]
    # as any other program may write it: 1.0 as 1, 1e-06 as 0.000001, in another order
    again = json.dumps({key: json.loads(text)[key] for key in sorted(json.loads(text), reverse=True)})
    written = again.replace("1e-06", "0.000001").replace(": 1.0,", ": 1,").replace("-1.0,", "-1,")
    assert written != again
    assert node.ask("parse", text=written) == vector(f"{name}_upload")["task_id"]


BAD_TASKS = sorted(path.stem for path in VECTORS.glob("bad_task_*.json"))
NOT_COMPUTED = {"bad_task_false_claim", "bad_task_plan_prediction"}
"""What takes the accountant to tell: the servers refuse them, and `shufflesum task show`."""


@pytest.mark.parametrize("name", sorted(set(BAD_TASKS) - NOT_COMPUTED))
def test_a_bad_task_is_refused_as_everywhere(name: str, node: Node) -> None:
    bad = vector(name)
    assert node.problem("parse", text=json.dumps(bad["task"])) == bad["problem"]


@pytest.mark.parametrize("name", sorted(NOT_COMPUTED))
def test_a_false_claim_is_told_by_the_others(name: str, node: Node) -> None:
    bad = vector(name)
    assert node.ask("parse", text=json.dumps(bad["task"])) == bad["task"]["id"]
    with refusal(bad["problem"], error=TaskError):
        Task.from_json(json.dumps(bad["task"]))


@settings(max_examples=60)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_floating_point_numbers_are_written_as_python_does(node: Node, values: list[float]) -> None:
    assert node.ask("floats", values=values) == [json.dumps(value) for value in values]


def test_numbers_of_all_magnitudes_are_written_as_python_does(node: Node) -> None:
    bits = np.random.default_rng(0).integers(0, 2**64, 50_000, dtype=np.uint64)
    values = [float(value) for value in bits.view(np.float64) if np.isfinite(value)]
    values += [float(f"{digits}e{power}") for digits in (1, 12, 999, -5, 123456789) for power in range(-12, 24)]
    values += [0.0, -0.0, 5e-324, 1.7976931348623157e308, 2.0**53, 1e16, 9999999999999998.0, 0.1 + 0.2]
    assert node.ask("floats", values=values) == [json.dumps(value) for value in values]


TEXT = st.text(st.characters(codec=None, categories=None))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "Z", "é", "name"]), inner),
    max_leaves=10,
)


@settings(max_examples=100)
@given(st.lists(VALUES, max_size=10))
def test_other_values_are_written_as_python_does(node: Node, values: list[Any]) -> None:
    written = [json.dumps(value, sort_keys=True, separators=(",", ":")) for value in values]
    assert node.ask("canonical", values=values) == written


def words_of(task: dict[str, Any], golden: dict[str, Any]) -> list[int]:
    """What to draw, in the client's order, so that its upload is the golden one: cells, then the order of reports."""
    mechanism, domain = task["plan"]["mechanism"], task["plan"]["domain"]
    made = cells = [report["cell"] for report in golden["reports"]]
    match mechanism["kind"]:
        case (
            "randomized-response"
        ):  # one coordinate of each block of two; the value is on the grid; replaced; by which value
            made = sorted(cells)
            values = mechanism["levels"] + 1
            drawn = [cell // values % 2 for cell in made]
            for cell in made:
                drawn += [YES, cell % values]
        case "noisy-slots":
            drawn = [golden["function"]] if domain["kind"] == "open-vocabulary" else []
            for cell in cells[1:]:
                drawn += [NO] if cell == BLANK else [YES, cell]
        case _:
            drawn = noise_words(domain, mechanism, golden["dummy_cells"])
    return drawn + order_words(made, cells)


def order_words(made: list[int], wanted: list[int]) -> list[int]:
    """What to draw so that reports come in another order: each place takes one of those that are left."""
    left, drawn = list(made), []
    for place, cell in enumerate(wanted):
        drawn.append(left.index(cell, place) - place)
        left[place], left[place + drawn[-1]] = left[place + drawn[-1]], left[place]
    return drawn


def noise_words(domain: dict[str, Any], mechanism: dict[str, Any], noise: list[int]) -> list[int]:
    """Heads in as many trials of a cell as it has noise; cells class by class, in order."""
    digits, trials = mechanism["digits"], mechanism["trials"]
    groups = len(domain["labels"]) if domain["kind"] == "group-by" else 1
    coordinates = (
        domain["labels"]
        if domain["kind"] == "multi-choice"
        else math.prod(domain.get("values", domain)["structure"]["shape"])
    )
    size = coordinates * digits + (domain["kind"] == "group-by")
    drawn: list[int] = []
    for number, count in enumerate(trials):
        for group in range(groups):
            own = range(coordinates) if number < digits else range(1)
            for place in own:
                cell = group * size + (place * digits + number if number < digits else size - 1)
                heads = noise.count(cell)
                drawn += [YES] * heads + [NO] * (count - heads)
    return drawn


def held_of(name: str, task: dict[str, Any], golden: dict[str, Any]) -> Any:
    if "held" in golden:
        return golden["held"]
    if name == "golden":
        return [0.0] * 4  # replaced, whatever it is
    low, high = task["plan"]["domain"]["bounds"]
    top = 2 ** task["plan"]["mechanism"]["digits"] - 1
    return [low + (high - low) * value / top for value in golden["rounded_values"]]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_golden_upload_is_made_byte_for_byte(name: str, node: Node) -> None:
    task, golden = vector(f"{name}_task"), vector(f"{name}_upload")
    script = {
        "words": words_of(task, golden),
        "uploadId": golden["upload_id"],
        "keys": [report["ephemeral_private_key"] for report in golden["reports"]],
    }
    held = held_of(name, task, golden)
    made = node.ask("upload", task=task, held=held, round=golden["round"], script=script)
    assert made == golden["upload"]


@pytest.mark.parametrize("name", POSITIONS)
def test_the_golden_upload_at_positions_is_made_byte_for_byte(name: str, node: Node) -> None:
    """Nothing is drawn but seals and the upload id: users send the truth, in the order of positions."""
    task, golden = vector(f"{name}_task"), vector(f"{name}_upload")
    keys = [report["ephemeral_private_key"] for report in golden["reports"]]
    script = {"words": [], "uploadId": golden["upload_id"], "keys": keys}
    made = node.ask("upload", task=task, held=golden["held"], round=golden["round"], script=script)
    assert made == golden["upload"]


@pytest.mark.parametrize("name", GOLDEN)
def test_what_it_seals_python_opens(name: str, node: Node) -> None:
    """With its own randomness: all reports open, they are cells of the plan, and no two seals are alike."""
    task, golden = Task.load(VECTORS / f"{name}_task.json"), vector(f"{name}_upload")
    key = X25519PrivateKey.from_private_bytes(bytes.fromhex(golden["analyzer_private_key"]))
    document = vector(f"{name}_task")
    held = held_of(name, document, golden)
    plain = node.ask("upload", task=document, held=held, round=1, script=None)
    upload = Upload.decode(bytes.fromhex(plain), task)
    reports, rejected = task.open_reports(upload.sealed, 1, Opener(key, processes=1))
    assert rejected == 0
    assert len(reports) == task.plan.reports
    assert all(cell < task.plan.cells or cell == BLANK for cell in reports.cells)
    if name not in ("golden", "golden_open_vocabulary"):
        own = golden.get("own_cells", golden.get("digit_cells"))
        assert set(own or ()) <= set(reports.cells.tolist())
    assert node.ask("upload", task=document, held=held, round=1, script=None) != plain


def test_words_reach_the_golden_buckets_of_every_function_and_round(node: Node) -> None:
    golden = vector("golden_hash")
    domain = {
        "kind": "open-vocabulary",
        "key": golden["key"],
        "width": golden["width"],
        "depth": golden["depth"],
    }
    plan = {"domain": domain, "mechanism": {"kind": "noisy-slots", "slots": 1, "chance": 0.5}}
    for label, function in itertools.product(golden["labels"], (0, 15, 16, 19)):
        for found in label["rounds"]:
            cells = node.ask(
                "scripted_cells", plan=plan, held=label["given"], round=found["round"], words=[function, NO]
            )
            assert cells == [function * golden["width"] + found["buckets"][function], BLANK]


def test_the_golden_vector_of_the_ball_becomes_the_golden_cells(node: Node) -> None:
    golden = vector("golden_l2_ball")
    domain = {key: golden[key] for key in ("shape", "clipping_norm", "seed")} | {"kind": "l2-ball", "center": None}
    mechanism = {"kind": "one-bit", "bits": 1, "amplitude": golden["amplitude"], "tau": golden["tau"]}
    plan = {"domain": domain, "mechanism": mechanism}
    assert node.ask("squares", size=8, tau=golden["tau"]) == str(golden["squares_allowed"])
    for found in golden["rounds"]:
        number = found["round"]
        assert node.ask("levels", plan=plan, held=golden["update"], round=number) == found["levels"]
        for which in (0, 1):
            draws = [pair[which] for pair in found["draws"]]
            # the highest 32 bits of a draw, and on a tie the other 15, as the highest of another word
            words = []
            for draw, chance in zip(draws, found["ones_of_2_47"], strict=True):
                words += [draw >> 15] + (
                    [(draw & 32767) << 17] if draw >> 15 == chance >> 15 and chance % 32768 else []
                )
            cells = node.ask("scripted_cells", plan=plan, held=golden["update"], round=number, words=words)
            assert cells == [pair[which] for pair in found["cells"]]
