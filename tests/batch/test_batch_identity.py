from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.batch.report_folders import noiseless_plan, noiseless_task
from tests.refusals import refusal

from shufflesum.batch import identity
from shufflesum.batch.identity import FORMAT, Identity
from shufflesum.errors import ParameterError, ReportsError

PLAN = noiseless_plan()
PLAIN = Identity.for_plan(PLAN)
SEALED = Identity.for_task(noiseless_task(PLAN), 1)
SPARK_KEY = b"org.apache.spark.sql.parquet.row.metadata"

short_ids = st.text("0123456789abcdef", min_size=32, max_size=32)
long_ids = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def identities(draw: st.DrawFn) -> Identity:
    shuffle_id = draw(st.none() | short_ids)
    return Identity(
        stage="reports" if shuffle_id is None else "shuffled",
        plan_id=draw(long_ids),
        users=draw(st.integers(1, 10**10)),
        reports=draw(st.integers(1, 10**6)),
        contribution_ids=tuple(sorted(draw(st.sets(short_ids, min_size=1, max_size=5)))),
        shuffle_id=shuffle_id,
        written=None if shuffle_id is None else draw(st.integers(1, 10**15)),
        task_id=draw(st.none() | long_ids),
        round_number=draw(st.integers(1, 2**32 - 1)),
        names_id=draw(st.none() | short_ids),
    )


@given(identities())
def test_text_and_schema_give_back_the_same_identity(identity: Identity) -> None:
    assert Identity.from_json(identity.to_json()) == identity
    assert Identity.from_arrow(identity.arrow_schema(), "here") == identity


def test_a_plan_and_a_task_say_all_that_a_shuffler_must_know() -> None:
    assert (PLAIN.plan_id, PLAIN.users, PLAIN.reports, PLAIN.least_reports) == (PLAN.id, 4, 3, 12)
    assert (PLAIN.stage, PLAIN.kind) == ("reports", identity.PLAIN)
    assert (SEALED.round_number, SEALED.kind) == (1, identity.SEALED)


def test_every_run_has_ids_of_its_own() -> None:
    assert Identity.for_plan(PLAN).contribution_ids != PLAIN.contribution_ids
    one, other = PLAIN.shuffled(99), PLAIN.shuffled(99)
    assert one.stage == "shuffled"
    assert one.shuffle_id != other.shuffle_id
    assert one.contribution_ids == PLAIN.contribution_ids


def test_a_round_that_the_plan_does_not_cover_is_refused() -> None:
    with refusal("wrong-round", "rounds 1", "to 1", error=ReportsError):
        Identity.for_task(noiseless_task(PLAN), 2)
    with refusal("out-of-range", "round_number is 2", "1 and 1", error=ParameterError):
        Identity.for_plan(PLAN, None, 2)


def test_reports_that_do_not_know_their_round_are_refused() -> None:
    for written in (PLAIN, SEALED):
        with refusal("malformed", error=ReportsError):
            Identity.from_json(written.to_json().replace('"round_number":1', '"round_number":null'))


def test_reports_of_several_sites_can_be_put_together() -> None:
    other = Identity.for_plan(PLAN)
    both = PLAIN.merge(other)
    assert both.contribution_ids == tuple(sorted(PLAIN.contribution_ids + other.contribution_ids))
    assert both == other.merge(PLAIN) == both.merge(PLAIN)


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        (replace(PLAIN, plan_id="a" * 64), ("mixed-reports", "plan aaaaaaaaaaaa")),
        (PLAIN.shuffled(99), ("mixed-reports", "stage shuffled")),
        (replace(PLAIN, users=5), ("changed-afterwards", "of 5 with 3")),
        (SEALED, ("mixed-reports", "sealed")),
    ],
)
def test_what_does_not_belong_together_is_named(other: Identity, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ReportsError):
        PLAIN.merge(other)


def test_two_shuffles_two_tasks_and_two_rounds_stay_apart() -> None:
    for one, other, problem, name in (
        (PLAIN.shuffled(99), PLAIN.shuffled(99), "mixed-reports", "shuffle"),
        (SEALED, replace(SEALED, task_id="b" * 64), "mixed-reports", "task bbbbbbbbbbbb"),
        (SEALED, replace(SEALED, round_number=2), "round-mismatch", "round 2"),
        (PLAIN, replace(PLAIN, round_number=2), "round-mismatch", "round 2"),
    ):
        with refusal(problem, name, error=ReportsError):
            one.merge(other)


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "sorted"},
        {"plan_id": "x" * 64},
        {"plan_id": "A" * 64},
        {"users": 0},
        {"users": True},
        {"reports": 1.5},
        {"contribution_ids": ()},
        {"contribution_ids": ("b" * 32, "a" * 32)},
        {"contribution_ids": ("a" * 32, "a" * 32)},
        {"contribution_ids": ("a" * 31,)},
        {"shuffle_id": "a" * 32},
        {"stage": "shuffled"},
        {"stage": "shuffled", "shuffle_id": 7},
        {"task_id": "a" * 63},
        {"round_number": 0},
        {"round_number": "1"},
        {"task_id": "a" * 64, "round_number": 1 << 32},
    ],
)
def test_what_no_run_could_have_written_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        replace(PLAIN, **change)
    document = json.loads(PLAIN.to_json()) | change
    with pytest.raises(ReportsError):
        Identity.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("", ("malformed",)),
        ("[]", ("malformed",)),
        ("{}", ("malformed",)),
        ("[" * 100_000, ("malformed",)),
        (json.dumps(json.loads(PLAIN.to_json()) | {"more": 1}), ("malformed", "fields")),
        (
            PLAIN.to_json().replace(FORMAT, "shufflesum-reports-1"),
            ("format-mismatch", "'shufflesum-reports-1'", "randomize again"),
        ),
        (
            '{"format":"shufflesum-reports-1","batch_ids":[]}',
            ("format-mismatch", "'shufflesum-reports-1'", "randomize again"),
        ),
        (json.dumps(json.loads(PLAIN.to_json()) | {"contribution_ids": "a" * 32}), ("malformed", "contribution ids")),
    ],
)
def test_a_damaged_description_is_refused(text: str, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ReportsError):
        Identity.from_json(text)


def spark_schema(*texts: str | None) -> Any:
    """As Spark writes it: metadata of the columns, as JSON in the file's own metadata."""
    fields = [
        {"name": "cell", "type": "long", "nullable": True, "metadata": {} if text is None else {"shufflesum": text}}
        for text in texts
    ]
    return pa.schema(
        [pa.field("cell", pa.int64())], metadata={SPARK_KEY: json.dumps({"type": "struct", "fields": fields})}
    )


def test_the_identity_is_found_in_files_that_spark_wrote() -> None:
    text = PLAIN.to_json()
    assert Identity.from_arrow(spark_schema(text), "here") == PLAIN
    assert Identity.from_arrow(spark_schema(text, None), "here") == PLAIN


def test_columns_of_different_runs_are_refused() -> None:
    with refusal("mixed-reports", error=ReportsError):
        Identity.from_arrow(spark_schema(PLAIN.to_json(), Identity.for_plan(PLAN).to_json()), "here")


@pytest.mark.parametrize("metadata", [None, {SPARK_KEY: b"{"}, {SPARK_KEY: b"[1]"}, {SPARK_KEY: b'{"fields": [3]}'}])
def test_a_file_of_something_else_is_refused(metadata: Any) -> None:
    with refusal("malformed", error=ReportsError):
        Identity.from_arrow(pa.schema([pa.field("cell", pa.uint32())], metadata=metadata), "here")


@pytest.mark.parametrize(
    ("identity", "columns", "refused"),
    [
        (PLAIN, {"coordinate": pa.uint32()}, ("unknown-column", "here", "'coordinate'", "'cell'")),
        (PLAIN, {"cell": pa.uint32(), "user": pa.string()}, ("unknown-column", "here", "'cell'")),
        (PLAIN, {"sealed": pa.binary(52)}, ("unknown-column", "here", "'cell'")),
        (PLAIN, {"cell": pa.float64()}, ("wrong-type", "here", "column 'cell'", "double")),
        (SEALED, {"sealed": pa.binary(54)}, ("wrong-type", "here", "column 'sealed'", "52 bytes")),
        (SEALED, {"sealed": pa.string()}, ("wrong-type", "here", "column 'sealed'", "52 bytes")),
    ],
)
def test_missing_columns_and_wrong_types_are_named(
    identity: Identity, columns: dict[str, Any], refused: tuple[str, ...]
) -> None:
    with refusal(*refused, error=ReportsError):
        Identity.from_arrow(pa.schema(list(columns.items()), metadata={"shufflesum": identity.to_json()}), "here")


def test_the_types_that_spark_writes_are_accepted() -> None:
    for kind in (pa.binary(), pa.large_binary(), pa.binary(52)):
        schema = pa.schema([("sealed", kind)], metadata={"shufflesum": SEALED.to_json()})
        assert Identity.from_arrow(schema, "here") == SEALED
