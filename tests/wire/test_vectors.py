"""The wire format against fixed bytes, and HPKE against its specification.

`reference_seal` follows RFC 9180 step by step with the ephemeral key given, which the library does not allow. It has to
reproduce the RFC's own vector first; then it judges the seals.
"""

from __future__ import annotations

import hmac
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.refusals import refusal

from shufflesum import OpenVocabulary, Randomizer, sealing
from shufflesum.cells import BLANK, REPORT_BYTES
from shufflesum.reports import Reports
from shufflesum.sealing import (
    SEALED_BYTES,
    Opener,
    decode_reports,
    encode_reports,
    open_many,
    seal_info,
    seal_many,
    seal_with_keys,
)
from shufflesum.wire import Task, TaskError, Upload, UploadError

VECTORS = Path(__file__).parent.parent / "vectors"
KEM = b"KEM" + struct.pack(">H", 0x0020)
HPKE = b"HPKE" + struct.pack(">HHH", 0x0020, 0x0001, 0x0001)


def extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")


def expand(suite: bytes, key: bytes, label: bytes, context: bytes, length: int) -> bytes:
    """Up to 32 bytes need only the first block."""
    labelled = struct.pack(">H", length) + b"HPKE-v1" + suite + label + context
    return hmac.digest(key, labelled + b"\x01", "sha256")[:length]


def reference_schedule(exchanged: bytes, ephemeral: bytes, recipient: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Key and nonce of the first message in base mode (RFC 9180, sections 4.1 and 5.1)."""
    shared = expand(KEM, extract(KEM, b"", b"eae_prk", exchanged), b"shared_secret", ephemeral + recipient, 32)
    context = b"\x00" + extract(HPKE, b"", b"psk_id_hash", b"") + extract(HPKE, b"", b"info_hash", info)
    secret = extract(HPKE, shared, b"secret", b"")
    return expand(HPKE, secret, b"key", context, 16), expand(HPKE, secret, b"base_nonce", context, 12)


def reference_seal(plain: bytes, recipient: bytes, ephemeral_private: bytes, info: bytes, aad: bytes = b"") -> bytes:
    """Ephemeral public key and ciphertext."""
    private = X25519PrivateKey.from_private_bytes(ephemeral_private)
    ephemeral = private.public_key().public_bytes_raw()
    exchanged = private.exchange(X25519PublicKey.from_public_bytes(recipient))
    key, nonce = reference_schedule(exchanged, ephemeral, recipient, info)
    return ephemeral + AESGCM(key).encrypt(nonce, plain, aad)


def reference_open(sealed: bytes, private: X25519PrivateKey, info: bytes) -> bytes:
    ephemeral, recipient = sealed[:32], private.public_key().public_bytes_raw()
    exchanged = private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
    key, nonce = reference_schedule(exchanged, ephemeral, recipient, info)
    return AESGCM(key).decrypt(nonce, sealed[32:], b"")


def vector(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_bytes())
    return document


def names(pattern: str) -> list[str]:
    found = sorted(path.stem for path in VECTORS.glob(f"{pattern}.json"))
    assert found
    return found


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.load(VECTORS / "golden_task.json")


@pytest.fixture(scope="module")
def private_key() -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(vector("golden_upload")["analyzer_private_key"]))


def test_the_reference_reproduces_the_rfcs_own_vector() -> None:
    given = {name: bytes.fromhex(text) for name, text in vector("rfc9180_a_1_1").items() if name != "description"}
    recipient = X25519PrivateKey.from_private_bytes(given["skRm"]).public_key().public_bytes_raw()
    assert recipient == given["pkRm"]
    sealed = reference_seal(given["pt"], recipient, given["skEm"], given["info"], given["aad"])
    assert sealed == given["enc"] + given["ct"]


def test_what_the_library_seals_the_reference_opens(private_key: X25519PrivateKey) -> None:
    plain = np.arange(10 * REPORT_BYTES, dtype=np.uint8).reshape(10, REPORT_BYTES)
    info = seal_info("ab" * 32, 7)
    sealed = seal_many(plain, private_key.public_key(), info)
    at = info + bytes(4)  # position 0
    assert [reference_open(row.tobytes(), private_key, at) for row in sealed] == [row.tobytes() for row in plain]
    sealed = seal_many(plain, private_key.public_key(), info, np.arange(10) << 20)
    for number, (row, report) in enumerate(zip(sealed, plain, strict=True)):
        at = info + struct.pack(">I", number << 20)
        assert reference_open(row.tobytes(), private_key, at) == report.tobytes()


def test_seals_with_given_keys_are_what_the_reference_makes_with_them(private_key: X25519PrivateKey) -> None:
    generator = np.random.default_rng(3)
    keys = generator.integers(256, size=(20, 32), dtype=np.uint8)
    plain = generator.integers(256, size=(20, REPORT_BYTES), dtype=np.uint8)
    public, info, positions = private_key.public_key(), seal_info("ab" * 32, 7), np.arange(20) % 3
    sealed = seal_with_keys(plain, keys, public, info, positions)
    for row, key, report, position in zip(sealed, keys, plain, positions, strict=True):
        at = info + struct.pack(">I", position)
        assert row.tobytes() == reference_seal(report.tobytes(), public.public_bytes_raw(), key.tobytes(), at)
    opened = open_many(sealed, private_key, info, positions)
    assert opened.readable.all()
    np.testing.assert_array_equal(opened.encoded, plain)


def test_key_and_nonce_are_those_of_the_rfcs_own_vector() -> None:
    given = {name: bytes.fromhex(text) for name, text in vector("rfc9180_a_1_1").items() if name != "description"}
    ephemeral = X25519PrivateKey.from_private_bytes(given["skEm"])
    recipient = X25519PublicKey.from_public_bytes(given["pkRm"])
    enc, key, nonce = sealing._encapsulated(ephemeral, recipient, given["info"])
    assert enc == given["enc"]
    assert AESGCM(key).encrypt(nonce, given["pt"], given["aad"]) == given["ct"]


def test_golden_reports_have_their_bytes() -> None:
    golden = vector("golden_reports")["reports"]
    rows = np.array([list(bytes.fromhex(report["bytes"])) for report in golden], dtype=np.uint8)
    cells = np.array([report["cell"] for report in golden], dtype=np.uint32)
    np.testing.assert_array_equal(encode_reports(Reports("plan", cells)), rows)
    np.testing.assert_array_equal(decode_reports(rows, "plan").cells, cells)


OF_LABELS = ["golden_noisy_slots", "golden_open_vocabulary", "golden_multi_choice", "golden_group_by"]
GOLDEN = pytest.mark.parametrize("name", ["golden", "golden_noisy_counts", *OF_LABELS])


def golden_task(name: str) -> Task:
    return Task.load(VECTORS / f"{name}_task.json")


@GOLDEN
def test_the_golden_task_keeps_its_id(name: str) -> None:
    task = golden_task(name)
    assert task.id == vector(f"{name}_upload")["task_id"]
    assert json.loads(task.to_json()).keys() == vector(f"{name}_task").keys()


@GOLDEN
def test_the_golden_upload_is_what_the_specification_makes_of_its_reports(name: str) -> None:
    task, golden = golden_task(name), vector(f"{name}_upload")
    info = seal_info(task.id, golden["round"])
    assert (info + bytes(4)).hex() == golden["info"]
    assert len(golden["reports"]) == task.plan.reports
    for report in golden["reports"]:
        plain = struct.pack(">I", report["cell"])
        ephemeral = bytes.fromhex(report["ephemeral_private_key"])
        assert reference_seal(plain, task.analyzer_key, ephemeral, info + bytes(4)).hex() == report["sealed"]
    upload = Upload(
        task.id,
        golden["round"],
        bytes.fromhex(golden["upload_id"]),
        bytes.fromhex("".join(report["sealed"] for report in golden["reports"])),
    )
    assert upload.encode().hex() == golden["upload"]
    assert Upload.decode(bytes.fromhex(golden["upload"]), task) == upload


@GOLDEN
def test_the_golden_upload_opens(name: str, private_key: X25519PrivateKey) -> None:
    task, golden = golden_task(name), vector(f"{name}_upload")
    upload = Upload.decode(bytes.fromhex(golden["upload"]), task)
    reports, rejected = task.open_reports(upload.sealed, upload.round_number, Opener(private_key, processes=1))
    assert rejected == 0
    assert reports.plan_id == task.plan.id
    assert reports.cells.tolist() == [report["cell"] for report in golden["reports"]]


POSITIONS = pytest.mark.parametrize("name", ["golden_positions", "golden_positions_groups"])
"""Under plans where servers draw the noise: reports in the order of their positions, to the key of their round."""


@POSITIONS
def test_the_golden_upload_at_positions_is_what_the_specification_makes_of_its_reports(name: str) -> None:
    task, golden = golden_task(name), vector(f"{name}_upload")
    keys = [X25519PrivateKey.from_private_bytes(bytes.fromhex(key)) for key in golden["analyzer_private_keys"]]
    assert task.analyzer_key == b"".join(key.public_key().public_bytes_raw() for key in keys)
    assert (task.id, task.rounds) == (golden["task_id"], len(keys))
    assert [report["position"] for report in golden["reports"]] == task.positions_of_upload.tolist()
    recipient = keys[golden["round"] - 1].public_key().public_bytes_raw()
    for report in golden["reports"]:
        info = seal_info(task.id, golden["round"]) + struct.pack(">I", report["position"])
        assert info.hex() == report["info"]
        ephemeral = bytes.fromhex(report["ephemeral_private_key"])
        assert reference_seal(struct.pack(">I", report["cell"]), recipient, ephemeral, info).hex() == report["sealed"]
    sealed = bytes.fromhex("".join(report["sealed"] for report in golden["reports"]))
    upload = Upload(task.id, golden["round"], bytes.fromhex(golden["upload_id"]), sealed)
    assert upload.encode().hex() == golden["upload"]
    assert Upload.decode(bytes.fromhex(golden["upload"]), task) == upload


@POSITIONS
def test_the_library_reports_at_positions_what_the_golden_upload_has(name: str) -> None:
    task, golden = golden_task(name), vector(f"{name}_upload")
    cells = [report["cell"] for report in golden["reports"]]
    assert [cell for cell in cells if cell != BLANK] == golden["own_cells"]
    randomizer, held = Randomizer(task.plan, round_number=golden["round"]), golden["held"]
    row: Any = ([held[0]], np.array([held[1]])) if name == "golden_positions_groups" else [held]
    assert randomizer.randomize(row).cells.tolist() == cells
    upload = Upload.seal(task, randomizer.randomize(row), golden["round"])
    key = X25519PrivateKey.from_private_bytes(bytes.fromhex(golden["analyzer_private_keys"][golden["round"] - 1]))
    opened = open_many(upload.sealed, key, seal_info(task.id, golden["round"]), task.positions_of_upload)
    assert opened.encoded.view(">u4").ravel().tolist() == cells


def test_the_golden_upload_of_add_is_digits_noise_and_blanks() -> None:
    task, golden = golden_task("golden_noisy_counts"), vector("golden_noisy_counts_upload")
    digits = json.loads(task.plan.to_json())["mechanism"]["digits"]
    values = enumerate(golden["rounded_values"])
    cells = [place * digits + digit for place, value in values for digit in range(digits) if value >> digit & 1]
    assert cells == golden["digit_cells"]
    sent = cells + golden["dummy_cells"]
    sent += [BLANK] * (task.plan.reports - len(sent))
    assert [report["cell"] for report in golden["reports"]] == sent


def reference_digest(key: bytes, label: bytes, block: int, round_number: int) -> bytes:
    return hmac.digest(key, struct.pack(">II", round_number, block) + label, "sha512")


def reference_bucket(key: bytes, label: bytes, function: int, buckets: int, round_number: int) -> int:
    """The 32-bit word of the function, out of the digest of its block of sixteen, scaled down."""
    block, place = divmod(function, 16)
    (word,) = struct.unpack_from(">I", reference_digest(key, label, block, round_number), 4 * place)
    return int(word) * buckets // 2**32


def own_cells(golden: dict[str, Any], domain: dict[str, Any], digits: int) -> list[int]:
    """What a user's own reports are by the specification, from what the user holds and what was drawn for it."""
    held = golden["held"]
    match domain["kind"]:
        case "categories":
            return [domain["labels"].index(held) if held in domain["labels"] else len(domain["labels"])]
        case "multi-choice":
            return sorted(range(domain["labels"]).index(label) for label in held)
        case "open-vocabulary":
            key, function = bytes.fromhex(domain["key"]), golden["function"]
            bucket = reference_bucket(key, held.encode(), function, domain["width"], golden["round"])
            assert bucket == golden["bucket"]
            return [function * domain["width"] + bucket]
    values = golden["rounded_values"]
    first = domain["labels"].index(held[0]) * (len(values) * digits + 1)
    ones = [(place, digit) for place, value in enumerate(values) for digit in range(digits) if value >> digit & 1]
    return [*(first + place * digits + digit for place, digit in ones), first + len(values) * digits]


@pytest.mark.parametrize("name", OF_LABELS)
def test_the_golden_uploads_of_labels_are_what_is_held_and_noise_and_blanks(name: str) -> None:
    task, golden = golden_task(name), vector(f"{name}_upload")
    plan = json.loads(task.plan.to_json())
    cells = own_cells(golden, plan["domain"], plan["mechanism"].get("digits", 0))
    assert cells == golden["own_cells"]
    sent = cells + golden["dummy_cells"]
    assert [report["cell"] for report in golden["reports"]] == sent + [BLANK] * (task.plan.reports - len(sent))


@pytest.mark.parametrize("name", OF_LABELS)
def test_the_library_reports_what_the_golden_uploads_hold(name: str) -> None:
    """One upload has all own cells, up to the function drawn for a word: of 600 none has it with chance 4e-14."""
    task, golden = golden_task(name), vector(f"{name}_upload")
    held = golden["held"]
    rows = ([held[0]] * 600, [held[1]] * 600) if name == "golden_group_by" else [held] * 600
    sent = Randomizer(task.plan).randomize(rows).cells.reshape(600, -1)
    having = np.isin(golden["own_cells"], sent if name == "golden_open_vocabulary" else sent[0])
    assert having.all()


def test_the_golden_hashes_are_hmac_sha_512() -> None:
    golden = vector("golden_hash")
    key, functions = bytes.fromhex(golden["key"]), range(golden["depth"])
    domain = OpenVocabulary(golden["width"], golden["depth"], key)
    labels = domain.texts(domain.rows([row["given"] for row in golden["labels"]]))
    for row, label in zip(golden["labels"], labels, strict=True):
        assert label.hex() == row["utf8"]
        assert [found["round"] for found in row["rounds"]] == [1, 2]
        for found in row["rounds"]:
            number = found["round"]
            for block, digest in enumerate(found["digests"]):
                assert reference_digest(key, label, block, number).hex() == digest
            assert [reference_bucket(key, label, s, golden["width"], number) for s in functions] == found["buckets"]
            hashes = domain.of_round(number)
            assert hashes.buckets_of([label] * len(functions), np.array(functions)).tolist() == found["buckets"]
            assert hashes.bucket_table([label]).tolist() == [found["buckets"]]


@pytest.mark.parametrize("name", names("bad_upload_*"))
def test_a_bad_upload_is_refused_or_its_reports_rejected(name: str, task: Task, private_key: X25519PrivateKey) -> None:
    bad = vector(name)
    data = bytes.fromhex(bad["upload"])
    if "problem" in bad:
        with refusal(bad["problem"], error=UploadError):
            Upload.decode(data, task)
        return
    upload = Upload.decode(data, task)
    reports, rejected = task.open_reports(upload.sealed, upload.round_number, Opener(private_key, processes=1))
    assert rejected == bad["rejected"]
    assert len(reports) == len(upload.sealed) // SEALED_BYTES - rejected


@pytest.mark.parametrize("name", names("bad_task_*"))
def test_a_bad_task_is_refused(name: str) -> None:
    bad = vector(name)
    with refusal(bad["problem"], bad.get("names", ""), error=TaskError):
        Task.from_json(json.dumps(bad["task"]))
