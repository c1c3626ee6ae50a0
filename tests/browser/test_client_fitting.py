"""What users hold becomes the same in the browser client as in the Python client, wherever nothing is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.browser.node import Node, needs_node
from tests.plan_builders import encoding_for

import shufflesum as ss
from shufflesum.domains import Arrays, Categories, Domain, GroupBy, L2Ball, Labels, MultiChoice, OpenVocabulary
from shufflesum.domains.labels import text_of
from shufflesum.mechanisms import NoisyCounts, NoisySlots, OneBit, RandomizedResponse, mechanism_to_json
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.mechanisms.one_bit.randomize import Rotation
from shufflesum.testing import no_guarantee

pytestmark = needs_node

NUMBERS = st.floats(-2, 2, width=64) | st.sampled_from([0.0, 1.0, -1.0, 1e300, -1e300, 5e-324])


def python_coordinates(box: Arrays, held: list[Any]) -> list[list[float]]:
    coercion = box.coercion()
    rows = [coercion.clamp(coercion.wrap_one([np.nan if x is None else x for x in each])) for each in held]
    return [box.block(row, clip=True, missing=coercion.missing).values[0].tolist() for row in rows]


@settings(max_examples=60)
@given(st.lists(st.lists(NUMBERS | st.none(), min_size=3, max_size=3), min_size=1, max_size=20))
def test_numbers_are_clipped_and_missing_ones_in_the_middle(node: Node, held: list[Any]) -> None:
    for bounds in ((0.0, 1.0), (-0.3, 0.7), ((-1.0, 0.0, 1e-3), (0.1, 1e9, 2e-3))):
        box = Arrays(3, bounds)
        assert node.ask("coordinates", box=box.to_json(), held=held) == python_coordinates(box, held)


@settings(max_examples=30)
@given(st.lists(NUMBERS | st.none(), min_size=9, max_size=9))
def test_matrices_are_averaged_with_their_mirror(node: Node, entries: list[Any]) -> None:
    box = Arrays(ss.Symmetric(3), (-1.0, 1.0))
    matrix = [entries[:3], entries[3:6], entries[6:]]
    held = [[np.nan if x is None else x for x in row] for row in matrix]
    coercion = box.coercion()
    wanted = box.block(coercion.clamp(coercion.wrap_one(held)), clip=True, missing="midpoint").values[0].tolist()
    assert node.ask("coordinates", box=box.to_json(), held=[matrix]) == [wanted]


@settings(max_examples=30)
@given(st.lists(st.floats(-2, 2), min_size=6, max_size=6), st.integers(0, 2**32 - 1))
def test_arrays_are_projected_onto_a_span(node: Node, entries: list[float], seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(3, 2, 3))
    box = Arrays(ss.Span(vectors), (-1.0, 1.0))
    held = np.array(entries).reshape(2, 3).tolist()
    coercion = box.coercion()
    wanted = box.block(coercion.clamp(coercion.wrap_one(held)), clip=True).values[0]
    np.testing.assert_allclose(node.ask("coordinates", box=box.to_json(), held=[held])[0], wanted, atol=1e-9)


def on_grid(domain: Domain, mechanism: dict[str, Any], held: Any, node: Node) -> list[int]:
    plan = {"domain": domain.to_json(), "mechanism": mechanism}
    cells: list[int] = node.ask("cells", plan=plan, held=held)
    return cells


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 2**20), min_size=4, max_size=4), st.integers(1, 10), st.floats(0.01, 100), st.floats(-5, 5)
)
def test_values_on_the_grid_are_rounded_alike(
    node: Node, places: list[int], digits: int, width: float, low: float
) -> None:
    """Where the place is a whole number, nothing is drawn; both clients must see it as one, or as none."""
    top = 2**digits - 1
    box = Arrays(4, (low, low + width))
    values = np.array([low + (box.upper[0] - low) * ((place % (top + 1)) / top) for place in places])
    scale = top * 2**15 / box.width
    exact = np.clip((values - box.lower) * scale, 0, top * 2**15) / 2**15
    whole = exact == np.floor(exact)
    mechanism = {
        "kind": "noisy-counts",
        "digits": digits,
        "trials": [0] * digits,
        "probabilities": [0.0] * digits,
        "cap": 0,
    }
    sent = set(on_grid(box, mechanism, values.tolist(), node))
    for c in np.flatnonzero(whole):
        found = sum(1 << j for j in range(digits) if c * digits + j in sent)
        assert found == exact[c]


LABEL = st.text(max_size=6) | st.integers(-3, 12) | st.booleans()
HELD = (
    LABEL
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        [
            " a ",
            "\u00a0a\u2003",
            "\ufeffa",
            "\x1ca\x85",
            "e\u0301",
            "\u00e9",
            "TRUE",
            "true",
            "1",
            "1.0",
            "01",
            "-0",
            1.0,
            1e20,
            0.5,
            1e-7,
            "",
        ]
    )
)


@settings(max_examples=80)
@given(st.lists(LABEL, min_size=1, max_size=6), st.lists(HELD, max_size=12))
def test_labels_have_the_same_codes(node: Node, given_labels: list[Any], held: list[Any]) -> None:
    different = list({text: label for label in given_labels if (text := text_of(label))}.values())
    for listed in (different or ["a"], 7):
        labels = Labels(listed)
        wanted = [max(labels.code(value), -1) for value in held]
        assert node.ask("codes", labels=labels.to_json(), held=held) == wanted


@settings(max_examples=100)
@given(st.lists(HELD | st.text(st.characters(exclude_categories=["Cs"])), max_size=12))
def test_labels_have_the_same_text(node: Node, held: list[Any]) -> None:
    assert node.ask("texts", held=held) == [text_of(value) or "" for value in held]


BINS = Categories(bins=[-1.0, 0.0, 0.5, 10.0])
BINS_OTHER = Categories(bins=[-1.0, 0.0, 0.5, 10.0], other=True)
REPLACE = {
    "kind": "randomized-response",
    "coordinates": 1,
    "levels": 3,
    "noise_probability": 0.0,
    "sampling": "stratified",
}


@settings(max_examples=60)
@given(st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-1, -0.0, 0, 0.5, 10, 11, None]))
def test_numbers_fall_into_the_same_bins(node: Node, value: float | None) -> None:
    for domain in (BINS, BINS_OTHER):
        coercion = domain.coercion()
        plan = {"domain": domain.to_json(), "mechanism": REPLACE}
        if value is None and not domain.other:
            assert node.problem("cells", plan=plan, held=value) == "missing-value"
        else:
            assert (
                node.ask("cells", plan=plan, held=value)
                == domain.block(coercion.wrap_one(value), clip=coercion.clip).cells.tolist()
            )


@settings(max_examples=60)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=40), st.integers(1, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_vectors_in_a_ball_become_the_same_levels(
    node: Node, update: list[float], number: int, seed: int, centred: bool
) -> None:
    some = np.random.default_rng(seed)
    center = some.normal(size=len(update)).round(3) if centred else None
    ball = L2Ball(len(update), float(some.uniform(0.1, 4)), center, some.bytes(16)).of_round(number)
    tau = float(some.uniform(1, 4))
    wanted = Rotation(encoding_for(ball, OneBit), tau).of(ball.block(np.array([update]), clip=True).values)[0].tolist()
    plan = {"domain": ball.to_json(), "mechanism": {"kind": "one-bit", "tau": tau}}
    assert node.ask("levels", plan=plan, held=update, round=number) == wanted


def test_a_long_update_becomes_the_same_levels_as_layers_or_not(node: Node) -> None:
    some = np.random.default_rng(7)
    layers = {"weights": (30, 20), "bias": (20,), "scale": ()}
    update = {name: some.normal(size=shape) for name, shape in layers.items()}
    for shape in (layers, list(layers.values())):
        ball = L2Ball(shape, 1.5, None, bytes(16))
        held = update if isinstance(shape, dict) else list(update.values())
        flat = ball.flatten(held)
        wanted = (
            Rotation(encoding_for(ball, OneBit), 3.0).of(ball.block(flat[np.newaxis], clip=True).values)[0].tolist()
        )
        plan = {"domain": ball.to_json(), "mechanism": {"kind": "one-bit", "tau": 3.0}}
        plain = {k: v.tolist() for k, v in held.items()} if isinstance(held, dict) else [v.tolist() for v in held]
        assert node.ask("levels", plan=plan, held=plain) == wanted
        assert node.problem(
            "levels", plan=plan, held=plain | {"more": 1} if isinstance(plain, dict) else plain[:2]
        ) == ("layers-mismatch")


ADD = {"kind": "noisy-counts", "digits": 1, "trials": [0], "probabilities": [0.0], "cap": 0}
SLOTS = {"kind": "noisy-slots", "slots": 0, "chance": 0.0}
BITS = {"kind": "one-bit", "bits": 1, "amplitude": 0.5, "tau": 2.0}
LABELS = ["yes", "no"]


@pytest.mark.parametrize(
    ("domain", "mechanism", "held", "problem"),
    [
        (Arrays(2, (0, 1)), ADD, [1.0], "wrong-shape"),
        (Arrays(2, (0, 1)), ADD, [[1.0, 2.0]], "wrong-shape"),
        (Arrays(2, (0, 1)), ADD, ["0.5", "1"], "not-numbers"),
        (Arrays(1, (0, 1)), ADD, [[0.5]], "not-numbers"),
        (Arrays((2, 2), (0, 1)), ADD, [[1, 2], [3]], "wrong-shape"),
        (Categories(LABELS), SLOTS, "maybe", "unknown-label"),
        (Categories(LABELS), SLOTS, "", "missing-value"),
        (Categories(LABELS), SLOTS, None, "missing-value"),
        (Categories(LABELS), SLOTS, {"a": 1}, "wrong-type"),
        (MultiChoice(LABELS, max_choices=1), ADD, ["yes", "maybe"], "unknown-label"),
        (MultiChoice(LABELS, max_choices=1), ADD, "yes", "wrong-type"),
        (GroupBy(LABELS, 1), ADD | {"trials": [0, 0], "probabilities": [0.0, 0.0]}, ["maybe", [1]], "unknown-label"),
        (GroupBy(LABELS, 1), ADD | {"trials": [0, 0], "probabilities": [0.0, 0.0]}, [1], "wrong-type"),
        (OpenVocabulary(4, 2, bytes(16)), SLOTS, "  ", "missing-value"),
        (OpenVocabulary(4, 2, bytes(16)), SLOTS, "\ud800", "wrong-type"),
        (L2Ball(2, 1.0, None, bytes(16)), BITS, [None, 1.0], "missing-value"),
        (L2Ball(2, 1.0, None, bytes(16)), BITS, [1.0], "wrong-shape"),
        (Arrays(2, (0, 1)), ADD | {"cap": None}, [0, 1], "one-process-only"),
        (Arrays(2, (0, 1)), SLOTS, [0, 1], "unsupported"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:30],
)  # fmt: skip
def test_what_has_no_place_in_the_plan_is_refused(
    domain: Domain, mechanism: dict[str, Any], held: Any, problem: str, node: Node
) -> None:
    assert node.problem("cells", plan={"domain": domain.to_json(), "mechanism": mechanism}, held=held) == problem


def test_choices_are_taken_as_lists_and_as_ticks(node: Node) -> None:
    domain = MultiChoice(["a", "b", "c"], max_choices=3)
    for held, wanted in ((["c", "a", "a"], [0, 2]), ([True, False, True], [0, 2]), ([], []), (None, [])):
        cells = on_grid(domain, ADD, held, node)
        assert cells == [*wanted, *[2**32 - 1] * (3 - len(wanted))]


@pytest.mark.parametrize(
    ("domain", "mechanism", "held"),
    [
        (Arrays((2, 2), (0, 1)), RandomizedResponse(3, 4, 0.5), [[0, 0.5], [1, 2]]),
        (Arrays(3, (0, 1)), RandomizedResponse(2, 1, 0.5, "uniform"), [0.1, 0.2, 0.3]),
        (Arrays(3, (0, 1)), NoisyCounts(2, (3, 4), (0.25, 0.5), 5), [0.1, 0.2, 0.3]),
        (Arrays(ss.Symmetric(3), (0, 1)), NoisyCounts(1, (1,), (0.25,), 50), np.eye(3).tolist()),
        (Categories(["a", "b"], other=True), NoisySlots(3, 0.5), "c"),
        (Categories(bins=[0, 1, 5]), NoisySlots(1, 0.5), 0.5),
        (Categories(4), RandomizedResponse(1, 3, 0.5), 3),
        (MultiChoice(5, max_choices=2), NoisyCounts(1, (2,), (0.5,), 3), [1, 2]),
        (GroupBy(["a", "b"], 2), NoisyCounts(2, (1, 1, 2), (0.5, 0.5, 0.25), 4), {"label": "a", "values": [0, 1]}),
        (OpenVocabulary(10, 17, bytes(16)), NoisySlots(4, 0.5), "word"),
        (L2Ball(10, 1.0, None, bytes(16)), OneBit(2, 0.5, 3.0), [0.1] * 10),
        (L2Ball({"a": 3, "b": ()}, 1.0, None, bytes(16)), OneBit(1, 0.5, 3.0), {"a": [1, 2, 3], "b": 4}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_domain_and_mechanism_is_known(domain: Domain, mechanism: Mechanism, held: Any, node: Node) -> None:
    """Sizes agree with the library's, and one user sends as many reports."""
    plan = ss.Plan(domain, mechanism, no_guarantee(1000))
    document = {"domain": domain.to_json(), "mechanism": mechanism_to_json(mechanism)}
    sizes = {"dimension": plan.dimension, "cells": plan.cells, "reports": plan.reports}
    assert node.ask("sizes", plan=document) == sizes
    cells = node.ask("cells", plan=document, held=held)
    assert len(cells) == plan.reports
    assert all(cell < plan.cells or cell == 2**32 - 1 for cell in cells)
