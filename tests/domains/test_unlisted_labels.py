"""Labels that nobody listed, as a domain: their canonical form, files, made-up users and what is said of them."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.domains import UnlistedLabels, domain_from_json
from shufflesum.errors import PlanError

DOMAINS = [
    UnlistedLabels(),
    UnlistedLabels(3, ignore_case=True),
    UnlistedLabels(normalization="NFKC", column="url"),
    UnlistedLabels(1, ignore_case=True, normalization="NFKC"),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@given(text=st.text())
def test_a_canonical_form_is_its_own(domain: UnlistedLabels, text: str) -> None:
    found = domain.text(text)
    assert found is not None
    assert domain.text(found) == found
    assert unicodedata.is_normalized(domain.normalization, found)
    assert found == found.strip()


@given(text=st.text())
def test_capitals_make_no_difference_where_they_are_folded(text: str) -> None:
    folding = UnlistedLabels(ignore_case=True)
    assert folding.text(text.casefold()) == folding.text(text)


def test_what_is_missing_is_empty_and_what_is_no_label_is_none() -> None:
    domain = UnlistedLabels()
    missing: list[Any] = [None, "", "  ", float("nan")]
    assert [domain.text(value) for value in missing] == ["", "", "", ""]
    wrong: list[Any] = ["\ud800", b"\xff", ["a"], {}]
    assert [domain.text(value) for value in wrong] == [None] * 4
    assert [domain.text(value) for value in (b"a", 7, 7.0, True, np.int8(3))] == ["a", "7", "7", "true", "3"]
    assert UnlistedLabels(normalization="NFKC").text("\u00a0") == ""


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_a_domain_comes_back_from_its_file(domain: UnlistedLabels) -> None:
    assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain


@pytest.mark.parametrize(
    "changed",
    [{"max_items": 0}, {"max_items": "1"}, {"ignore_case": 1}, {"normalization": "NFD"}, {"colour": 1}, {"column": ""}],
    ids=str,
)
def test_a_file_of_something_else_is_refused(changed: dict[str, Any]) -> None:
    with refusal(("malformed", "out-of-range", "wrong-type"), error=PlanError):
        domain_from_json(DOMAINS[0].to_json() | changed)


def test_numbers_of_a_domain() -> None:
    assert DOMAINS[0].central_sensitivity == (2.0, 4.0)
    assert DOMAINS[1].central_sensitivity == (6.0, 36.0)
    assert [domain.entries for domain in DOMAINS] == [1, 3, 1, 1]
    (encoding,) = DOMAINS[1].encodings()
    labels, rest = encoding.sensitivity.classes
    assert (labels.changed, rest.changed) == (6, 1)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_made_up_users_can_be_counted(domain: UnlistedLabels) -> None:
    made = domain.sampler("zipf", np.random.default_rng(1))(500)
    block = domain.block(made)
    assert len(block) == 500
    counts = domain.true_values([block, domain.block(made)], ["label 1", "LABEL 1", "nothing"])
    assert counts[0] > 50
    assert (counts[1] == counts[0]) == domain.ignore_case
    assert counts[2] == 0


def test_two_discoveries_of_other_labels_are_other_plans() -> None:
    plans = [ss.plan(users=1000, domain=domain, noise_by="curator", epsilon=1.0, delta=1e-6) for domain in DOMAINS]
    assert len({plan.id for plan in plans}) == len(plans)
    assert [ss.Plan.from_json(plan.to_json()) for plan in plans] == plans
