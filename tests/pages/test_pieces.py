from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from tests.estimate.decoded import Sums, count_estimate, group_estimate, hashed_estimate
from tests.pages.elements import HOSTILE, Elements
from tests.refusals import refusal

import shufflesum as ss
from shufflesum._format import between, number
from shufflesum.domains import Arrays, Categories, GroupBy, L2Ball, OpenVocabulary
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.errors import MissingExtraError, ParameterError, PlanError
from shufflesum.pages import (
    Column,
    Table,
    estimate_svg,
    estimate_table,
    html_table,
    markdown,
    page,
    picture,
    plan_words,
    report_page,
    require_pages,
    statement_html,
    stylesheet,
)
from shufflesum.testing import unprotected_plan


@pytest.fixture(scope="module")
def hostile() -> Any:
    held = [HOSTILE[i % len(HOSTILE)] for i in range(1000)]
    return ss.aggregate(held, domain=Categories(HOSTILE), epsilon=1.0, delta=1e-6)


@pytest.mark.long
def test_hostile_names_are_text_and_nothing_else(hostile: Any) -> None:
    plan = hostile.plan
    whole = page(
        HOSTILE[1],
        plan_words(plan)
        + html_table(estimate_table(hostile))
        + picture(estimate_svg(hostile, title=HOSTILE[0]), HOSTILE[1], HOSTILE[1])
        + statement_html(plan),
    )
    found = Elements(whole)
    assert found.tags <= {
        *("html", "head", "meta", "title", "style", "body", "main", "dl", "dt", "dd", "p", "ul", "li", "strong", "h3"),
        *("div", "table", "thead", "tbody", "tr", "th", "td", "bdi", "figure", "img", "figcaption", "em"),
    }
    assert [address[:26] for address in found.addresses] == ["data:image/svg+xml;base64,"]
    assert found.handlers == []
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", whole)
    assert "\\u202eright to left\\u2066" in found.text
    assert HOSTILE[4] in found.text
    assert "w" * 300 + "… (10,000 letters)" in found.text


def test_the_twin_without_escaping_would_be_caught() -> None:
    from markupsafe import Markup

    assert "script" in Elements(page("t", Markup(HOSTILE[0]))).tags


def test_nothing_in_the_style_asks_another_host() -> None:
    assert not re.search(r"url\(|@import|https?:|@font-face", stylesheet())


def test_the_style_is_inside_or_linked() -> None:
    from markupsafe import Markup

    inside, linked = page("t", Markup("b")), page("t", Markup("b"), stylesheet="/style.css")
    assert f"<style>{stylesheet()}</style>" in inside
    assert '<link rel="stylesheet" href="/style.css">' in linked
    assert "<style" not in linked


def test_a_plan_in_words_says_what_its_statement_says() -> None:
    plan = ss.plan(users=5000, shape=3, epsilon=1.0, delta=1e-6, bounds=(0, 1))
    words, whole = Elements(plan_words(plan)).text, Elements(statement_html(plan)).text
    for sentence in ("guesses right with", "chosen without looking at the data", "one user, that is one row of data"):
        assert sentence in words
        assert sentence in whole
    assert "from at least 5,000 users" in words
    assert "If the shuffler and the analyzer collude" in whole


def test_a_plan_without_a_guarantee_says_so() -> None:
    plan = unprotected_plan(users=10, shape=2)
    assert "no privacy guarantee" in plan_words(plan)
    with refusal("no-guarantee", error=PlanError):
        statement_html(plan)


def test_means_have_names_and_intervals_rounded_outwards() -> None:
    estimate = ss.aggregate(np.full((2000, 2), 0.5), epsilon=1.0, delta=1e-6, columns=["a", "<b>"])
    table = estimate_table(estimate, level=0.9)
    assert [column.title for column in table.columns] == ["Entry", "Mean", "90 % interval", "Sum"]
    assert [row[0] for row in table.rows] == ["a", "<b>"]
    lower, upper = estimate.confidence_interval(0.9)
    shown = [float(end) for end in table.rows[0][2].split(" to ")]
    assert shown[0] <= lower[0] <= upper[0] <= shown[1]
    assert table.note == ""


def test_of_many_entries_some_are_shown_and_the_note_says_how_many() -> None:
    plan = unprotected_plan(users=200, shape=(40, 30))
    estimate = Estimate(plan, 200, 0, np.zeros(plan.cells, dtype=np.int64))
    table = estimate_table(estimate, most=50)
    assert [row[0] for row in table.rows][:: len(table.rows) - 1] == ["0, 0", "39, 29"]
    assert table.note.startswith(f"{len(table.rows)} of 1,200 entries")
    assert len(table.rows) == 50


def test_of_many_labels_the_largest_are_shown() -> None:
    table = estimate_table(count_estimate(Categories(300), np.arange(300), 1000, 10), most=3)
    assert [row[0] for row in table.rows] == ["299", "298", "297"]
    assert "3 of 300 labels" in table.note


def test_groups_too_small_for_a_mean_are_named() -> None:
    domain = GroupBy(["few", "many"], Arrays(2, (0, 10), ["x", "y"]))
    estimate = group_estimate(domain, Sums(np.array([0.0, 90.0]), np.array([[0.0, 0.0], [45.0, 9.0]]), 4.0, 4.0))
    table = estimate_table(estimate)
    assert [(row[0], row[2]) for row in table.rows] == [("few", ""), ("many", "x"), ("many", "y")]
    assert "too few users" in table.rows[0]
    assert re.fullmatch(r"5\.00? ± [\d.]+", table.rows[1][3])


@pytest.mark.long
def test_only_pictures_whose_colours_are_numbers_keep_them_in_the_dark() -> None:
    for shape, kept in (((5, 5), True), (25, False)):
        plan = unprotected_plan(users=4, shape=shape, levels=1)
        estimate = Estimate(plan, 4, 0, np.full(plan.cells, 2, dtype=np.int64))
        assert ('class="coloured"' in picture(estimate_svg(estimate, title=""), "")) == kept


def test_words_have_no_table_and_no_picture_before_they_are_named() -> None:
    domain = OpenVocabulary(16, 4, key=bytes(16))
    estimate = hashed_estimate(domain, np.ones((4, 16), dtype=np.int64), 64)
    assert "4 by 16 cells" in estimate_table(estimate).note
    with refusal("missing-argument", error=ParameterError):
        estimate_svg(estimate, title="t")
    assert [row[0] for row in estimate_table(estimate.counts_of(["a", "b"])).rows] == ["a", "b"]


def test_entries_of_layers_are_named_by_layer_and_index() -> None:
    named = L2Ball({"w": (2, 3), "b": (2,)}, 1.0).structure
    assert named.names_of([0, 5, 6, 7]) == ["w[0, 0]", "w[1, 2]", "b[0]", "b[1]"]
    assert L2Ball([(2,), (1,)], 1.0).structure.names_of([1, 2]) == ["layer 0[1]", "layer 1[0]"]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.67852, 0.00091, "0.67852"),
        (12345.678, 6.5, "12,345.7"),
        (12345.678, 650.0, "12,346"),
        (-0.0001, 0.5, "0.00"),
        (math.nan, 1.0, ""),
        (3.0, 0.0, "3"),
        (1.234e-12, 1e-14, "1.234e-12"),
    ],
)
def test_numbers_have_as_many_digits_as_their_error_allows(value: float, error: float, text: str) -> None:
    assert number(value, error) == text


def test_intervals_are_rounded_outwards_and_end_at_inf() -> None:
    assert between(-math.inf, math.inf, 1.0) == "-inf to inf"
    assert between(0.1234, 0.5678, 0.1) == "0.12 to 0.57"


def test_markdown_of_names_makes_no_links_and_no_images() -> None:
    assert Elements(markdown(HOSTILE[2] + "\n\n- **a**")).tags == {"p", "ul", "li", "strong"}


def test_cells_of_words_are_isolated() -> None:
    html = html_table(Table([Column("a", words=True), Column("b")], [["שלום <b>", "1"]]))
    assert "<bdi>שלום &lt;b&gt;</bdi>" in html
    assert "<td>1</td>" in html


def test_without_the_libraries_pages_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refusal("missing-extra", "shufflesum[plots]", error=MissingExtraError):
        require_pages()


def test_the_report_of_labels_counted_in_one_process_speaks_of_no_devices_and_seals() -> None:
    labels = ss.Categories(["a", "b"])
    found = ss.aggregate(["a", "b"] * 500, domain=labels, epsilon=1.0, delta=1e-6, noise_by="users")
    assert found.plan.noise_by == "users"  # under the same plan users could send reports
    made = datetime(2026, 1, 1, tzinfo=UTC)
    one, sent = (
        Elements(report_page([found], title="t", made=made, fresh_noise=fresh)).text.lower() for fresh in (True, False)
    )
    for word in ("device", "seal", "shuffler", "analyzer", "collude", "sends what they like"):
        assert word not in one, word
        assert word in sent, word
    assert "one process holds the data of all users" in " ".join(one.split())
