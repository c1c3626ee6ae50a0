"""Sealing and opening on all cores."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray
from tests.forked_processes import start_forked, wait_until
from tests.refusals import refusal

from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import ParameterError
from shufflesum.sealing import SEALED_BYTES, Opener, Sealer, open_many, seal_info, seal_many, seal_with_keys

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
INFO = seal_info("5a" * 32, 1)
MANY = 1500  # more than one block


def numbered(count: int) -> NDArray[np.uint8]:
    return np.arange(count, dtype=">u8").view(np.uint8).reshape(count, 8)[:, 8 - REPORT_BYTES :]


@pytest.fixture(scope="module")
def opener() -> Iterator[Opener]:
    with Opener(KEY, processes=2) as made:
        yield made


@pytest.fixture(scope="module")
def sealer() -> Iterator[Sealer]:
    with Sealer(KEY.public_key(), INFO, processes=2) as made:
        yield made


@pytest.fixture(scope="module")
def many() -> NDArray[np.uint8]:
    """Sealed reports, every tenth unreadable."""
    sealed = seal_many(numbered(MANY), KEY.public_key(), INFO).copy()
    sealed[::10, 40] ^= 1
    return sealed


def test_processes_open_what_one_process_opens_in_the_same_order(opener: Opener, many: NDArray[np.uint8]) -> None:
    """Killed ones cost time but no reports, and new ones take their place."""
    for processes in (True, False, True):
        opened = opener.open_many(many, INFO)
        assert opened.rejected == MANY // 10
        np.testing.assert_array_equal(opened.encoded, numbered(MANY)[np.arange(MANY) % 10 > 0])
        assert (opener._pool is not None) == processes
        if opener._pool is not None:
            for process in opener._pool._processes.values():
                process.kill()


def test_processes_seal_what_one_process_seals_in_the_same_order(sealer: Sealer) -> None:
    np.testing.assert_array_equal(open_many(sealer(numbered(MANY)), KEY, INFO).encoded, numbered(MANY))
    assert sealer._pool is not None


def test_processes_keep_positions_and_given_keys_with_their_reports(opener: Opener, sealer: Sealer) -> None:
    positions = np.arange(MANY) // 7
    keys = np.random.default_rng(1).integers(256, size=(MANY, 32), dtype=np.uint8)
    given = sealer.with_keys(numbered(MANY), keys, positions)
    np.testing.assert_array_equal(given, seal_with_keys(numbered(MANY), keys, KEY.public_key(), INFO, positions))
    for sealed in (given, sealer(numbered(MANY), positions)):
        opened = opener.open_many(sealed, INFO, positions)
        assert opened.readable.all()
        np.testing.assert_array_equal(opened.encoded, numbered(MANY))
        assert not opener.open_many(sealed, INFO, positions + 1).readable.any()


def test_few_reports_start_no_processes() -> None:
    with Opener(KEY, processes=2) as opener, Sealer(KEY.public_key(), INFO, processes=2) as sealer:
        for count in (0, 512):
            sealed = sealer(numbered(count))
            np.testing.assert_array_equal(opener.open_many(sealed, INFO).encoded, numbered(count))
        assert opener._pool is sealer._pool is None


def test_closing_twice_is_fine_and_an_opener_knows_its_public_key() -> None:
    opener = Opener(KEY)
    assert opener.public_key() == KEY.public_key().public_bytes_raw()
    opener.close()
    opener.close()


def test_no_processes_are_refused() -> None:
    with refusal("out-of-range", "is 0", error=ParameterError):
        Opener(KEY, processes=0)


def open_and_wait() -> None:
    opener = Opener(KEY, processes=2)
    opener.open_many(bytes(600 * SEALED_BYTES), INFO)
    assert opener._pool is not None
    print(*opener._pool._processes, flush=True)
    time.sleep(600)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize("way", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_the_processes_end_with_their_parent_even_if_it_is_killed(tmp_path: Path, way: signal.Signals) -> None:
    log = tmp_path / "log"
    log.touch()
    parent = start_forked(log, open_and_wait)
    wait_until(lambda: log.read_text().endswith("\n"))
    workers = [int(pid) for pid in log.read_text().split()]
    assert len(workers) == 2
    assert all(map(alive, workers))
    assert parent.pid is not None
    os.kill(parent.pid, way)
    parent.join(30)
    wait_until(lambda: not any(map(alive, workers)))
