"""Estimates where people look at them: as data frames, in notebooks, as pictures, and as files that are read back."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal
from tests.slow_params import slow_among

import shufflesum as ss
from shufflesum._documents import decode_checked, encode_checked
from shufflesum.errors import FileError, MissingExtraError, ParameterError, PlanError
from shufflesum.testing import SeededSource

TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
RNG = np.random.default_rng(3)
USERS = 3000
VECTORS = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
KINDS = ("means", "named", "matrix", "span", "counts", "choices", "groups", "words", "ball")


@cache
def estimate(kind: str) -> Any:
    numbers = RNG.random((USERS, 2))
    labels = ["yes", "no & <b>maybe</b>"]
    held: dict[str, tuple[Any, dict[str, Any]]] = {
        "means": (RNG.random((USERS, 40)), {}),
        "named": (numbers, {"columns": ["age", "<script>alert(1)</script>"]}),
        "matrix": (RNG.random((USERS, 2, 3)), {}),
        "span": (numbers @ VECTORS, {"shape": ss.Span(VECTORS)}),
        "counts": (RNG.choice(labels, USERS), {"domain": ss.Categories(labels)}),
        "choices": ([["a"], ["a", "b"], []] * (USERS // 3), {"domain": ss.MultiChoice(["a", "b"], max_choices=2)}),
        "groups": (
            numbers,
            {"domain": ss.GroupBy(["x", "y", "nobody"], 2), "group_by": RNG.choice(["x", "y"], USERS)},
        ),
        "words": (RNG.choice(["cat", "owl"], USERS), {"domain": ss.OpenVocabulary()}),
        "ball": (RNG.normal(0, 0.1, (USERS, 6)), {"domain": ss.L2Ball(6, 1.0), "clip": True}),
    }
    arrays, choices = held[kind]
    found = ss.aggregate(arrays, source=SeededSource(5), **TARGET, **choices)
    return found.counts_of(["cat", "owl", "emu"]) if isinstance(found, ss.VocabularyEstimate) else found


def hashed() -> ss.VocabularyEstimate:
    words = estimate("words")
    return ss.VocabularyEstimate(words.plan, words.users, words.rejected, words.table)


@pytest.mark.parametrize("kind", slow_among(KINDS, ["ball", "matrix"]))
def test_what_is_printed_is_what_a_notebook_shows(kind: str) -> None:
    for shown in (estimate(kind), estimate(kind).plan):
        text = str(shown)
        assert repr(shown) != text
        assert shown.plan.id[:12] in text if shown is estimate(kind) else shown.id[:12] in text
        assert "epsilon 1.0" in text
        said = re.sub(r"<[^>]+>", "\n", shown._repr_html_())
        printed = {word for line in text.splitlines() for word in line.removeprefix("note:").split()}
        assert set(html.unescape(said).split()) == printed


def test_columns_of_a_printed_table_stand_below_each_other() -> None:
    rows = [line for line in str(estimate("named")).splitlines() if line.startswith(("  entry", "  age", "  <script>"))]
    assert len(rows) == 3
    assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_data_frame_of_either_library(kind: str, library: Any) -> None:
    found = estimate(kind)
    frame = found.to_frame(0.9, library=library)
    assert type(frame).__module__.startswith(library)
    counted = "share" in frame.columns
    values = found.counts if counted else found.mean
    low, high = found.count_interval(0.9) if counted else found.confidence_interval(0.9)
    for name, expected in (("value", values), ("lower", low), ("upper", high)):
        np.testing.assert_array_equal(frame[name].to_numpy(), np.ravel(expected))


def test_frames_carry_names_of_columns_groups_and_labels() -> None:
    assert list(estimate("named").to_frame()["name"]) == ["age", "<script>alert(1)</script>"]
    assert list(estimate("groups").to_frame()["group"]) == ["x", "x", "y", "y", "nobody", "nobody"]
    assert list(estimate("words").to_frame()["name"]) == ["cat", "owl", "emu"]
    broken = replace(estimate("means"), broken="so").to_frame()
    assert set(broken["notes"]) == {"NO GUARANTEE: so"}


def test_a_picture_of_words_needs_words_and_other_libraries_are_refused() -> None:
    with refusal("missing-argument", "counts_of", error=ParameterError):
        hashed().plot()
    with refusal("unknown-choice", "duckdb", error=ParameterError):
        estimate("means").to_frame(library="duckdb")


@pytest.mark.processes
@pytest.mark.slow
def test_without_either_library_a_frame_says_what_to_install() -> None:
    """In a process of its own, which cannot find them, nor Altair; with only Polars it is a frame of that."""
    program = """
import importlib.util, sys
hidden, find = {"pandas", "polars", "altair"}, importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in hidden else find(name, *rest)
import numpy as np, shufflesum as ss
estimate = ss.aggregate(np.zeros((2000, 2)), epsilon=1.0, delta=1e-6)
for ask in (estimate.to_frame, lambda: estimate.to_frame(library="polars"), estimate.plot):
    try:
        ask()
    except ss.ShufflesumError as error:
        print(error.problem, error)
hidden.remove("polars")
print(type(estimate.to_frame()).__module__)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    first, second, third, frame = done.stdout.splitlines()
    assert first.startswith("missing-extra")
    assert "pandas" in first
    assert "pip install polars" in second
    assert "shufflesum[plots]" in third
    assert frame.startswith("polars")


class Seen(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style"}
        assert not any("url" in str(value) for _, value in attrs)
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_a_small_escaped_table_without_scripts(kind: str) -> None:
    found = estimate(kind)
    page = found._repr_html_()
    seen = Seen(page)
    assert set(seen.tags) <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert seen.tags.count("tr") <= 13
    assert len(page) < 12_000
    assert "3,000 users" in seen.text
    assert "epsilon 1.0, delta 1e-6" in seen.text
    assert "NO GUARANTEE: <i>so</i>" in Seen(replace(found, broken="<i>so</i>")._repr_html_()).text


@pytest.mark.parametrize("kind", ["named", "counts", "groups"])
def test_what_a_notebook_shows_of_an_interval_holds_all_of_it(kind: str) -> None:
    """Ends far from 0, and not of few digits."""
    found = estimate(kind)
    if kind != "counts":
        domain = found.plan.domain.with_bounds((50_000.0, 50_010.0))
        found = replace(found, plan=replace(found.plan, domain=domain))
    ends = found.count_interval() if kind == "counts" else found.confidence_interval()
    lower, upper = (end[np.isfinite(end)].reshape(-1) for end in map(np.asarray, ends))
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in found._repr_html_().split("<tr")]
    ends_shown = [row[-1 if kind == "groups" else -2].split(" to ") for row in rows if row and row[-1]]
    shown = np.array([[float(text.replace(",", "")) for text in pair] for pair in ends_shown])
    assert len(shown) == len(lower)
    assert np.all((shown[:, 0] <= lower) & (upper <= shown[:, 1]))
    assert np.all(shown[:, 1] - shown[:, 0] <= 1.2 * (upper - lower))


def test_a_notebook_shows_names_as_they_are_and_says_what_is_left_out() -> None:
    assert "<script>alert(1)</script>" in Seen(estimate("named")._repr_html_()).text
    assert "no & <b>maybe</b>" in Seen(estimate("counts")._repr_html_()).text
    assert "12 of 40 entries are shown" in Seen(estimate("means")._repr_html_()).text
    assert "too few" in Seen(estimate("groups")._repr_html_()).text
    assert "counts_of(words)" in Seen(hashed()._repr_html_()).text


def test_a_notebook_shows_plans() -> None:
    plan = ss.plan(users=100, shape=2, bounds=(0, 24), epsilon=11.0, delta=0.05, rounds=2, honest_fraction=0.9)
    text = Seen(plan._repr_html_()).text
    said = ("at least 100 users", "over 2 rounds if 90 users are honest", "1/users", "above 10", "bounds 0 to 24")
    for words in (plan.id[:12], f"{4 * plan.reports:,} bytes in all", *said):
        assert words in text


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_picture(kind: str) -> None:
    chart = estimate(kind).plot(title="A title")
    document = chart.chart.to_dict()
    assert "A title" in json.dumps(document)
    assert "3,000 users, epsilon 1.0, delta 1e-6" in json.dumps(document)


def test_a_missing_extra_is_an_error_of_its_own() -> None:
    assert issubclass(MissingExtraError, ss.ShufflesumError)


@pytest.mark.parametrize("kind", KINDS)
def test_an_estimate_is_read_back_as_it_was_saved(kind: str, tmp_path: Path) -> None:
    found, path = estimate(kind), tmp_path / "estimate.json"
    found.save(path)
    again = type(found).load(path)
    assert again.plan == found.plan
    assert (again.users, again.rejected, again.broken, again.round_number) == (found.users, 0, None, 1)
    np.testing.assert_array_equal(again.table, found.table)
    assert again.to_frame().equals(found.to_frame())
    assert not again.table.flags.writeable


def test_round_and_broken_guarantee_are_kept_and_words_can_be_asked_for_later(tmp_path: Path) -> None:
    path = tmp_path / "estimate.json"
    plan = ss.plan(users=500, shape=2, rounds=3, **TARGET)
    second = ss.aggregate(np.full((600, 2), 0.5), plan=plan, round_number=2, source=SeededSource(1))
    replace(second, broken="a reason").save(path)
    again = ss.BaseEstimate.load(path)
    assert (again.round_number, again.broken, again.guarantee_holds) == (2, "a reason", False)
    assert "round 2 of 3" in Seen(again._repr_html_()).text
    hashed().save(path)
    held = ss.VocabularyEstimate.load(path)
    np.testing.assert_array_equal(held.counts_of(["cat", "owl", "emu"]).counts, estimate("words").counts)
    with refusal("wrong-type", "VocabularyEstimate", error=FileError):
        ss.CountEstimate.load(path)


def saved(tmp_path: Path, kind: str = "means") -> tuple[Path, dict[str, Any]]:
    path = tmp_path / "estimate.json"
    estimate(kind).save(path)
    return path, decode_checked(path.read_bytes(), "shufflesum-estimate-1")


def test_a_changed_byte_is_refused(tmp_path: Path) -> None:
    path, _ = saved(tmp_path)
    data = path.read_bytes()
    for place in range(0, len(data), 97):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with refusal(("damaged", "format-mismatch"), str(path), error=FileError):
            ss.Estimate.load(path)
    path.write_bytes(data[:-5])
    with refusal("damaged", error=FileError):
        ss.Estimate.load(path)
    with refusal("unreadable", error=FileError):
        ss.Estimate.load(tmp_path / "none.json")
    with refusal("unwritable", error=FileError):
        estimate("means").save(tmp_path / "no folder" / "estimate.json")


CHANGES: dict[str, tuple[Any, str]] = {
    "a better guarantee": (lambda file: file["plan"]["guarantee"].update(epsilon=0.5), "changed-afterwards"),
    "a round too many": (lambda file: file.update(round=2), "out-of-range"),
    "no users": (lambda file: file.update(users=0), "changed-afterwards"),
    "half a user": (lambda file: file.update(users=3000.5), "changed-afterwards"),
    "less than no reports rejected": (lambda file: file.update(rejected_reports=-1), "changed-afterwards"),
    "more reports than users send": (lambda file: file.update(rejected_reports=10**9), "changed-afterwards"),
    "rejected reports, and all users honest": (lambda file: file.update(rejected_reports=1), "changed-afterwards"),
    "a table of another size": (lambda file: file.update(table=packed(np.zeros(7))), "changed-afterwards"),
    "no table": (lambda file: file.update(table=[1, 2]), "changed-afterwards"),
    "no reason": (lambda file: file.update(why_broken=""), "changed-afterwards"),
    "words of numbers": (lambda file: file.update(words=["a"]), "changed-afterwards"),
    "one field more": (lambda file: file.update(mean=[0.5]), "malformed"),
    "one field less": (lambda file: file.pop("round"), "malformed"),
}


@pytest.mark.parametrize("most", [0, 2**32 - 1, 2**32, 2**63 - 1])
def test_tables_of_any_counts_are_read_back(most: int) -> None:
    from shufflesum.estimate import table_from_json

    table = np.array([0, most, 1])
    assert table_from_json(packed(table), 3).tolist() == table.tolist()


def test_counts_that_no_table_can_have_are_refused() -> None:
    from shufflesum.estimate import table_from_json

    with pytest.raises(ValueError, match="beyond"):
        table_from_json(packed(np.array([0, -1, 2**40])), 3)


def packed(table: Any) -> dict[str, Any]:
    from shufflesum.estimate import table_to_json

    return table_to_json(table.astype(np.int64))


@pytest.mark.parametrize("name", CHANGES)
def test_what_cannot_be_is_refused_also_under_a_fresh_checksum(name: str, tmp_path: Path) -> None:
    path, content = saved(tmp_path)
    change, problem = CHANGES[name]
    path.write_text(encode_checked("shufflesum-estimate-1", content))
    ss.Estimate.load(path)  # nothing changed yet
    change(content)
    path.write_text(encode_checked("shufflesum-estimate-1", content))
    with refusal(problem, str(path), error=(FileError, PlanError)):
        ss.Estimate.load(path)


def test_a_plan_that_claims_more_than_its_noise_gives_is_refused_with_its_estimate(tmp_path: Path) -> None:
    path, content = saved(tmp_path)
    plan = estimate("means").plan
    lying = replace(plan, guarantee=replace(plan.guarantee, epsilon=0.5))
    content["plan"] = lying.summary()
    path.write_text(encode_checked("shufflesum-estimate-1", content))
    with refusal("claim-not-confirmed", error=PlanError):
        ss.Estimate.load(path)


def test_a_table_that_honest_users_cannot_have_sent_says_so_or_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "estimate.json"
    plan = ss.plan(
        users=200, shape=2, mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=1), epsilon=4.0, delta=1e-4
    )
    found = ss.aggregate(np.full((200, 2), 0.5), plan=plan, source=SeededSource(2))
    table = found.table.copy()
    table[:2] += [[10, 0], [0, 10]][0]
    table[2:] -= [10, 0]  # ten users sent both reports for the first coordinate
    unlikely = replace(found, table=table)
    replace(unlikely, broken="ten users cheated").save(path)
    assert ss.Estimate.load(path).broken == "ten users cheated"
    unlikely.save(path)
    with refusal("changed-afterwards", "did not follow the protocol", error=FileError):
        ss.Estimate.load(path)


def test_the_guides_notebook_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    section = re.search(r"## Notebooks\n(.*?)\n## ", guide, flags=re.DOTALL)
    assert section is not None
    (block,) = re.findall(r"```python\n(.*?)```", section[1], flags=re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", section[1], flags=re.DOTALL)
    exec(block, {})
    # Secure randomness: figures differ in each run, the words do not.
    words = re.compile(r"[\s\d.-]+")
    assert words.sub(" ", capsys.readouterr().out) == words.sub(" ", shown)


@pytest.mark.processes
def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shufflesum", "--version"], capture_output=True, text=True, check=True, timeout=100
    )
    assert re.search(re.escape(ss.__version__), done.stdout)
