"""Files of labels to folders of reports: pieces, parts and names; what is read is what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.batch.report_folders import shuffle_folder
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.batch.files import open_dataset
from shufflesum.batch.identity import PLAIN
from shufflesum.batch.local import Users, count, open_users, randomize
from shufflesum.batch.targets import PlainTarget
from shufflesum.domains import Categories, Domain, GroupBy, MultiChoice, OpenVocabulary
from shufflesum.errors import DataError, FileError, ParameterError, ReportsError
from shufflesum.mechanisms import NoisySlots
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.release import release
from shufflesum.tables.sources import ReadOptions

LABELS = ["a", "b", "c"]


def silent(domain: Domain, users: int = 5, rounds: int = 1) -> Plan:
    """A plan whose slots are always blank: reports are the labels, and nothing is guaranteed."""
    return Plan(domain, NoisySlots(2, 0.0), Guarantee(float("inf"), 1.0, users, rounds=rounds, accountant="none"))


def users_in(path: Path, domain: Domain, column: str | None = None, **options: Any) -> Users:
    columns = options.pop("columns", None)
    return open_users(path, ReadOptions(column=column, columns=columns, **options).for_domain(domain))


def table_of(path: Path, plan: Plan, work: Path, round_number: int = 1) -> Any:
    counts, _ = count(open_dataset(shuffle_folder(path, work), stage="shuffled"), PlainTarget(plan, round_number))
    assert counts.rejected == 0
    return counts.table


def test_a_folder_of_files_is_counted_label_by_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(PLAIN), "part_reports", 300)
    monkeypatch.setattr(type(PLAIN), "piece_reports", 30)
    folder = tmp_path / "users"
    folder.mkdir()
    labels = np.random.default_rng(0).choice(LABELS, 250, p=[0.6, 0.3, 0.1])
    for number, part in enumerate(np.array_split(labels, 3)):
        (folder / f"{number}.csv").write_text("id,label\n" + "".join(f"{i},{x}\n" for i, x in enumerate(part)))
    plan = silent(Categories(LABELS))
    dataset = randomize(users_in(folder, plan.domain, "label"), tmp_path / "r", PlainTarget(plan))
    assert dataset.rows == 750
    assert len(dataset.files) == 3
    expected = [(labels == label).sum() for label in LABELS]
    np.testing.assert_array_equal(table_of(tmp_path / "r", plan, tmp_path / "s"), expected)


def test_pieces_of_labels_keep_their_rows(tmp_path: Path) -> None:
    domain = Categories(LABELS)
    parquet.write_table(pa.table({"label": list("abcabca")}), tmp_path / "x.parquet")
    pieces = list(users_in(tmp_path / "x.parquet", domain).pieces(domain, 5, 2))
    assert [(piece.row, len(piece.rows)) for piece in pieces] == [(0, 2), (2, 2), (4, 1), (5, 2)]
    assert [code for piece in pieces for code in domain.block(piece.rows).cells] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("domain", "columns"),
    [
        (Categories(LABELS), {"x": ["a", "b", "?", "c", "a"]}),
        (MultiChoice(LABELS, max_choices=2), {"x": [["a"], [], ["b", "?"], ["c"], ["a", "b"]]}),
        (GroupBy(LABELS, (2,)), {"x": ["a", "b", "?", "c", "a"], "u": [0.5] * 5, "v": [0.1] * 5}),
    ],
    ids=["categories", "choices", "groups"],
)
def test_a_label_that_is_none_stops_everything_and_is_named(
    tmp_path: Path, domain: Categories | MultiChoice | GroupBy, columns: dict[str, Any]
) -> None:
    plan = ss.plan(users=1000, domain=domain, epsilon=8.0, delta=1e-3)
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    with refusal("unknown-label", "x.parquet", "row 2", "'?'", error=DataError):
        randomize(users_in(tmp_path / "x.parquet", domain, "x"), tmp_path / "r", PlainTarget(plan))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.parquet"]


def test_files_of_a_folder_must_have_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("label,u\na,1\n")
    (tmp_path / "2.csv").write_text("label,v\na,1\n")
    with refusal("mixed-files", "2.csv", error=FileError):
        users_in(tmp_path, GroupBy(LABELS, ()), "label")
    assert users_in(tmp_path, Categories(LABELS), "label").names == ("label",)


def test_groups_of_other_columns_are_not_mixed(tmp_path: Path) -> None:
    plan = ss.plan(users=1000, domain=ss.GroupBy(["a", "b"], ()), epsilon=8.0, delta=1e-3)
    for name in ("u", "v"):
        (tmp_path / f"{name}.csv").write_text(f"label,{name}\na,0.5\nb,0.5\n")
        randomize(users_in(tmp_path / f"{name}.csv", plan.domain, "label"), tmp_path / name, PlainTarget(plan))
    first, second = (open_dataset(tmp_path / name, stage="reports").identity for name in ("u", "v"))
    with refusal("mixed-reports", error=ReportsError):
        first.merge(second)


def test_a_user_is_refused_in_whichever_file(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text(f"who,label\nu,{LABELS[number]}\n")
    with refusal("repeated-user", "'u'", error=DataError):
        users_in(tmp_path, Categories(LABELS), "label", user_column="who")


@pytest.mark.parametrize("round_number", [1, 2])
def test_words_reach_one_of_their_own_cells(tmp_path: Path, round_number: int) -> None:
    plan = silent(OpenVocabulary(50, 4, bytes(range(16))), rounds=2)
    words = ["tea"] * 30 + ["maté"] * 20
    (tmp_path / "w.csv").write_text("word\n" + "\n".join(words) + "\n")
    randomize(users_in(tmp_path / "w.csv", plan.domain, "word"), tmp_path / "r", PlainTarget(plan, round_number))
    table = table_of(tmp_path / "r", plan, tmp_path / "s", round_number).reshape(4, 50)
    domain = plan.domain.of_round(round_number)
    assert isinstance(domain, OpenVocabulary)
    tea, mate = domain.bucket_table(domain.texts(["tea", "mate\u0301"]))
    assert table[np.arange(4), tea].sum() == 30
    assert table[np.arange(4), mate].sum() == 20


def test_from_files_to_the_counts_of_choices(tmp_path: Path) -> None:
    plan = ss.plan(users=1000, domain=ss.MultiChoice(LABELS, max_choices=2), epsilon=1.0, delta=1e-6)
    parquet.write_table(pa.table({"x": [["a", "b"], ["a"]] * 500}), tmp_path / "x.parquet")
    randomize(users_in(tmp_path / "x.parquet", plan.domain), tmp_path / "r", PlainTarget(plan))
    counts, _ = count(open_dataset(shuffle_folder(tmp_path / "r", tmp_path / "s"), stage="shuffled"), PlainTarget(plan))
    estimate = release(counts)
    assert isinstance(estimate, ss.CountEstimate)
    low, high = estimate.count_interval(1 - 1e-7)  # exact: three of them fail with probability at most 3e-7
    assert np.all((low <= [1000, 500, 0]) & (high >= [1000, 500, 0]))
    assert not np.all((low <= [500, 1000, 0]) & (high >= [500, 1000, 0]))


def test_numbers_need_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("label,u\na,1\n")
    with refusal("conflicting-arguments", "'label'", error=ParameterError):
        users_in(tmp_path / "x.csv", ss.plan(users=5, shape=1, epsilon=8.0, delta=0.1).domain, "label")
