"""Options from a file: what counts, where it came from, and what is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import pytest

import shufflesum as ss
from shufflesum.cli import _group
from shufflesum.cli.commands import hidden, option_name

if TYPE_CHECKING:
    from tests.cli.conftest import Command

SAMPLES = Path(__file__).parents[2] / "deploy"
SHUFFLER = """
[serve.shuffler]
task = "task.json"
store = "sqlite:uploads.db"
secret-file = "secret"
port = 1111
show-progress = true
allow-origin = ["https://a.example.org", "https://b.example.org"]
"""


@pytest.fixture
def file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SHUFFLESUM_CONFIG", "SHUFFLESUM_PORT", "SHUFFLESUM_STORE", "SHUFFLESUM_TASK"):
        monkeypatch.delenv(name, raising=False)
    path = folder / "shufflesum.toml"
    path.write_text(SHUFFLER)
    return path


def said(text: str) -> dict[str, tuple[str, str]]:
    """Option: value and source, as `--check` prints them."""
    rows = re.findall(r"^  (\S+) +(.*)  \[(.+)\]$", text, flags=re.MULTILINE)
    return {name: (value, source) for name, value, source in rows}


CHECK = ("serve", "shuffler", "--check")
LINE = (*CHECK, "--analyzer", "https://analyzer.example.org")


def test_options_count_before_the_environment_and_that_before_the_file(
    command: Command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = said(command("--config", file, *LINE).out)
    assert found["port"] == ("1111", "file")
    assert found["show-progress"] == ("true", "file")
    assert found["allow-origin"] == ("https://a.example.org https://b.example.org", "file")
    assert found["max-pending"] == ("2000", "default")
    assert found["analyzer-ca"] == ("none", "default")
    monkeypatch.setenv("SHUFFLESUM_PORT", "2222")
    assert said(command("--config", file, *LINE).out)["port"] == ("2222", "environment")
    assert said(command("--config", file, *LINE, "--port", 3333).out)["port"] == ("3333", "option")
    monkeypatch.setenv("SHUFFLESUM_CONFIG", str(file))
    assert said(command(*LINE).out)["store"] == ("sqlite:uploads.db", "file")


def test_a_command_line_is_refused_by_the_check_as_by_the_command(command: Command, file: Path) -> None:
    done = command("--config", file, *CHECK)
    assert done.code == 2
    assert "--analyzer" in done.err


@pytest.mark.parametrize(
    ("content", "problem", "named"),
    [
        ("[serve.shuffler]\nprot = 1", "unknown-choice", "'prot'"),
        ("[serve.shufler]\nport = 1", "unknown-choice", "'serve shufler'"),
        ("port = 1", "unknown-choice", "'port'"),
        ("serve = 1", "wrong-type", "'serve'"),
        ("send = 1", "wrong-type", "'send'"),
        ("[serve.shuffler]\nallow-origin = 'https://a.example.org'", "wrong-type", "allow-origin"),
        ("[serve.shuffler]\nshow-progress = 'yes'", "wrong-type", "show-progress"),
        ("[serve.shuffler]\nstore = true", "wrong-type", "store"),
        ("[serve.shuffler]\nport = [1]", "wrong-type", "port"),
        ("[serve.shuffler]\nport = 2020-01-01", "wrong-type", "port"),
        ("[serve.shuffler", "malformed", "shufflesum.toml"),
        ("[serve.shuffler]\nport = 1\nport = 2", "malformed", "shufflesum.toml"),
    ],
)
def test_what_is_no_option_is_refused_by_name(
    command: Command, file: Path, content: str, problem: str, named: str
) -> None:
    file.write_text(content)
    done = command("--config", file, "status", "--check")
    assert done.code == 2
    assert f"[{problem}]" in done.err
    assert named in done.err


def test_a_value_is_read_as_if_it_had_been_typed(command: Command, file: Path) -> None:
    file.write_text(SHUFFLER.replace("1111", "8080.5"))  # Python would cut it to 8080
    done = command("--config", file, *LINE)
    assert done.code == 2
    assert "--port" in done.err
    assert "configuration file" in done.err


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hunter2@db/uploads",
        "postgresql://me:hun@ter2/hunter2@db/uploads",
        "postgresql://db/uploads?user=me&password=hunter2",
        "https://me:hunter2@analyzer.example.org",
    ],
)
def test_passwords_are_neither_printed_nor_left_open(
    command: Command, file: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ter2" not in hidden(address)
    monkeypatch.setenv("SHUFFLESUM_STORE", address)
    done = command("--config", file, *LINE)
    assert done.code == 0
    assert "ter2" not in done.out + done.err
    file.write_text(f"[serve.shuffler]\nstore = '{address}'")
    file.chmod(0o640)
    done = command("--config", file, *LINE)
    assert "[insecure-permissions]" in done.err
    assert "ter2" not in done.out + done.err
    file.chmod(0o600)
    assert command("--config", file, *LINE, "--task", "task.json").code == 0


def test_a_plain_address_is_shown() -> None:
    for address in (
        "postgresql://me@db:5432/uploads",
        "sqlite:/var/lib/uploads.db",
        "https://analyzer.example.org:8443",
    ):
        assert hidden(address) == address


def test_settings_of_spark_are_not_printed(command: Command, file: Path) -> None:
    file.write_text("[randomize]\nengine = 'spark'\nconf = ['spark.hadoop.fs.s3a.secret.key=hunter2']")
    found = said(command("--config", file, "randomize", "users.csv", "--output", "reports", "--check").out)
    assert found["conf"] == ("spark.hadoop.fs.s3a.secret.key=(hidden)", "file")


def test_batch_steps_take_their_options_from_the_file(command: Command, file: Path) -> None:
    plan = ss.plan(users=300, shape=2, epsilon=4.0, delta=1e-2, bounds=(0.0, 1.0))
    Path("plan.json").write_text(plan.to_json())
    np.save("users.npy", np.full((300, 2), 0.5))
    file.write_text(
        "[randomize]\nplan = 'plan.json'\noutput = 'reports'\nmemory = '200MB'\nworkers = 1\n"
        "[shuffle]\noutput = 'shuffled'\nmemory = '200MB'\nworkers = 1\n"
        "[analyze]\nplan = 'plan.json'\njson = true\nworkers = 1\n"
    )
    assert command("--config", file, "randomize", "users.npy").code == 0
    assert command("--config", file, "shuffle", "reports").code == 0
    assert command("--config", file, "analyze", "shuffled").document["estimate"]["users"] == 300


@pytest.mark.parametrize("name", ["shuffler", "analyzer"])
def test_the_sample_files_hold_all_that_a_server_needs(command: Command, name: str) -> None:
    done = command("--config", SAMPLES / f"{name}.toml", "serve", name, "--check")
    assert done.code == 0
    given = {option for option, (_, source) in said(done.out).items() if source == "file"}
    text = (SAMPLES / f"{name}.toml").read_text()
    assert given == tomllib.loads(text)["serve"][name].keys()
    commented = re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE)
    assert commented != text
    wide = Path("wide.toml")
    wide.write_text(commented)
    assert command("--config", wide, "serve", name, "--check").code == 0


@pytest.mark.parametrize(
    "name", ["serve shuffler", "serve analyzer", "send", "estimate", "status", "randomize", "shuffle", "analyze"]
)
def test_every_option_has_a_variable_named_after_it(name: str) -> None:
    context, found = click.Context(_group), click.Command("")
    for word in name.split():
        found = context.command.get_command(context, word)  # type: ignore[attr-defined]
        context = click.Context(found, parent=context, info_name=word, **found.context_settings)
    for option in found.params:
        if isinstance(option, click.Option):
            variable = f"SHUFFLESUM_{option_name(option).upper().replace('-', '_')}"
            assert option.get_help_extra(context).get("envvars") == (variable,), option.name
