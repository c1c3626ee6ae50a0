from __future__ import annotations

import hmac
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.refusals import refusal

from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.keys import (
    RoundKeys,
    generate_private_key,
    load_analyzer_keys,
    load_noise_key,
    load_private_key,
    load_public_keys,
    write_key_pair,
    write_noise_key,
)

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))


def test_a_key_pair_is_written_for_its_owner_and_read_back(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        private, public = write_key_pair(tmp_path / "analyzer.v1", KEY)
    finally:
        os.umask(previous)
    assert (private.name, public.name) == ("analyzer.v1.key", "analyzer.v1.pub")
    assert sorted(tmp_path.iterdir()) == [private, public]  # nothing temporary is left
    assert private.stat().st_mode & 0o777 == 0o600
    assert load_private_key(private).private_bytes_raw() == KEY.private_bytes_raw()
    assert load_public_keys(public) == KEY.public_key().public_bytes_raw()
    assert KEY.private_bytes_raw().hex() not in public.read_text()


def test_new_keys_differ() -> None:
    assert generate_private_key().private_bytes_raw() != generate_private_key().private_bytes_raw()


@pytest.mark.parametrize("taken", ["a.key", "a.pub"])
@pytest.mark.parametrize("dangling", [False, True])
def test_keys_are_never_overwritten(tmp_path: Path, taken: str, dangling: bool) -> None:
    if dangling:
        (tmp_path / taken).symlink_to(tmp_path / "nowhere")
    else:
        (tmp_path / taken).write_text("precious")
    with refusal("exists", str(taken), error=FileError):
        write_key_pair(tmp_path / "a", KEY)
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert dangling or (tmp_path / taken).read_text() == "precious"


@pytest.mark.parametrize("late", ["a.key", "a.pub"])
def test_a_file_that_appears_at_the_last_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    link = os.link

    def link_late(source: Path, target: Path) -> None:
        if target.name == late:
            target.write_text("precious")
        link(source, target)

    monkeypatch.setattr(os, "link", link_late)
    with refusal("unwritable", str(late), error=FileError):
        write_key_pair(tmp_path / "a", KEY)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {late: "precious"}


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    with refusal("unwritable", error=FileError):
        write_key_pair(tmp_path / "missing" / "a", KEY)


def test_a_public_key_in_the_place_of_the_private_one_is_told_by_its_kind(tmp_path: Path) -> None:
    _, public = write_key_pair(tmp_path / "analyzer", generate_private_key())
    public.chmod(0o644)
    with refusal("malformed-key", error=FileError):
        load_private_key(public)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644, 0o777])
def test_a_private_key_that_others_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    private, _ = write_key_pair(tmp_path / "a", KEY)
    private.chmod(mode)
    with refusal("insecure-permissions", "be 0600", "chmod 600", error=FileError):
        load_private_key(private)
    private.chmod(0o400)
    load_private_key(private)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (b"", ""),
        (b"\xff\xfe\x00", ""),
        (b"-----BEGIN PRIVATE KEY-----", ""),
        (b"shufflesum-private-key-1", "0 bytes"),
        (b"shufflesum-private-key-1 " + b"ab" * 31, "31 bytes"),
        (b"shufflesum-private-key-1 " + b"ab" * 33, "33 bytes"),
        (b"shufflesum-private-key-1 " + b"xy" * 32, "hexadecimal"),
        (b"shufflesum-public-key-1 " + b"ab" * 32, "NAME.key"),
    ],
)
def test_a_spoiled_private_key_file_is_refused(tmp_path: Path, text: bytes, fact: str) -> None:
    path = tmp_path / "a.key"
    path.write_bytes(text)
    path.chmod(0o600)
    with refusal("malformed-key", "a.key", fact, error=FileError) as refused:
        load_private_key(path)
    assert "abab" not in str(refused.value)  # a message never shows the secret


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("shufflesum-private-key-1 " + "ab" * 32, "NAME.pub"),
        ("shufflesum-public-key-1 " + "00" * 32, "00" * 32),
        ("shufflesum-public-key-1 " + "ab" * 20, "20 bytes"),
    ],
)
def test_a_spoiled_public_key_file_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    path = tmp_path / "a.pub"
    path.write_text(text)
    with refusal("malformed-key", "a.pub", fact, error=FileError):
        load_public_keys(path)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    for load in (load_private_key, load_public_keys):
        with refusal("unreadable", error=FileError):
            load(tmp_path / "nowhere")
        with refusal("unreadable", error=FileError):
            load(tmp_path)


@pytest.fixture
def round_keys(tmp_path: Path) -> RoundKeys:
    return RoundKeys.load(RoundKeys.write(tmp_path / "a", 4)[0])


def test_every_round_has_a_key_of_its_own_and_its_public_key_is_in_the_public_file(tmp_path: Path) -> None:
    private, public = RoundKeys.write(tmp_path / "a", 4)
    assert private.stat().st_mode & 0o777 == 0o600
    keys = RoundKeys.load(private)
    published = load_public_keys(public)
    assert published == b"".join(keys.public_keys(4))
    assert len({published[start : start + 32] for start in range(0, 128, 32)}) == 4
    for number in range(1, 5):
        own = keys.private_key(number).public_key().public_bytes_raw()
        assert own == published[32 * (number - 1) : 32 * number]
        assert keys.private_key(number).private_bytes_raw().hex() not in private.read_text()


def test_a_destroyed_key_is_gone_and_later_ones_are_what_they_were(round_keys: RoundKeys) -> None:
    before = [round_keys.private_key(number).private_bytes_raw() for number in range(1, 5)]
    old = round_keys.path.read_text()
    round_keys.destroy(2)
    assert round_keys.path.read_text() != old
    assert round_keys.path.stat().st_mode & 0o777 == 0o600
    for keys in (round_keys, RoundKeys.load(round_keys.path)):
        assert keys.first_round == 3
        assert [keys.private_key(number).private_bytes_raw() for number in (3, 4)] == before[2:]
        for number in (1, 2):
            with refusal("released-before", f"round {number}", error=ReportsError):
                keys.private_key(number)
    new = round_keys.path.read_text()
    round_keys.destroy(1)  # again, and of a round before
    round_keys.destroy(2)
    assert round_keys.path.read_text() == new
    assert [entry.name for entry in sorted(round_keys.path.parent.iterdir())] == ["a.key", "a.pub"]


def test_round_keys_follow_from_one_another_as_the_page_says(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    path.write_text("shufflesum-round-private-keys-1 3 " + "11" * 32 + "\n")
    path.chmod(0o600)
    following = hmac.digest(bytes([0x11] * 32), b"shufflesum-next-round-1", "sha256")
    keys = RoundKeys.load(path)
    for seed, number in ((bytes([0x11] * 32), 3), (following, 4)):
        expected = hmac.digest(seed, b"shufflesum-round-key-1", "sha256")
        assert keys.private_key(number).private_bytes_raw() == expected


@pytest.mark.parametrize("text", ["0x3 " + "11" * 32, "3 " + "11" * 31, "3", "3 " + "zz" * 32, "\u0663 " + "11" * 32])
def test_spoiled_round_keys_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.key"
    path.write_text("shufflesum-round-private-keys-1 " + text)
    path.chmod(0o600)
    with refusal("malformed-key", "a.key", error=FileError):
        RoundKeys.load(path)


def test_an_analyzer_takes_either_kind_of_keys(tmp_path: Path, round_keys: RoundKeys) -> None:
    private, _ = write_key_pair(tmp_path / "one", KEY)
    found = load_analyzer_keys(private)
    assert isinstance(found, X25519PrivateKey)
    assert found.private_bytes_raw() == KEY.private_bytes_raw()
    assert isinstance(load_analyzer_keys(round_keys.path), RoundKeys)


@pytest.mark.parametrize("rounds", [0, 1 << 15])
def test_round_keys_have_a_limit(tmp_path: Path, rounds: int) -> None:
    with refusal("out-of-range", "rounds", error=ParameterError):
        RoundKeys.write(tmp_path / "a", rounds)


def test_keys_that_cannot_be_destroyed_are_reported(round_keys: RoundKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shufflesum.keys.replace_file", full)
    with refusal("unwritable", "a.key", error=FileError):
        round_keys.destroy(1)


def test_a_noise_key_is_for_its_owner_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.noise"
    write_noise_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(load_noise_key(path)) == 32
    with refusal("exists", "a.noise", error=FileError):
        write_noise_key(path)
    path.chmod(0o640)
    with refusal("insecure-permissions", "chmod 600", error=FileError):
        load_noise_key(path)
    path.chmod(0o600)
    with refusal("malformed-key", "NAME.key", error=FileError):
        load_private_key(path)
