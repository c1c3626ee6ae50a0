from __future__ import annotations

import pytest
from tests.refusals import refusal

from shufflesum.domains import Arrays, Categories
from shufflesum.errors import ParameterError
from shufflesum.explorer import DEFAULTS, Question


def test_the_form_as_it_is_first_shown_is_a_question() -> None:
    question = Question.of(DEFAULTS)
    columns = Arrays(2, {"age": (0, 120), "hours": (0, 24)}, ["age", "hours"])
    assert (question.users, question.domain, question.epsilon, question.margin) == (50_000, columns, 1.0, None)
    assert question.arguments() == {"domain": columns, "delta": 1e-6, "rounds": 1}


def test_columns_without_a_name_are_left_out() -> None:
    held = {"column": ["", "age ", ""], "low": ["x", "0", ""], "high": ["", "120", ""]}
    assert Question.of({**DEFAULTS, **held}).domain == Arrays(1, {"age": (0, 120)}, ["age"])


def test_labels_a_shape_a_margin_and_a_cap_can_be_asked_for() -> None:
    labelled = Question.of({**DEFAULTS, "holds": ["labels"], "labels": [" a, b ,c,"]})
    assert labelled.domain == Categories(["a", "b", "c"])
    assert Question.of({**DEFAULTS, "holds": ["labels"], "labels": ["1000"]}).domain.dimension == 1000
    asked = {"holds": ["array"], "shape": ["28 x 28"], "by": ["margin"], "margin": ["0.5"], "max_reports": ["1,000"]}
    matrix = Question.of({**DEFAULTS, **asked})
    assert (matrix.domain.shape, matrix.epsilon, matrix.margin) == ((28, 28), None, 0.5)
    assert matrix.arguments()["max_reports"] == 1000


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("users", ""),
        ("users", "many"),
        ("users", "0"),
        ("users", "1.5"),
        ("users", "nan"),
        ("users", "1e13"),
        ("epsilon", "a lot"),
        ("shape", "ten"),
        ("shape", "1000, 1001"),
        ("shape", "0"),
        ("holds", "words"),
        ("by", "luck"),
        ("max_reports", "few"),
        ("delta", "x" * 30_000),
    ],
)
def test_what_makes_no_question_is_refused_by_the_name_of_its_field(field: str, text: str) -> None:
    with pytest.raises(ParameterError, match=field):
        Question.of({**DEFAULTS, "holds": ["array"], field: [text]})


def test_labels_must_be_at_least_two() -> None:
    for labels in ("1", "alone"):
        with refusal("out-of-range", error=ParameterError):
            Question.of({**DEFAULTS, "holds": ["labels"], "labels": [labels]})
    with refusal("missing-argument", error=ParameterError):
        Question.of({**DEFAULTS, "column": []})
