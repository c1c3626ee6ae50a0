from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.plans import SEAL_BYTES
from shufflesum.wire import (
    SEALED_BYTES,
    Opened,
    Opener,
    generate_private_key,
    load_private_key,
    load_public_key,
    open_many,
    seal_info,
    seal_many,
    write_key_pair,
)
from shufflesum.wire.hpke import Recipient

LIBRARY = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
INFO = seal_info("5a" * 32, 1)
PLAIN = np.arange(4 * REPORT_BYTES, dtype=np.uint8).reshape(4, REPORT_BYTES)
SEALED = seal_many(PLAIN, KEY.public_key(), INFO)


def rows(opened: Opened) -> list[list[int]]:
    return [list(map(int, row)) for row in opened.encoded]


def numbered(count: int) -> NDArray[np.uint8]:
    return np.arange(count, dtype=">u8").view(np.uint8).reshape(count, 8)[:, 8 - REPORT_BYTES :]


def opened_or_refused(opening: Callable[[bytes], bytes], message: bytes) -> bytes | None:
    try:
        return opening(message)
    except (InvalidTag, ValueError):
        return None


# --- seals ---


@given(st.lists(st.binary(min_size=REPORT_BYTES, max_size=REPORT_BYTES), max_size=5))
@settings(max_examples=30)
def test_what_is_sealed_opens_in_the_same_order_at_the_same_size(plain: list[bytes]) -> None:
    encoded = np.frombuffer(b"".join(plain), dtype=np.uint8).reshape(-1, REPORT_BYTES)
    sealed = seal_many(encoded, KEY.public_key(), INFO)
    assert sealed.shape == (len(plain), REPORT_BYTES + SEAL_BYTES)
    for form in (sealed, sealed.tobytes()):
        opened = open_many(form, KEY, INFO)
        assert opened.encoded.tobytes() == b"".join(plain)
        assert opened.rejected == 0


def test_equal_reports_look_different_when_sealed() -> None:
    sealed = seal_many(np.zeros((20, REPORT_BYTES), dtype=np.uint8), KEY.public_key(), INFO)
    for part in (slice(0, 32), slice(32, None)):  # neither ephemeral keys nor ciphertexts repeat
        assert len({row[part].tobytes() for row in sealed}) == 20


@given(st.integers(0, SEALED_BYTES * 8 - 1))
def test_a_report_with_any_bit_flipped_is_rejected_and_the_others_are_kept(bit: int) -> None:
    broken = SEALED.copy()
    broken[1, bit // 8] ^= 1 << bit % 8
    opened = open_many(broken, KEY, INFO)
    assert opened.rejected == 1
    assert rows(opened) == PLAIN[[0, 2, 3]].tolist()


@given(st.binary(min_size=SEALED_BYTES, max_size=SEALED_BYTES))
def test_arbitrary_bytes_are_rejected_never_an_error(data: bytes) -> None:
    assert open_many(data, KEY, INFO).rejected == 1


@given(
    plain=st.binary(max_size=200),
    info=st.binary(max_size=200),
    private=st.binary(min_size=32, max_size=32),
    flip=st.none() | st.integers(0),
)
def test_a_recipient_opens_what_the_library_opens_and_nothing_else(
    plain: bytes, info: bytes, private: bytes, flip: int | None
) -> None:
    key = X25519PrivateKey.from_private_bytes(private)
    message = bytearray(LIBRARY.encrypt(plain, key.public_key(), info))
    if flip is not None:
        message[flip // 8 % len(message)] ^= 1 << flip % 8
    assert opened_or_refused(Recipient(key, info).open, bytes(message)) == opened_or_refused(
        lambda sealed: LIBRARY.decrypt(sealed, key, info), bytes(message)
    )


@pytest.mark.parametrize("length", [0, 31, 32, 47])
def test_a_message_too_short_to_be_a_seal_is_refused(length: int) -> None:
    assert opened_or_refused(Recipient(KEY, INFO).open, SEALED[0].tobytes()[:length]) is None


@pytest.mark.parametrize("point", [0, 1, 2**255 - 19, 2**255 - 20, 2**255 - 18, 2**256 - 1])
def test_ephemeral_keys_of_low_order_are_rejected(point: int) -> None:
    opened = open_many(point.to_bytes(32, "little") + bytes(SEALED_BYTES - 32), KEY, INFO)
    assert (opened.rejected, len(opened.encoded)) == (1, 0)


@pytest.mark.parametrize(
    "info",
    [
        b"",
        seal_info("5a" * 32, 2),
        seal_info("5b" + "5a" * 31, 1),
        INFO.replace(b"\x00\x02\x01\x03", b"\x00\x01\x01\x03"),  # wire version
        INFO.replace(b"\x00\x02\x01\x03", b"\x00\x02\x03\x01"),  # roles
    ],
)
def test_a_seal_opens_only_for_its_version_roles_task_and_round(info: bytes) -> None:
    assert info != INFO
    assert open_many(SEALED, KEY, info).rejected == 4


def test_a_seal_opens_only_with_its_key() -> None:
    assert open_many(SEALED, generate_private_key(), INFO).rejected == 4


def test_sealed_bytes_that_are_no_whole_reports_are_refused() -> None:
    with pytest.raises(ReportsError, match=r"53 bytes of sealed reports; .* whole reports of 52 bytes"):
        open_many(bytes(53), KEY, INFO)


# --- opening on all cores ---


@pytest.fixture(scope="module")
def opener() -> Iterator[Opener]:
    with Opener(KEY, processes=2) as made:
        yield made


@pytest.fixture(scope="module")
def many() -> NDArray[np.uint8]:
    """More sealed reports than one block, every tenth unreadable."""
    sealed = seal_many(numbered(2500), KEY.public_key(), INFO)
    broken = sealed.copy()
    broken[::10, 40] ^= 1
    return broken


def test_processes_open_what_one_process_opens_in_the_same_order(opener: Opener, many: NDArray[np.uint8]) -> None:
    opened = opener.open_many(many, INFO)
    assert opened.rejected == 250
    np.testing.assert_array_equal(opened.encoded, numbered(2500)[np.arange(2500) % 10 > 0])
    assert opener._pool is not None  # processes did it


def test_a_killed_process_costs_time_but_no_reports(many: NDArray[np.uint8], opener: Opener) -> None:
    opener.open_many(many, INFO)
    pool = opener._pool
    assert pool is not None
    for process in pool._processes.values():
        process.kill()
    assert opener.open_many(many, INFO).rejected == 250
    assert opener.open_many(many, INFO).rejected == 250
    assert opener._pool not in (None, pool)


def test_few_reports_start_no_processes() -> None:
    with Opener(KEY, processes=2) as opener:
        assert rows(opener.open_many(SEALED, INFO)) == PLAIN.tolist()
        assert rows(opener.open_many(SEALED[:0], INFO)) == []
        assert opener._pool is None


def test_closing_twice_is_fine_and_an_opener_knows_its_public_key() -> None:
    opener = Opener(KEY)
    assert opener.public_key == KEY.public_key().public_bytes_raw()
    opener.close()
    opener.close()


def test_no_processes_are_refused() -> None:
    with pytest.raises(ParameterError, match="processes is 0; at least one"):
        Opener(KEY, processes=0)


SCRIPT = """
import time
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from shufflesum.wire import Opener

if __name__ == "__main__":
    opener = Opener(X25519PrivateKey.generate(), processes=2)
    opener.open_many(bytes(52 * 2049), b"")
    print(*opener._pool._processes, flush=True)
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize("way", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_the_processes_end_with_their_parent_even_if_it_is_killed(tmp_path: Path, way: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(alive, workers))
        parent.send_signal(way)
        parent.wait(timeout=30)
        deadline = time.monotonic() + 20
        while any(map(alive, workers)):
            assert time.monotonic() < deadline, "workers outlive their parent"
            time.sleep(0.02)


# --- key files ---


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
    assert load_public_key(public) == KEY.public_key().public_bytes_raw()
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
    with pytest.raises(FileError, match=rf"{taken} exists and keys are never overwritten"):
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
    with pytest.raises(FileError, match=f"{late}: cannot be written: File exists"):
        write_key_pair(tmp_path / "a", KEY)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {late: "precious"}


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written: No such file or directory; choose"):
        write_key_pair(tmp_path / "missing" / "a", KEY)


def test_a_public_key_in_the_place_of_the_private_one_is_told_by_its_kind(tmp_path: Path) -> None:
    _, public = write_key_pair(tmp_path / "analyzer", generate_private_key())
    public.chmod(0o644)
    with pytest.raises(FileError, match="it holds a public key; give the private key"):
        load_private_key(public)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644, 0o777])
def test_a_private_key_that_others_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    private, _ = write_key_pair(tmp_path / "a", KEY)
    private.chmod(mode)
    with pytest.raises(FileError, match=rf"\(mode {mode:04o}\); it must be 0600: chmod 600"):
        load_private_key(private)
    private.chmod(0o400)
    load_private_key(private)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "no key file"),
        (b"\xff\xfe\x00", "no key file"),
        (b"-----BEGIN PRIVATE KEY-----", "no key file"),
        (b"shufflesum-private-key-1", "0 bytes"),
        (b"shufflesum-private-key-1 " + b"ab" * 31, "31 bytes; an X25519 key has 32"),
        (b"shufflesum-private-key-1 " + b"ab" * 33, "33 bytes"),
        (b"shufflesum-private-key-1 " + b"xy" * 32, "not written in hexadecimal"),
        (b"shufflesum-public-key-1 " + b"ab" * 32, "holds a public key; give the private key, NAME.key"),
    ],
)
def test_a_spoiled_private_key_file_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "a.key"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(FileError, match=f"a.key: .*{said}") as refused:
        load_private_key(path)
    assert "abab" not in str(refused.value)  # a message never shows the secret


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shufflesum-private-key-1 " + "ab" * 32, "holds a private key; give the public key, NAME.pub"),
        ("shufflesum-public-key-1 " + "00" * 32, "low order"),
        ("shufflesum-public-key-1 " + "ab" * 20, "20 bytes"),
    ],
)
def test_a_spoiled_public_key_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.pub"
    path.write_text(text)
    with pytest.raises(FileError, match=said):
        load_public_key(path)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    for load in (load_private_key, load_public_key):
        with pytest.raises(FileError, match=r"cannot read the (private|public) key .*nowhere: No such file"):
            load(tmp_path / "nowhere")
        with pytest.raises(FileError, match="Is a directory"):
            load(tmp_path)
