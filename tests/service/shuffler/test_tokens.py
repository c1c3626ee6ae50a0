from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.refusals import refusal

from shufflesum.cli.task import tokens_command as command
from shufflesum.errors import FileError, ParameterError
from shufflesum.service.http.messages import Refusal
from shufflesum.service.shuffler.tokens import Tokens, token_digest, write_tokens


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "tokens.txt", tmp_path / "tokens.sha256"


def test_the_shuffler_knows_each_token_and_no_other(files: tuple[Path, Path]) -> None:
    write_tokens(200, *files)
    tokens = files[0].read_text().split()
    book = Tokens.load(files[1])
    assert len(set(tokens)) == len(book) == 200
    assert all(token_digest(token) in book for token in tokens)
    assert all(book.check(f"Token {token}") == token_digest(token) for token in tokens)
    assert bytes(32) not in book
    assert bytes([255] * 32) not in book


def test_the_shufflers_file_lets_nobody_upload_and_tells_no_order(files: tuple[Path, Path]) -> None:
    write_tokens(50, *files)
    digests = files[1].read_text().split()
    assert digests == sorted(digests)
    assert not set(digests) & set(files[0].read_text().split())
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("", "token-missing"),
        ("Bearer abc", "token-missing"),
        ("Token", "token-unknown"),
        ("Token xyz", "token-unknown"),
        ("Token " + "00" * 16, "token-unknown"),
        ("Token " + "00" * 32, "token-unknown"),
        ("Token \xff", "token-unknown"),
    ],
)
def test_a_missing_token_is_told_from_an_unknown_one(header: str, problem: str) -> None:
    with pytest.raises(Refusal) as caught:
        Tokens([token_digest("11" * 16)]).check(header)
    assert caught.value.problem == problem


def test_tokens_are_never_overwritten_and_never_left_without_digests(files: tuple[Path, Path]) -> None:
    files[1].write_text("precious")
    with refusal("exists", error=FileError):
        write_tokens(1, *files)
    assert not files[0].exists()
    assert files[1].read_text() == "precious"
    with refusal("out-of-range", "count is 0", error=ParameterError):
        write_tokens(0, *files)


@pytest.mark.parametrize("content", ["", "zz", "00" * 16, "\xe9"])
def test_another_file_is_no_file_of_digests(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with refusal("malformed", error=FileError):
        Tokens.load(tmp_path / "file")


def test_the_command_writes_both_files(files: tuple[Path, Path]) -> None:
    result = CliRunner().invoke(command, ["--count", "3", "-o", str(files[0]), "--digests", str(files[1])])
    assert result.exit_code == 0, result.output
    assert len(Tokens.load(files[1])) == 3
