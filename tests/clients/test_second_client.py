"""A client that has docs/wire.md only takes part in real collections; the analyzer counts exactly what it sent."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import math
import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clients import canonical as canonical_json
from tests.clients import second
from tests.clients.canonical import canonical
from tests.clients.second import BLANK, Cells, RefusedError, SecondClient, text_of
from tests.forked_processes import wait_until
from tests.plan_builders import encoding_for
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment
from tests.slow_params import slow_but_for

import shufflesum as ss
from shufflesum.domains import Arrays, Domain, L2Ball
from shufflesum.mechanisms import NoisyCounts, NoisySlots, OneBit, RandomizedResponse
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.mechanisms.one_bit.randomize import Rotation
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer
from shufflesum.service.http.messages import PREFIX, PROBLEMS
from shufflesum.service.shuffler.interface import shuffler_interface
from shufflesum.service.shuffler.tokens import write_tokens
from shufflesum.testing import no_guarantee

VECTORS = Path(__file__).parents[1] / "vectors"
USERS = 24
CHANCE = 2.0**-4


def vector(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


def imported(module: ModuleType) -> set[str]:
    nodes = list(ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))))
    whole = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return whole | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_nothing_of_ours_is_imported() -> None:
    modules = imported(second) - {canonical_json.__name__} | imported(canonical_json)
    assert {module.partition(".")[0] for module in modules} & {"shufflesum", "tests", "cryptography", ""} == set()
    assert "pyhpke" in modules


FIELDS = st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none() | st.lists(st.text()))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)


@given(fields=FIELDS, numbers=st.lists(NUMBERS))
def test_canonical_json_is_what_the_page_says(fields: dict[str, Any], numbers: list[float]) -> None:
    fields = {name: value for name, value in fields.items() if name not in canonical_json.FLOATS}
    value = {"id": fields, "bounds": [numbers, 1.0], "delta": 1e-6}
    assert canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize("path", sorted(VECTORS.glob("golden*_task.json")), ids=lambda path: path.stem)
def test_golden_tasks_are_what_they_say(path: Path) -> None:
    client = SecondClient(json.loads(path.read_text(encoding="utf-8")))
    assert client.cells.reports == client.task["plan"]["reports"]


BEYOND_A_CLIENT = {"bad_task_false_claim", "bad_task_plan_prediction"}
"""These take an accountant; the page says that clients in other languages have none."""


@pytest.mark.parametrize("path", sorted(VECTORS.glob("bad_task*.json")), ids=lambda path: path.stem)
def test_bad_tasks_are_refused(path: Path) -> None:
    task = json.loads(path.read_text(encoding="utf-8"))["task"]
    if path.stem in BEYOND_A_CLIENT:
        SecondClient(task)
        return
    with pytest.raises(RefusedError):
        SecondClient(task)


def test_own_cells_are_the_golden_ones() -> None:
    for name in ("noisy_slots", "multi_choice", "group_by"):
        cells = Cells(vector(f"golden_{name}_task")["plan"])
        golden = vector(f"golden_{name}_upload")
        assert sorted(cells.own(golden["held"], golden["round"])) == golden["own_cells"]
    cells = Cells(vector("golden_open_vocabulary_task")["plan"])
    golden = vector("golden_open_vocabulary_upload")
    assert cells.bucket(golden["held"], golden["function"], golden["round"]) == golden["bucket"]


def test_cells_at_positions_are_the_golden_ones() -> None:
    for name in ("positions", "positions_groups"):
        cells = Cells(vector(f"golden_{name}_task")["plan"])
        golden = vector(f"golden_{name}_upload")
        assert cells.positions == [report["position"] for report in golden["reports"]]
        assert cells.of(golden["held"], golden["round"]) == [report["cell"] for report in golden["reports"]]


def test_hashes_are_the_golden_ones() -> None:
    golden = vector("golden_hash")
    domain = {
        "kind": "open-vocabulary",
        "key": golden["key"],
        "width": golden["width"],
        "depth": golden["depth"],
    }
    cells = Cells({"domain": domain, "mechanism": {"kind": "noisy-slots", "slots": 1, "chance": 0.5}})
    for label in golden["labels"]:
        assert text_of(label["given"]).encode().hex() == label["utf8"]
        for found in label["rounds"]:
            buckets = [cells.bucket(label["given"], s, found["round"]) for s in range(golden["depth"])]
            assert buckets == found["buckets"]


def test_levels_of_the_ball_are_the_golden_ones() -> None:
    golden = vector("golden_l2_ball")
    domain = {"kind": "l2-ball", "shape": golden["shape"], "clipping_norm": golden["clipping_norm"], "center": None}
    mechanism = {"kind": "one-bit", "bits": 1, "amplitude": golden["amplitude"], "tau": golden["tau"]}
    cells = Cells({"domain": domain | {"seed": golden["seed"]}, "mechanism": mechanism})
    for found in golden["rounds"]:
        assert cells.levels(golden["update"], found["round"]) == found["levels"]


@dataclass(frozen=True)
class Collection:
    """What users hold, under which plan, and what the analyzer should find, in a field of its answer."""

    domain: Domain
    mechanism: Mechanism
    rows: list[Any]
    field: str
    truth: Any
    rounds: int = 1
    tokens: bool = False


def alternating(*values: Any) -> list[Any]:
    return [values[i % len(values)] for i in range(USERS)]


# Values lie on the levels, so that rounding draws nothing.
MATRICES = [[[0.0, 1.0], [3.0, -7.0]], [[4.0, math.nan], [1.0, math.inf]]]
VECTORS_OF_SPAN = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
COLLECTIONS = {
    "randomized response, arrays": Collection(
        Arrays((2, 3), ([[0, 0, 0], [-1, -1, -1]], [[1, 2, 3], [1, 1, 1]])),
        RandomizedResponse(4, 6, CHANCE),
        alternating([[0, 1, 2], [-5, 0, 5]], [[1, 1, 1], [math.nan, 1, 1]]),
        "mean",
        [[0.5, 1.0, 1.5], [-0.5, 0.5, 1.0]],
        tokens=True,
    ),
    "randomized response, symmetric matrices": Collection(
        Arrays(ss.Symmetric(2), (-1.0, 3.0)),
        RandomizedResponse(2, 8, CHANCE, "uniform"),
        alternating(*MATRICES),
        "mean",
        [[1.5, 1.5], [1.5, 1.0]],
    ),
    "noisy counts, a span": Collection(
        Arrays(ss.Span(VECTORS_OF_SPAN), (0.0, 3.5)),
        NoisyCounts(3, (1, 1, 1), (CHANCE, CHANCE, CHANCE), 2),
        alternating([0.5, 2.0, 1.5], [2.0, 2.0, 0.0]),
        "mean",
        [1.25, 2.0, 0.75],
    ),
    "noisy counts, multi-choice": Collection(
        ss.MultiChoice(["a", 7, "Grüße \u0001"], max_choices=2),
        NoisyCounts(1, (2,), (CHANCE,), 40),
        alternating([" a", "7"], ["Gru\u0308ße \u0001", "a", "a"], [], None),
        "counts",
        [USERS / 2, USERS / 4, USERS / 4],
    ),
    "noisy counts, groups": Collection(
        ss.GroupBy(["at", "de"], ss.Arrays(2, bounds=(0, 6))),
        NoisyCounts(2, (1, 1, 1), (CHANCE, CHANCE, CHANCE), 4),
        alternating(("at", [2, 99]), ("de ", [4, 6])),
        "counts",
        [USERS / 2, USERS / 2],
    ),
    "slots on labels": Collection(
        ss.Categories(["yes", True, 3], other=True),
        NoisySlots(3, CHANCE),
        alternating("yes ", "TRUE", 3.0, None, "perhaps", "yes"),
        "counts",
        [USERS / 3, USERS / 6, USERS / 6, USERS / 3],
    ),
    "slots on bins": Collection(
        ss.Categories(bins=[0.0, 1.0, 2.5, 10.0]),
        NoisySlots(2, CHANCE),
        alternating(-3, 1.0, 10.0, 1e9),
        "counts",
        [USERS / 4, USERS / 4, USERS / 2],
    ),
    "randomized response, labels": Collection(
        ss.Categories(5),
        RandomizedResponse(1, 4, CHANCE),
        alternating(0, "4"),
        "counts",
        [USERS / 2, 0, 0, 0, USERS / 2],
    ),
    "slots on words": Collection(
        ss.OpenVocabulary(width=50, depth=20, key=bytes(range(16))),
        NoisySlots(2, CHANCE),
        alternating("Straße", " caf\u0065\u0301", "caf\u00e9"),
        "users",
        USERS,
    ),
    "bits on vectors": Collection(
        L2Ball({"weights": (2, 2), "bias": 1}, 1.5, center={"weights": np.ones((2, 2)), "bias": [1.0]}, seed=bytes(16)),
        OneBit(3, 0.75, 2.0),
        alternating([[[1.5, 1.0], [1.0, 0.5]], [1.0]], [[[9.0, 1.0], [1.0, 1.0]], [1.0]]),
        "mean",
        [1.25 + 0.75, 1.0, 1.0, 0.75, 1.0],
        rounds=2,
    ),
}
DEFAULT = ("randomized response, arrays", "noisy counts, groups", "slots on words", "bits on vectors")
"""One for each mechanism; the others with `make test-slow`."""


def quiet(domain: Domain, mechanism: Mechanism) -> Mechanism:
    """The same with next to no noise, and every coordinate reported."""
    match mechanism:
        case RandomizedResponse():
            return RandomizedResponse(domain.dimension if isinstance(domain, Arrays) else 1, mechanism.levels, 2.0**-53)
        case NoisyCounts():
            return replace(mechanism, probabilities=(2.0**-53,) * len(mechanism.trials))
        case NoisySlots():
            return replace(mechanism, chance=2.0**-53)
    return mechanism


@pytest.mark.parametrize("name", [name for name in COLLECTIONS if name != "bits on vectors"])
def test_without_noise_it_sends_the_cells_that_our_client_sends(name: str) -> None:
    domain = COLLECTIONS[name].domain
    if isinstance(domain, ss.OpenVocabulary):
        domain = replace(domain, depth=1)  # which is drawn
    plan = Plan(domain, quiet(domain, COLLECTIONS[name].mechanism), no_guarantee(USERS))
    coercion, cells = domain.coercion(), Cells(json.loads(plan.to_json()))
    randomizer = Randomizer(plan, clip=coercion.clip, missing=coercion.missing)
    assert (cells.cells, cells.reports) == (plan.cells, plan.reports)
    for held in COLLECTIONS[name].rows[:6]:
        ours = randomizer.randomize(coercion.clamp(domain.rows(coercion.wrap_one(held)))).cells
        assert sorted(cells.of(held, 1)) == sorted(ours.tolist())


def test_vectors_are_rotated_and_shortened_as_ours() -> None:
    collection = COLLECTIONS["bits on vectors"]
    domain, mechanism = collection.domain, collection.mechanism
    assert isinstance(domain, L2Ball)
    assert isinstance(mechanism, OneBit)
    cells = Cells(json.loads(Plan(domain, mechanism, no_guarantee(USERS, rounds=2)).to_json()))
    source = np.random.default_rng(5)
    for number in (1, 2):
        for scale in (0.1, 1.0, 30.0):
            held = [scale * source.normal(size=(2, 2)), scale * source.normal(size=1)]
            flat = domain.block(np.concatenate([layer.ravel() for layer in held])[np.newaxis], clip=True).values
            ours = Rotation(encoding_for(domain.of_round(number), OneBit), mechanism.tau).of(flat)
            assert np.abs(np.array(cells.levels(held, number)) - ours[0]).max() <= 1  # floating point up to here


@pytest.mark.parametrize("name", slow_but_for(COLLECTIONS, DEFAULT))
def test_the_analyzer_counts_what_the_second_client_sent(tmp_path: Path, name: str) -> None:
    collection = COLLECTIONS[name]
    plan = Plan(collection.domain, collection.mechanism, no_guarantee(USERS, rounds=collection.rounds))
    tokens: list[str | None] = [None] * USERS
    options: list[str] = []
    if collection.tokens:
        write_tokens(USERS, tmp_path / "tokens", tmp_path / "digests")
        tokens, options = [*(tmp_path / "tokens").read_text().split()], ["--tokens", str(tmp_path / "digests")]
    with LossyProxy(lambda: shuffler.port, loss=0.1, seed=1) as front:
        deployment = Deployment(tmp_path, plan, shuffler_url=front.url)
        analyzer_options = ("--processes", "1", "--page", "off", "--without-guarantee")
        with (
            deployment.analyzer(*analyzer_options) as analyzer,
            deployment.shuffler(analyzer.url, *options) as shuffler,
        ):
            task = httpx.get(f"{shuffler.url}/tasks/{deployment.task.id}", timeout=60).json()
            with SecondClient(task, without_guarantee=True) as client:
                for number in range(1, collection.rounds + 1):
                    for row, token in zip(collection.rows, tokens, strict=True):
                        client.contribute(row, token)
                    wait_until(lambda done=number: shuffler.metric("shufflesum_batches_released_total") == done)
            # The first estimate may have to be compiled.
            answer = httpx.get(f"{analyzer.url}/tasks/{deployment.task.id}/estimate?table=1", timeout=60)
    rounds = answer.json()["rounds"]
    assert [found["round"] for found in rounds] == list(range(1, collection.rounds + 1)) == list(client.sent)
    for found in rounds:
        sent = client.sent[found["round"]]
        assert len(sent) == USERS * plan.reports
        counts = np.bincount([cell for cell in sent if cell != BLANK], minlength=plan.cells)
        assert table(found["table"]) == counts.tolist()
        assert (found["users"], found["uploads"], found["rejected_reports"]) == (USERS, USERS, 0)
        truth = np.array(collection.truth, dtype=float)
        kind = "count_standard_error" if collection.field == "counts" else "standard_error"
        error = np.array(found.get(kind, 0.0), dtype=float)
        # Nearly normal at these sizes: seven standard errors and a bit are missed by less than 1e-6 of honest runs.
        slack = 7 * error + (1.0 if collection.field == "counts" else 0.05)
        assert np.all(np.abs(np.array(found[collection.field], dtype=float) - truth) <= slack)


def table(packed: dict[str, Any]) -> list[int]:
    """The table of counts, as the page has it."""
    assert packed["bytes"] == 4
    counts: list[int] = np.frombuffer(zlib.decompress(base64.b64decode(packed["zlib"])), "<u4").tolist()
    return counts


PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")


def test_the_ids_on_the_page_are_those_of_its_examples() -> None:
    examples = re.findall(r"```json\n(\{.*\})\n```\n\nand has the id `([0-9a-f]{64})`", PAGE)
    assert len(examples) == 2
    for text, identity in examples:
        assert hashlib.sha256(text.encode()).hexdigest() == identity
        assert canonical(json.loads(text)) == text


def test_the_page_has_every_answer_to_an_upload() -> None:
    listed = re.findall(r"^\| (\d{3}) \| `([a-z-]+)` \| (never|not-yet) \|", PAGE, flags=re.MULTILINE)
    answers = shuffler_interface()["paths"]["/tasks/{task_id}/uploads"]["post"]["responses"]
    described = {
        urn.removeprefix(PREFIX)
        for answer in answers.values()
        for media in answer.get("content", {}).values()
        for urn in media["schema"]["properties"]["type"]["enum"]
    }
    assert {name for _, name, _ in listed} == described
    assert all((int(status), retry) == (PROBLEMS[name].status, PROBLEMS[name].retry) for status, name, retry in listed)
