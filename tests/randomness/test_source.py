from __future__ import annotations

import copy
import ctypes
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shufflesum import randomness as module
from shufflesum.randomness import SecureSource, random_uints
from shufflesum.testing import SeededSource

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def draw(source: Any, count: int = 4) -> bytes:
    return random_uints(source, count, np.uint64).tobytes()


def fork_unseen() -> int:
    """The C library's fork: Python does not notice it. PyDLL keeps the interpreter's lock, so the child can go on."""
    return int(ctypes.PyDLL(None).fork())


def in_forked_child(task: Callable[[], bytes], fork: Callable[[], int] | None = None) -> bytes:
    """What `task` gives in a forked child; nothing where the child fails or hangs for ten seconds."""
    reading, writing = os.pipe()
    child = (fork or os.fork)()
    if child == 0:
        signal.alarm(10)
        try:
            os.write(writing, task())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


FORKS = pytest.mark.parametrize("fork", [None, fork_unseen], ids=["seen by Python", "unseen"])


@needs_fork
@FORKS
def test_after_a_fork_parent_and_children_draw_different_words(fork: Callable[[], int] | None) -> None:
    source = SecureSource()
    draw(source)
    children = [in_forked_child(lambda: draw(source), fork) for _ in range(2)]
    grandchild = in_forked_child(lambda: in_forked_child(lambda: draw(source), fork), fork)
    answers = [*children, grandchild, draw(source)]
    assert all(len(answer) == 32 for answer in answers)
    assert len(set(answers)) == 4


@needs_fork
@FORKS
def test_the_fork_check_would_notice_a_copied_stream(fork: Callable[[], int] | None) -> None:
    source = SeededSource(1)
    assert in_forked_child(lambda: draw(source), fork) == draw(source)


@needs_fork
@FORKS
def test_a_fork_while_another_thread_draws_leaves_the_child_a_working_source(fork: Callable[[], int] | None) -> None:
    source = SecureSource()
    with source._lock:
        answer = in_forked_child(lambda: draw(source), fork)
    assert len(answer) == 32


@needs_fork
def test_a_parent_keeps_its_keystream_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SecureSource()
    in_forked_child(lambda: draw(source))
    monkeypatch.setattr(os, "urandom", lambda size: pytest.fail("the parent drew a new key"))
    draw(source)


def test_threads_sharing_a_source_never_see_the_same_word() -> None:
    source = SecureSource()
    drawn: list[Any] = []

    def work() -> None:
        drawn.extend(random_uints(source, 1000, np.uint64) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = np.concatenate(drawn)
    assert everything.size == 160_000
    assert np.unique(everything).size == everything.size  # 64 bits collide by chance once in a billion runs


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copying_or_pickling_a_source_gives_a_new_keystream(duplicate: Callable[[Any], Any]) -> None:
    source = SecureSource()
    assert draw(duplicate(source)) != draw(source)


def test_a_secure_source_cannot_be_seeded() -> None:
    with pytest.raises(TypeError):
        SecureSource(1)  # type: ignore[call-arg]
    np.random.seed(0)
    first = draw(SecureSource())
    np.random.seed(0)
    assert draw(SecureSource()) != first


def test_a_new_key_is_drawn_when_the_old_one_has_given_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []

    def urandom(size: int, real: Callable[[int], bytes] = os.urandom) -> bytes:
        keys.append(real(size))
        return keys[-1]

    monkeypatch.setattr(module, "_REKEY_BYTES", 4096)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1024)
    monkeypatch.setattr(os, "urandom", urandom)
    source = SecureSource()
    drawn = random_uints(source, 3 * 4096, np.uint8)
    assert [len(key) for key in keys] == [32, 16] * 3
    assert len(set(keys)) == 6
    assert len({drawn[i : i + 16].tobytes() for i in range(0, drawn.size, 16)}) == drawn.size // 16
    draw(source)
    assert len(keys) == 8


def test_a_fill_longer_than_a_chunk_is_filled_to_the_end() -> None:
    chunk = module._CHUNK_BYTES
    drawn = random_uints(SecureSource(), 2 * chunk + 24, np.uint8)
    blocks = drawn.view(np.uint64)
    assert np.unique(blocks).size == blocks.size  # a chunk left out or repeated would show


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("source", [SecureSource(), SeededSource(5)], ids=["secure", "seeded"])
def test_every_bit_of_every_word_is_a_fair_coin(source: Any, dtype: Any) -> None:
    count = 1 << 16
    bits = np.unpackbits(random_uints(source, count, dtype).view(np.uint8).reshape(count, -1), axis=1)
    # 8 to 64 coins of 65,536 throws: beyond 6.5 standard deviations once in 10^8 runs
    assert (abs(bits.sum(axis=0) - count / 2) < 6.5 * np.sqrt(count) / 2).all()


def test_no_words_cost_no_draw() -> None:
    assert random_uints(SeededSource(1), 0, np.uint16).size == 0
    assert random_uints(SecureSource(), 0, np.uint16).size == 0
