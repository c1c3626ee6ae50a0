from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.plan_builders import with_guarantee, with_mechanism
from tests.refusals import refusal

from shufflesum.errors import FileError, ParameterError, PlanError
from shufflesum.sealing import Opener
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Task, TaskError, UploadError, parse_time

GOLDEN = Path(__file__).parent.parent / "vectors" / "golden_task.json"
TASK = Task.load(GOLDEN)
TEXT = TASK.to_json()


def test_a_task_survives_its_file_exactly(tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    path.write_text(TEXT)
    loaded = Task.load(path)
    assert loaded == TASK
    assert loaded.id == TASK.id
    assert loaded.to_json() == TEXT


def test_the_id_is_the_hash_of_the_canonical_content() -> None:
    content = json.loads(TEXT)
    del content["id"]
    content["plan"] = content["plan"]["id"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(canonical.encode()).hexdigest() == TASK.id


def test_a_task_offers_what_its_plan_covers() -> None:
    assert TASK.smallest_batch == TASK.plan.users == 1000
    assert TASK.rounds == TASK.plan.rounds == 2
    assert TASK.upload_bytes == 54 + 52 * TASK.plan.reports
    assert TASK.public_key(1).public_bytes_raw() == TASK.analyzer_key


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"shuffler": "http://localhost:8080"},
        {"expires": TASK.expires + timedelta(seconds=1)},
        {"analyzer_key": X25519PrivateKey.generate().public_key().public_bytes_raw()},
        {"plan": with_guarantee(TASK.plan, users=TASK.plan.users + 1)},
    ],
)
def test_everything_in_a_task_enters_its_id(change: dict[str, Any]) -> None:
    assert replace(TASK, **change).id != TASK.id


def test_a_task_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TASK.name = "other"  # type: ignore[misc]


def leaves(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(document, dict):
        return [leaf for key, value in document.items() for leaf in leaves(value, (*path, key))]
    if isinstance(document, list):
        return [leaf for i, value in enumerate(document) for leaf in leaves(value, (*path, i))]
    return [path]


def changed(value: Any) -> Any:
    if isinstance(value, str):
        return value[:-1] + ("a" if value[-1] != "a" else "b")
    return value + 1 if isinstance(value, int) else value * 1.001 + (value == 0)


@pytest.mark.parametrize("path", leaves(json.loads(TEXT)), ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("how", ["changed", "removed", "nulled"])
def test_a_task_file_with_any_value_touched_is_refused(path: tuple[Any, ...], how: str) -> None:
    document = json.loads(TEXT)
    *above, last = path
    place = document
    for key in above:
        place = place[key]
    if how == "removed":
        del place[last]
    else:
        place[last] = changed(place[last]) if how == "changed" else None
    with pytest.raises(TaskError):
        Task.from_json(json.dumps(document))


def test_predictions_may_end_differently_on_another_machine() -> None:
    document = json.loads(TEXT)
    document["plan"]["expected_error"]["total"] *= 1 + 1e-13
    assert Task.from_json(json.dumps(document)) == TASK


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, "malformed") for text in ("", "[]", "null", "{" * 5000, "[" * 100_000, b"\xff\xfe")),
        *((text, "format-mismatch") for text in ("{}", '{"plan": 1e999}')),
    ],
)
def test_what_is_no_task_is_refused(text: str | bytes, problem: str) -> None:
    with refusal(problem, "shufflesum task create", error=TaskError):
        Task.from_json(text)


def test_a_task_file_that_is_missing_or_bad_is_named(tmp_path: Path) -> None:
    with refusal("unreadable", "nowhere.json", error=FileError):
        Task.load(tmp_path / "nowhere.json")
    (tmp_path / "bad.json").write_text("{}")
    with refusal("format-mismatch", "bad.json", error=TaskError):
        Task.load(tmp_path / "bad.json")


@pytest.mark.parametrize("name", ["", " padded", "two\nlines", "bell\a", "x" * 201])
def test_a_name_that_would_confuse_is_refused(name: str) -> None:
    with refusal("out-of-range", "be 1", "to 200", error=ParameterError):
        replace(TASK, name=name)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "shuffler.example.org",
        "ftp://shuffler.example.org",
        "https://",
        "https://user:password@shuffler.example.org",
        "https://shuffler.example.org/?user=7",
        "https://shuffler.example.org/?",
        "https://shuffler.example.org/#here",
        "https://shuffler.example.org/a b",
        "https://shuffler.example.org/\n",
        "https://shuffler.example.org:port/",
        "https://shuffler.example.org:0/",
        "https://[::1",
        "https://schüttler.example.org",
    ],
)
def test_a_shuffler_that_is_no_plain_address_is_refused(url: str) -> None:
    with refusal("malformed-address", error=ParameterError):
        replace(TASK, shuffler=url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://[::1]:8443/", "https://a.example/deep/path"])
def test_plain_addresses_are_accepted(url: str) -> None:
    assert replace(TASK, shuffler=url).shuffler == url


@pytest.mark.parametrize(
    ("key", "fact"), [(b"", "0 bytes"), (bytes(31), "31 bytes"), (bytes(33), "33 bytes"), (bytes(32), "low order")]
)
def test_a_key_that_protects_nothing_is_refused(key: bytes, fact: str) -> None:
    with refusal("malformed-key", fact, error=ParameterError):
        replace(TASK, analyzer_key=key)


def test_expiry_is_no_reason_not_to_load() -> None:
    past = replace(TASK, expires=datetime(2020, 1, 1, tzinfo=UTC))
    assert Task.from_json(past.to_json()) == past
    assert TASK.expired_at(TASK.expires)
    assert not TASK.expired_at(TASK.expires - timedelta(seconds=1))


def test_expiry_is_kept_in_utc() -> None:
    eastern = timezone(timedelta(hours=5))
    task = replace(TASK, expires=datetime(2031, 1, 1, 3, tzinfo=eastern))
    assert json.loads(task.to_json())["expires"] == "2030-12-31T22:00:00Z"


@pytest.mark.parametrize("moment", [datetime(2031, 1, 1), datetime(2031, 1, 1, 0, 0, 0, 1, tzinfo=UTC)])
def test_a_vague_expiry_is_refused(moment: datetime) -> None:
    with refusal("wrong-type", error=ParameterError):
        replace(TASK, expires=moment)


@pytest.mark.parametrize("text", ["", "tomorrow", "2031-05-01", "2031-05-01T12:00:00", "2031-02-30T12:00:00Z"])
def test_times_are_read_strictly(text: str) -> None:
    assert parse_time("2031-05-01T12:00:00Z") == datetime(2031, 5, 1, 12, tzinfo=UTC)
    with refusal("wrong-type", "2031-05-01T12", "00", "00Z", error=ParameterError):
        parse_time(text)


def test_a_plan_without_a_guarantee_cannot_be_put_in_a_task() -> None:
    plan = unprotected_plan(users=10, shape=2)
    with refusal("no-guarantee", error=PlanError):
        replace(TASK, plan=plan)


def test_a_plan_that_claims_too_much_cannot_be_put_in_a_task() -> None:
    with pytest.raises(PlanError):
        replace(TASK, plan=with_mechanism(TASK.plan, noise_probability=2.0**-10))


def falsely_claimed() -> str:
    """As if made by somebody who lies about the noise: everything agrees but the guarantee."""
    return replace(TASK, plan=with_mechanism(TASK.plan, noise_probability=2.0**-10), verify_guarantee=False).to_json()


def test_a_guarantee_is_believed_only_where_that_is_asked_for() -> None:
    with refusal("claim-not-confirmed", error=TaskError):
        Task.from_json(falsely_claimed())
    believed = Task.from_json(falsely_claimed(), verify=False)
    assert not believed.verified
    with refusal("claim-not-confirmed", error=PlanError):
        believed.verify()
    assert not believed.verified
    assert TASK.verified
    unverified = Task.from_json(TEXT, verify=False)
    assert unverified == TASK
    unverified.verify()
    assert unverified.verified


def test_without_the_guarantee_all_the_rest_of_a_task_is_checked() -> None:
    for old, new in (('"name": "', '"name": "x'), ('"users": 1000', '"users": 1001'), ('"levels": ', '"levels": 1')):
        assert old in TEXT
        with pytest.raises(TaskError):
            Task.from_json(TEXT.replace(old, new), verify=False)
    with refusal("no-guarantee", error=PlanError):
        replace(TASK, plan=unprotected_plan(users=10, shape=2), verify_guarantee=False)


def test_the_wrong_private_key_is_noticed_before_anything_is_rejected() -> None:
    opener = Opener(X25519PrivateKey.generate(), processes=1)
    with refusal("key-mismatch", error=ParameterError):
        TASK.open_reports(b"", 1, opener)


@pytest.mark.parametrize("call", [TASK.check_round, lambda number: TASK.check_round(-number)])
def test_rounds_beyond_the_guarantee_are_refused(call: Callable[[int], None]) -> None:
    with refusal("wrong-round", "rounds 1", "to 2", error=UploadError) as refused:
        call(3)
    assert refused.value.problem == "wrong-round"
