"""A noise key: the same bits for the same set, whatever happened in between, and nothing for another set."""

from __future__ import annotations

import copy
import hmac
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from tests.refusals import refusal

from shufflesum.errors import CopyError, FileError, ReportsError
from shufflesum.ledger import Ledger
from shufflesum.noise_keys import NoiseKey, draw_keys
from shufflesum.randomness import KeyedSource, random_uints

TASK, SET, OTHER = "5a" * 32, bytes([1] * 32), bytes([2] * 32)


@pytest.fixture
def key(tmp_path: Path) -> NoiseKey:
    return NoiseKey(NoiseKey.write(tmp_path / "shuffler")[0])


def test_keys_follow_from_the_noise_key_as_the_page_says() -> None:
    purpose = struct.pack(">32sI32s", bytes.fromhex(TASK), 7, SET)
    draw = hmac.digest(b"k" * 32, b"shufflesum-draw-1 analyzer " + purpose, "sha256")
    found = draw_keys(b"k" * 32, "analyzer", TASK, 7, SET)
    labels = (b"noise", b"seals", b"order")
    assert (found.noise, found.seals, found.order) == tuple(hmac.digest(draw, label, "sha256") for label in labels)


def test_all_that_a_draw_is_for_changes_every_key() -> None:
    given = [
        draw_keys(b"k" * 32, "shuffler", TASK, 1, SET),
        draw_keys(b"l" * 32, "shuffler", TASK, 1, SET),
        draw_keys(b"k" * 32, "analyzer", TASK, 1, SET),
        draw_keys(b"k" * 32, "shuffler", "5b" * 32, 1, SET),
        draw_keys(b"k" * 32, "shuffler", TASK, 2, SET),
        draw_keys(b"k" * 32, "shuffler", TASK, 1, OTHER),
    ]
    assert len({each for keys in given for each in (keys.noise, keys.seals, keys.order)}) == 3 * len(given)
    assert str(given[0].noise) not in repr(given[0])


def test_a_keyed_source_is_aes_256_in_counter_mode_whatever_the_pieces() -> None:
    expected = Cipher(algorithms.AES256(b"k" * 32), modes.CTR(bytes(16))).encryptor().update(bytes(3 << 20))
    source, drawn = KeyedSource(b"k" * 32), bytearray()
    for size in (1, 3, 4, 1000, 1 << 20):
        drawn += random_uints(source, size, np.uint8).tobytes()
    assert bytes(drawn) == expected[: len(drawn)]
    assert random_uints(KeyedSource(b"k" * 32), 2, np.uint64).tolist() == list(struct.unpack("<2Q", expected[:16]))
    with refusal("only-once", error=CopyError):
        copy.copy(source)


def test_the_same_set_gets_the_same_keys_after_a_restart_and_another_set_none(key: NoiseKey) -> None:
    first = key.bind("shuffler", TASK, 1, SET)
    for again in (key, NoiseKey(key.path)):
        assert again.bind("shuffler", TASK, 1, SET) == first
        with refusal("released-before", "shuffler.noise", "round 1", error=ReportsError):
            again.bind("shuffler", TASK, 1, OTHER)
        assert again.bound("shuffler", TASK, 1) == SET
        assert again.bound("shuffler", TASK, 2) is None
    assert key.bind("shuffler", TASK, 2, OTHER) != first  # another round, another set
    assert key.bind("analyzer", TASK, 1, OTHER) != first  # what is counted is another thing than what is handed over


def test_an_analyzer_with_another_noise_key_is_refused(key: NoiseKey) -> None:
    key.bind("shuffler", TASK, 1, SET, partner="aa" * 16)
    for other in ("bb" * 16, None):
        with refusal("key-mismatch", "aa" * 16, "--noise-key", error=ReportsError):
            key.bind("shuffler", TASK, 1, SET, partner=other)
    key.bind("shuffler", TASK, 1, SET, partner="aa" * 16)


def test_two_servers_do_not_draw_with_one_key(key: NoiseKey) -> None:
    # each would know the other's noise, and could take it off what is published
    with refusal("key-mismatch", "keygen --noise", error=ReportsError):
        key.bind("shuffler", TASK, 1, SET, partner=key.fingerprint)
    assert key.bound("shuffler", TASK, 1) is None


def test_what_a_key_is_used_for_is_on_the_disk_before_anybody_has_its_bits(
    key: NoiseKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FileError("unwritable", "no room")

    monkeypatch.setattr("shufflesum.ledger.Change.append", full)
    with refusal("unwritable", error=FileError):
        key.bind("shuffler", TASK, 1, SET)
    monkeypatch.undo()
    assert key.bound("shuffler", TASK, 1) is None
    key.bind("shuffler", TASK, 1, OTHER)  # nothing was released, so this set may be


def test_a_key_without_its_list_or_with_another_ones_is_refused(key: NoiseKey, tmp_path: Path) -> None:
    used = Path(f"{key.path}.used")
    other, other_used = NoiseKey.write(tmp_path / "other")
    saved = used.read_bytes()
    used.unlink()
    with refusal("unreadable", "shuffler.noise.used", "missing", error=FileError):
        NoiseKey(key.path)
    with refusal("unwritable", error=FileError):
        key.bind("shuffler", TASK, 1, SET)
    shutil.copy(other_used, used)
    with refusal("key-mismatch", "shuffler.noise.used", error=FileError):
        NoiseKey(key.path)
    used.write_bytes(saved)
    assert NoiseKey(key.path).fingerprint != NoiseKey(other).fingerprint
    used.unlink()
    Ledger(used, "shufflesum-noise-used-1", "list", "").create({"key": key.fingerprint}, {"role": "shuffler"})
    with refusal("damaged", error=FileError):
        NoiseKey(key.path)


def test_an_older_list_is_noticed_by_whoever_has_seen_a_newer_one(key: NoiseKey) -> None:
    used = Path(f"{key.path}.used")
    old = used.read_bytes()
    key.bind("shuffler", TASK, 1, SET)
    used.write_bytes(old)
    with refusal("rolled-back", error=FileError):
        key.bind("shuffler", TASK, 1, OTHER)


def test_nothing_is_left_of_a_key_whose_list_could_not_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise FileError("unwritable", "no room")

    monkeypatch.setattr("shufflesum.noise_keys.Ledger.create", full)
    with refusal("unwritable", error=FileError):
        NoiseKey.write(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_list_that_is_there_is_never_begun_anew(key: NoiseKey) -> None:
    key.path.unlink()
    with refusal("exists", "noise.used", error=FileError):
        NoiseKey.write(key.path.with_suffix(""))
