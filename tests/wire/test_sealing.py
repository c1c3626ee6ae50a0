from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import ReportsError
from shufflesum.keys import generate_private_key
from shufflesum.plans import SEAL_BYTES
from shufflesum.sealing import SEALED_BYTES, Opened, open_many, seal_info, seal_many, seal_with_keys

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
INFO = seal_info("5a" * 32, 1)
PLAIN = np.arange(4 * REPORT_BYTES, dtype=np.uint8).reshape(4, REPORT_BYTES)
SEALED = seal_many(PLAIN, KEY.public_key(), INFO)


def rows(opened: Opened) -> list[list[int]]:
    return [list(map(int, row)) for row in opened.encoded]


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


def test_a_report_with_any_bit_flipped_is_rejected_and_the_others_are_kept() -> None:
    for bit in range(SEALED_BYTES * 8):
        broken = SEALED[:3].copy()
        broken[1, bit // 8] ^= 1 << bit % 8
        opened = open_many(broken, KEY, INFO)
        assert opened.rejected == 1, bit
        assert rows(opened) == PLAIN[[0, 2]].tolist(), bit


@given(st.binary(min_size=SEALED_BYTES, max_size=SEALED_BYTES))
def test_arbitrary_bytes_are_rejected_never_an_error(data: bytes) -> None:
    assert open_many(data, KEY, INFO).rejected == 1


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
        INFO.replace(b"\x00\x03\x01\x03", b"\x00\x02\x01\x03"),  # wire version
        INFO.replace(b"\x00\x03\x01\x03", b"\x00\x03\x03\x01"),  # roles
    ],
)
def test_a_seal_opens_only_for_its_version_roles_task_and_round(info: bytes) -> None:
    assert info != INFO
    assert open_many(SEALED, KEY, info).rejected == 4


def test_a_seal_opens_only_with_its_key() -> None:
    assert open_many(SEALED, generate_private_key(), INFO).rejected == 4


def test_sealed_bytes_that_are_no_whole_reports_are_refused() -> None:
    with refusal("wrong-length", str(SEALED_BYTES), error=ReportsError):
        open_many(bytes(SEALED_BYTES + 1), KEY, INFO)


def test_a_seal_opens_only_at_its_position() -> None:
    positions = np.array([0, 7, 7, 2**32 - 1])
    sealed = seal_many(PLAIN, KEY.public_key(), INFO, positions)
    assert rows(open_many(sealed, KEY, INFO, positions)) == PLAIN.tolist()
    assert rows(open_many(sealed, KEY, INFO, 7)) == PLAIN[1:3].tolist()
    moved = open_many(sealed, KEY, INFO, [0, 7, 8, 2**31])
    assert rows(moved) == PLAIN[:2].tolist()
    assert moved.readable.tolist() == [True, True, False, False]


def test_the_same_keys_reports_and_positions_give_the_same_seals() -> None:
    keys = np.arange(4 * 32, dtype=np.uint8).reshape(4, 32)
    sealed = seal_with_keys(PLAIN, keys, KEY.public_key(), INFO, 5)
    assert rows(open_many(sealed, KEY, INFO, 5)) == PLAIN.tolist()
    np.testing.assert_array_equal(sealed, seal_with_keys(PLAIN, keys, KEY.public_key(), INFO, 5))
    for other in (
        seal_with_keys(PLAIN, keys + np.uint8(1), KEY.public_key(), INFO, 5),
        seal_with_keys(PLAIN + np.uint8(1), keys, KEY.public_key(), INFO, 5),
        seal_with_keys(PLAIN, keys, KEY.public_key(), INFO, 6),
    ):
        assert not (other[:, 32:] == sealed[:, 32:]).all(axis=1).any()
