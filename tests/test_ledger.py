"""A ledger forgets nothing: damage, missing records and older copies refuse everything, and nothing is half written."""

from __future__ import annotations

import os
import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refusal

from shufflesum import ledger as ledger_module
from shufflesum.errors import FileError
from shufflesum.ledger import Ledger, records_in

FORMAT = "shufflesum-test-1"
TWO = ({"first": 1}, {"second": "zwei"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def ledger(path: Path, format: str = FORMAT) -> Ledger:
    return Ledger(path, format, "ledger of a test", "mend it")


def append(path: Path, *contents: dict[str, Any]) -> None:
    with ledger(path).change() as change:
        for content in contents:
            change.append(content)


def test_what_is_added_is_read_in_order_and_nothing_else_lies_about(path: Path) -> None:
    assert ledger(path).read() == ()
    ledger(path).create(TWO[0])
    append(path, TWO[1])
    assert ledger(path).read() == TWO
    with ledger(path).change() as change:
        change.replace({"all": 3})
    assert ledger(path).read() == ({"all": 3},)
    assert [entry.name for entry in path.parent.iterdir()] == ["ledger.db"]
    with refusal("exists", error=FileError):
        ledger(path).create()
    with refusal("format-mismatch", "shufflesum-test-2", error=FileError):
        ledger(path, "shufflesum-test-2").read()


def test_after_an_error_nothing_was_added(path: Path) -> None:
    append(path, TWO[0])

    def fail() -> None:
        with ledger(path).change() as change:
            change.append(TWO[1])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert ledger(path).read() == TWO[:1]


@pytest.mark.long
def test_every_byte_that_is_changed_is_noticed_or_says_nothing(path: Path) -> None:
    """In memory with many flips, in the file with one: SQLite has bytes of its own, and room that nobody reads."""
    append(path, *TWO)
    good, refused = path.read_bytes(), 0
    source = random.Random(1)
    for place in range(len(good)):
        for flip in (1, 2, 3, 4, 8, 16, 32, 64, 128, 255):
            changed = bytearray(good)
            changed[place] ^= flip
            try:
                assert records_in(bytes(changed), FORMAT) == TWO
            except ValueError:
                refused += 1
        changed = bytearray(good)
        changed[place] ^= source.randrange(1, 256)
        path.write_bytes(changed)
        try:
            assert ledger(path).read() == TWO
        except FileError as error:
            assert error.problem in ("damaged", "format-mismatch")  # noqa: PT017
            assert path.read_bytes() == changed
    assert refused > 1000


def test_a_change_of_what_was_written_is_noticed_wherever_it_is(path: Path) -> None:
    append(path, *TWO)
    good = path.read_bytes()
    for statement in (
        "UPDATE record SET content = replace(content, 1, 2) WHERE number = 1",
        "UPDATE record SET mark = zeroblob(8) WHERE number = 2",
        "UPDATE record SET number = 3 WHERE number = 2",
        "DELETE FROM record WHERE number = 2",
        "DELETE FROM record WHERE number = 1",
        "DELETE FROM record",
        "UPDATE head SET count = 1",
        "UPDATE head SET checksum = zeroblob(32)",
        "DELETE FROM head",
        "INSERT INTO head SELECT * FROM head",
        "INSERT INTO record SELECT 3, mark, content, checksum FROM record WHERE number = 2",
        "CREATE TABLE more (number)",
        "CREATE TRIGGER forget AFTER INSERT ON record BEGIN DELETE FROM record; END",
    ):
        path.write_bytes(good)
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(statement)
        connection.close()
        for act in (ledger(path).read, lambda: append(path, {"third": 3})):
            with refusal("damaged", "ledger.db", "mend it", error=FileError):
                act()


def test_a_file_that_is_cut_is_refused_and_left_alone(path: Path) -> None:
    append(path, *TWO)
    good = path.read_bytes()
    for length in (0, 1, 16, 99, 100, *range(256, len(good), 128), len(good) - 1):
        path.write_bytes(good[:length])
        with refusal("damaged", error=FileError):
            append(path, {"third": 3})
        assert path.read_bytes() == good[:length]


def test_an_open_ledger_refuses_an_older_copy_even_after_the_same_was_added_again(path: Path) -> None:
    append(path, TWO[0])
    older, opened = path.read_bytes(), ledger(path)
    with opened.change() as change:
        change.append(TWO[1])
    path.write_bytes(older)
    with refusal("rolled-back", error=FileError):
        opened.read()
    append(path, TWO[1])
    assert ledger(path).read() == TWO
    with refusal("rolled-back", error=FileError), opened.change():
        pass
    path.unlink()
    with refusal("unreadable", "does not exist", error=FileError):
        opened.read()
    with refusal("unwritable", "does not exist", error=FileError), opened.change():
        pass
    assert not path.exists()


def test_one_that_holds_the_file_forever_is_not_waited_for_forever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "PATIENCE", 0.02)
    with ledger(path).change() as change:
        change.append(TWO[0])
        with refusal("in-use", error=FileError):
            append(path, TWO[1])
        assert ledger(path).read() == ()
    append(path, TWO[1])
    assert ledger(path).read() == TWO


def test_threads_that_begin_with_no_file_lose_nothing(path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: append(path, {"number": number}), range(12)))
    assert sorted(record["number"] for record in ledger(path).read()) == list(range(12))


def test_a_second_name_is_refused_and_a_link_is_the_file_it_points_to(path: Path) -> None:
    link, name = path.with_name("link"), path.with_name("name")
    link.symlink_to(path)
    append(link, TWO[0])
    append(path, TWO[1])
    assert ledger(link).read() == TWO
    assert link.is_symlink()
    name.hardlink_to(path)
    for place in (path, name, link):
        with refusal("in-use", "names", error=FileError):
            append(place, TWO[0])
    name.unlink()
    assert ledger(path).read() == TWO


def test_places_where_no_file_can_be_are_refused(tmp_path: Path) -> None:
    with refusal("unreadable", error=FileError):
        ledger(tmp_path).read()
    with refusal("unwritable", error=FileError):
        append(tmp_path / "missing" / "ledger.db", TWO[0])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_only_be_read_can_be_read(path: Path) -> None:
    append(path, TWO[0])
    path.chmod(0o400)
    assert ledger(path).read() == TWO[:1]
    with refusal("unwritable", error=FileError):
        append(path, TWO[1])


def test_a_disk_without_room_adds_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, TWO[0])

    def no_room(*given: Any, real: Any = sqlite3.connect, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = real(*given, **named)
        connection.execute("PRAGMA max_page_count = 1")  # as large as it is, and no larger
        return connection

    with monkeypatch.context() as patched, refusal("unwritable", "full", error=FileError):
        patched.setattr(sqlite3, "connect", no_room)
        append(path, {"long": "x" * 5000})
    assert ledger(path).read() == TWO[:1]


def test_every_change_waits_for_the_disk_and_its_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()

    def watched(*given: Any, real: Any = sqlite3.connect, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = real(*given, **named)
        connection.set_trace_callback(said.append)
        return connection

    append(path, TWO[0])
    monkeypatch.setattr(sqlite3, "connect", watched)
    append(path, TWO[1])
    assert "PRAGMA synchronous = EXTRA" in said
    assert said.index("BEGIN IMMEDIATE") < said.index("COMMIT") == len(said) - 1
