from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refusal

from shufflesum.domains import Arrays, Categories, Domain, GroupBy, MultiChoice, OpenVocabulary, domain_from_json

NAMED: list[Domain] = [
    Categories(["a", "b"], column="answer"),
    Categories(bins=[0, 1, 2], other=True, column="age"),
    MultiChoice(3, max_choices=2, column="ticked"),
    GroupBy(["x", "y"], (2,), column="country"),
    OpenVocabulary(100, 4, bytes(16), column="word"),
]


@pytest.mark.parametrize("domain", NAMED, ids=lambda domain: domain.to_json()["column"])
def test_the_name_of_the_column_travels_with_the_domain(domain: Domain) -> None:
    again = domain_from_json(domain.to_json())
    assert again == domain
    assert again.to_json()["column"] in ("answer", "age", "ticked", "country", "word")
    assert {name: value for name, value in domain.to_json().items() if name != "column"} == nameless(domain)
    assert domain_from_json(nameless(domain)) != domain


def test_bounds_and_columns_of_numbers_leave_the_name_of_the_groups_alone() -> None:
    groups = GroupBy(["x", "y"], Arrays((2,), columns=["a", "b"]), column="country").with_bounds((0, 9))
    assert (groups.column, groups.values.columns) == ("country", ("a", "b"))


@pytest.mark.parametrize("column", [7, "", ["a"]])
def test_what_is_no_name_is_refused(column: Any) -> None:
    for make in (lambda: Categories(2, column=column), lambda: OpenVocabulary(column=column)):
        with refusal("wrong-type", "column"):
            make()


@pytest.mark.parametrize("rest", [{"column": 7}, {"column": "a", "more": 1}, {"more": 1}])
def test_json_with_anything_else_is_refused(rest: dict[str, Any]) -> None:
    for domain in NAMED:
        with refusal("malformed"):
            domain_from_json(nameless(domain) | rest)


def nameless(domain: Domain) -> dict[str, Any]:
    return {name: value for name, value in domain.to_json().items() if name != "column"}
