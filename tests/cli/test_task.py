from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.refusals import lacking

from shufflesum.keys import RoundKeys, load_private_key, load_public_keys
from shufflesum.noise_keys import NoiseKey
from shufflesum.wire import Task

if TYPE_CHECKING:
    from tests.cli.conftest import Command

VECTORS = Path(__file__).parent.parent / "vectors"
GOLDEN = VECTORS / "golden_task.json"
CREATE = (
    "task create --plan plan.json --shuffler https://shuffler.example.org --analyzer-key a.pub --name heart "
    "-o task.json"
)


@pytest.fixture
def prepared(command: Command, folder: Path) -> Path:
    """A folder with a plan and a key pair."""
    (folder / "plan.json").write_text(json.dumps(json.loads(GOLDEN.read_bytes())["plan"]))
    assert command("keygen", "-o", "a").code == 0
    return folder


def test_keygen_writes_a_pair_that_belongs_together(command: Command, folder: Path) -> None:
    done = command("keygen", "-o", "a")
    assert (done.code, done.err) == (0, "")
    assert done.out == "wrote a.key (secret: it stays with the analyzer) and a.pub\n"
    private = load_private_key("a.key")
    assert private.public_key().public_bytes_raw() == load_public_keys("a.pub")
    assert private.private_bytes_raw().hex() not in done.out
    assert (folder / "a.key").stat().st_mode & 0o777 == 0o600


def test_keygen_never_overwrites(command: Command, folder: Path) -> None:
    command("keygen", "-o", "a")
    before = (folder / "a.key").read_bytes()
    done = command("keygen", "-o", "a")
    assert done.code == 2
    assert lacking(done.err, "[exists]", "a.key") == []
    assert (folder / "a.key").read_bytes() == before


def test_keygen_writes_keys_of_rounds_and_a_noise_key(command: Command, folder: Path) -> None:
    assert (
        command("keygen", "-o", "a", "--rounds", "3").out
        == "wrote a.key (secret: it stays with the analyzer) and a.pub\n"
    )
    assert b"".join(RoundKeys.load("a.key").public_keys(3)) == load_public_keys("a.pub")
    done = command("keygen", "--noise", "shuffler")
    assert (
        done.out
        == "wrote shuffler.noise (secret: it stays with one server) and shuffler.noise.used, its list of uses\n"
    )
    assert NoiseKey("shuffler.noise").fingerprint not in (folder / "shuffler.noise").read_text()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("", "missing-argument"),
        ("-o a --noise b", "missing-argument"),
        ("--noise b --rounds 2", "conflicting-arguments"),
    ],
)
def test_keygen_refuses_what_names_no_keys(command: Command, folder: Path, options: str, problem: str) -> None:
    done = command("keygen", *options.split())
    assert done.code == 2
    assert lacking(done.err, f"[{problem}]", "--noise") == []
    assert list(folder.iterdir()) == []


def test_a_created_task_says_what_it_means_and_can_be_loaded(command: Command, prepared: Path) -> None:
    done = command(*CREATE.split(), "--expires", "2098-01-01T00:00:00Z")
    assert (done.code, done.err) == (0, "")
    task = Task.load("task.json")
    assert task.name == "heart"
    assert task.analyzer_key == load_public_keys("a.pub")
    assert task.expires == datetime(2098, 1, 1, tzinfo=UTC)
    for expected in (
        task.id,
        "at least 1,000",
        f"{task.upload_bytes} bytes",
        "epsilon 1.0, delta 1e-6 for one user",
        "all 2 rounds",
        "wrote task.json",
    ):
        assert expected in done.out
    shown = command("task", "show", "task.json")
    assert shown.code == 0
    assert done.out == shown.out + "wrote task.json\n"


def test_without_expiry_a_task_lasts_thirty_days(command: Command, prepared: Path) -> None:
    command(*CREATE.split())
    left = Task.load("task.json").expires - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)


def test_show_prints_one_object_for_programs(command: Command) -> None:
    document = command("task", "show", GOLDEN, "--json").document
    task = Task.load(GOLDEN)
    assert document["id"] == task.id
    shown = (document["expired"], document["upload_bytes"], document["smallest_batch"])
    assert shown == (False, task.upload_bytes, 1000)


def test_an_expired_task_is_shown_as_such(command: Command, folder: Path) -> None:
    golden = Task.load(GOLDEN)
    past = Task(golden.name, golden.plan, golden.analyzer_key, golden.shuffler, datetime(2020, 1, 1, tzinfo=UTC))
    (folder / "past.json").write_text(past.to_json())
    assert "2020-01-01 00:00:00 UTC (it has expired)" in command("task", "show", "past.json").out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--expires", "2020-01-01T00:00:00Z"), ("[expired]", "--expires 2020-01-01T00:00:00Z")),
        (("--expires", "soon"), ("[wrong-type]", "'soon'", "UTC")),
        (("--plan", "missing.json"), ("[unreadable]", "missing.json")),
        (("--plan", "a.pub"), ("[malformed]", "a.pub")),
        (("--analyzer-key", "a.key"), ("[malformed-key]", "a.key", "NAME.pub")),
        (("--analyzer-key", "plan.json"), ("[malformed-key]", "plan.json")),
        (("--shuffler", "shuffler.example.org"), ("[malformed-address]", "shuffler is 'shuffler.example.org'")),
        (("--name", " "), ("[out-of-range]", "name is ' '", "1 to 200")),
        (("-o", "missing/task.json"), ("[unwritable]", "missing/task.json")),
        (("-o", "task.txt"), ("[unknown-file-type]", "task.txt", "'.txt'")),
        (("-o", "plan.json"), ("[exists]", "plan.json")),
    ],
)
def test_a_refused_task_writes_nothing(
    command: Command, prepared: Path, change: tuple[str, str], said: tuple[str, ...]
) -> None:
    before = {path: path.read_bytes() for path in prepared.iterdir()}
    option, value = change
    words = CREATE.split()
    given = words.index(option) if option in words else len(words)
    done = command(*words[:given], option, value, *words[given + 2 :])
    assert done.code == 2
    assert lacking(done.err, *said) == []
    assert {path: path.read_bytes() for path in prepared.iterdir()} == before


def test_a_changed_task_is_not_shown(command: Command, folder: Path) -> None:
    (folder / "bad.json").write_text(GOLDEN.read_text().replace("shuffler.example.org", "evil.example.org"))
    done = command("task", "show", "bad.json")
    assert (done.code, done.out) == (2, "")
    assert lacking(done.err, "[changed-afterwards]", "bad.json") == []
