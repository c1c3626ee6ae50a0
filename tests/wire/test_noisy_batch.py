"""One exact set of uploads, one batch; and what goes wrong where that is not so."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

import shufflesum as ss
from shufflesum import noise_keys, noisy_batch
from shufflesum.cells import BLANK
from shufflesum.domains import Domain
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.keys import RoundKeys, load_public_keys
from shufflesum.noise_keys import DrawKeys, NoiseKey, draw_keys
from shufflesum.noisy_batch import BatchCounter, BatchHeader, WrittenBatch, order_tags, set_digest, write_batch
from shufflesum.plans import Plan
from shufflesum.randomness import SecureSource
from shufflesum.reports import Counts
from shufflesum.sealing import SEALED_BYTES, Opener, seal_info, seal_many
from shufflesum.shuffling import SMALLEST_MEMORY, Layout
from shufflesum.wire import Task, Upload

ONE_EACH: Domain = ss.Categories(["a", "b", "c"])
SEVERAL: Domain = ss.MultiChoice(["a", "b", "c", "d"], max_choices=2)
HELD: dict[int, list[Any]] = {1: ["a", "b", "b", "c", "a"], 4: [["a", "b"], ["b"], ["c", "d"], [], ["d"]]}
TRUE = {1: [2, 2, 1], 4: [1, 2, 1, 2]}


class Deployment:
    """A task, its parties' keys, and uploads of a few users."""

    def __init__(self, folder: Path, plan: Plan, held: list[Any] | None = None) -> None:
        self.folder = folder
        keys, public = RoundKeys.write(folder / "analyzer", plan.rounds)
        self.keys = RoundKeys.load(keys)
        expires = datetime(2099, 1, 1, tzinfo=UTC)
        self.task = Task("noisy", plan, load_public_keys(public), "https://shuffler.example.org", expires)
        self.shuffler, self.analyzer = (NoiseKey(NoiseKey.write(folder / name)[0]) for name in ("s", "a"))
        self.uploads = [self.upload(each) for each in (HELD[plan.reports] if held is None else held)]

    def upload(self, held: Any) -> bytes:
        return Upload.seal(self.task, ss.Randomizer(self.task.plan).randomize([held]), 1).sealed

    def write(self, uploads: Iterable[bytes] | None = None, **options: Any) -> WrittenBatch:
        given = self.uploads if uploads is None else list(uploads)
        options = dict[str, Any]({"partner": self.analyzer.fingerprint, "processes": 1} | options)
        return write_batch(self.folder, self.task, 1, lambda: given, self.shuffler, **options)

    def counter(self, written: WrittenBatch, digest: bytes | None = None) -> BatchCounter:
        opener = Opener(self.keys, processes=1)
        return BatchCounter(self.task, written.header, digest or written.digest, opener, self.analyzer)

    def body(self, written: WrittenBatch) -> bytes:
        return written.path.read_bytes()[BatchHeader.bytes_of(self.task) :]

    def count(self, written: WrittenBatch, body: bytes | None = None, digest: bytes | None = None) -> Counts:
        counter, given = self.counter(written, digest), self.body(written) if body is None else body
        for start in range(0, len(given), 7 * SEALED_BYTES):
            counter.add(counter.take(given[start : start + 7 * SEALED_BYTES])())
        return counter.counts()

    def draw(self, key: NoiseKey, role: Any, digest: bytes) -> NDArray[np.int64]:
        plan, keys = self.task.plan, draw_keys(key._key, role, self.task.id, 1, digest)
        drawn: NDArray[np.int64] = plan.mechanism.draw(plan.encoding, keys.noise_source())
        return drawn

    def sections(self, written: WrittenBatch) -> list[NDArray[np.uint8]]:
        rows = np.frombuffer(self.body(written), dtype=np.uint8).reshape(-1, SEALED_BYTES)
        return np.split(rows, np.cumsum(written.header.by_position)[:-1])


@pytest.fixture(scope="module")
def plans() -> dict[Domain, Plan]:
    given = {"users": 20, "epsilon": 2.0, "delta": 1e-4, "noise_by": "servers"}
    return {domain: ss.plan(domain=domain, **given) for domain in (ONE_EACH, SEVERAL)}  # type: ignore[arg-type]


@pytest.fixture(params=[ONE_EACH, SEVERAL], ids=["one-each", "several"])
def deployment(request: pytest.FixtureRequest, plans: dict[Domain, Plan], tmp_path: Path) -> Deployment:
    return Deployment(tmp_path, plans[request.param])


@pytest.fixture
def several(plans: dict[Domain, Plan], tmp_path: Path) -> Deployment:
    return Deployment(tmp_path, plans[SEVERAL])


def test_the_table_is_the_truth_and_one_draw_of_each_server(deployment: Deployment) -> None:
    written = deployment.write()
    counts = deployment.count(written)
    digest, users = set_digest(lambda: deployment.uploads, deployment.task, 1)
    noise = deployment.draw(deployment.shuffler, "shuffler", digest)
    noise = noise + deployment.draw(deployment.analyzer, "analyzer", written.digest)
    assert (counts.users, users) == (5, 5)
    assert (counts.table - noise).tolist() == TRUE[deployment.task.plan.reports]
    assert (counts.blanks, counts.rejected) == (0, 0)
    assert counts.missing() is None


EVERY_DOMAIN: list[tuple[Domain, Any]] = [
    (ss.Arrays(3, (0.0, 8.0)), np.array([[1.0, 4.0, 8.0]] * 3)),
    (ss.GroupBy(["a", "b"], values=ss.Arrays(2, (0.0, 8.0))), (["a", "b", "b"], np.array([[1.0, 3.0]] * 3))),
    (ss.OpenVocabulary(width=32, depth=2), ["here", "there", "here"]),
    (ss.MultiChoice(100, max_choices=3), [[1, 2], [], [99, 3, 4]]),  # so many labels that they share a position
]


@pytest.mark.parametrize(("domain", "held"), EVERY_DOMAIN, ids=lambda given: type(given).__name__)
def test_every_domain_goes_through(domain: Domain, held: Any, tmp_path: Path) -> None:
    plan = ss.plan(domain=domain, users=500, epsilon=8.0, delta=1e-3, noise_by="servers")
    deployment = Deployment(tmp_path, plan, [])
    reports = ss.Randomizer(plan).randomize(held)
    for start in range(0, len(reports), plan.reports):
        own = reports[start : start + plan.reports]
        deployment.uploads.append(Upload.seal(deployment.task, own, 1).sealed)
    written = deployment.write()
    counts = deployment.count(written)
    digest, users = set_digest(lambda: deployment.uploads, deployment.task, 1)
    noise = deployment.draw(deployment.shuffler, "shuffler", digest)
    noise = noise + deployment.draw(deployment.analyzer, "analyzer", written.digest)
    true = np.bincount(reports.cells[reports.cells != BLANK], minlength=plan.cells)
    np.testing.assert_array_equal(counts.table - noise, true)
    assert (users, counts.users, counts.missing()) == (3, 3, None)


def test_every_position_has_its_users_its_dummies_and_blanks_up_to_a_public_number(several: Deployment) -> None:
    written = several.write()
    (noise,) = several.task.plan.mechanism.noise  # type: ignore[attr-defined]
    digest, _ = set_digest(lambda: several.uploads, several.task, 1)
    drawn = several.draw(several.shuffler, "shuffler", digest)
    assert set(written.header.by_position) == {5 + 2 * noise.half_length}
    info = seal_info(several.task.id, 1)
    for position, sealed in enumerate(several.sections(written)):
        opened = Opener(several.keys, processes=1).open_many(sealed, info, position)
        cells = opened.encoded.view(">u4").ravel()
        assert opened.readable.all()
        assert np.count_nonzero(cells == position) == TRUE[4][position] + drawn[position]
        assert np.count_nonzero(cells == BLANK) == len(cells) - TRUE[4][position] - drawn[position]


def test_the_same_set_gives_the_same_bytes_in_whatever_order_and_memory(deployment: Deployment) -> None:
    digests = set()
    for uploads, options in (
        (deployment.uploads, {}),
        (deployment.uploads[::-1], {}),
        ([b"".join(deployment.uploads[:3]), b"", b"".join(deployment.uploads[3:])], {"memory": SMALLEST_MEMORY}),
    ):
        written = deployment.write(uploads, **options)
        assert hashlib.sha256(written.path.read_bytes()).digest() == written.digest
        digests.add(written.digest)
        written.path.unlink()  # so that it is made again
    assert len(digests) == 1


def test_what_does_not_fit_into_memory_waits_in_a_file_and_comes_out_the_same(
    several: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = several.write()
    first.path.unlink()
    plan = Layout.plan

    def small(rows: int, item_bytes: int, **options: Any) -> Any:
        return replace(plan(rows, item_bytes, **options), buckets=16, run_rows=10, in_memory=False)

    monkeypatch.setattr("shufflesum.shuffling.Layout.plan", small)
    assert several.write().digest == first.digest


def test_a_finished_batch_is_read_and_not_made_again(several: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    first = several.write()
    monkeypatch.setattr(noisy_batch, "batch_bytes", None)
    assert several.write() == first


def test_reports_of_a_position_are_in_the_order_of_their_tags(several: Deployment) -> None:
    written = several.write()
    digest, _ = set_digest(lambda: several.uploads, several.task, 1)
    keys = draw_keys(several.shuffler._key, "shuffler", several.task.id, 1, digest)
    for position, rows in enumerate(several.sections(written)):
        tags = order_tags(keys.order, rows, np.full(len(rows), position, dtype=np.uint32)).tolist()
        assert tags == sorted(tags)
        assert len({tuple(tag) for tag in tags}) == len(tags)


@pytest.mark.parametrize("change", ["less", "more", "other"])
def test_another_set_in_the_round_is_refused_for_good(several: Deployment, change: str) -> None:
    written = several.write()
    other = {
        "less": several.uploads[:-1],
        "more": [*several.uploads, several.upload(["a"])],
        "other": [*several.uploads[:-1], several.upload(["d"])],
    }[change]
    before = sorted(several.folder.iterdir())
    with refusal("released-before", "another set", error=ReportsError):
        several.write(other)
    assert sorted(several.folder.iterdir()) == before
    assert several.write() == written


def test_an_analyzer_with_another_noise_key_gets_nothing(several: Deployment) -> None:
    several.write()
    with refusal("key-mismatch", error=ReportsError):
        several.write(partner="00" * 16)
    with refusal("missing-argument", error=ParameterError):
        several.write(partner=None)


def test_the_analyzer_counts_one_batch_of_a_round(several: Deployment) -> None:
    written = several.write()
    table = several.count(written).table
    np.testing.assert_array_equal(several.count(written).table, table)  # after a crash: the same draw
    with refusal("released-before", "a.noise", error=ReportsError):
        several.counter(written, bytes(32))


def test_a_crash_while_the_batch_is_written_leaves_nothing_and_changes_nothing(
    several: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = noisy_batch.batch_bytes

    def broken_off(*given: Any, **options: Any) -> Iterator[bytes]:
        yield from itertools.islice(honest(*given, **options), 1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(noisy_batch, "batch_bytes", broken_off)
    with refusal("unwritable", "batch-", error=FileError):
        several.write()
    assert not list(several.folder.glob("*batch-*"))
    monkeypatch.undo()
    written = several.write()
    written.path.unlink()
    assert several.write().digest == written.digest


def test_uploads_that_change_while_they_are_read_are_refused(several: Deployment) -> None:
    readings = iter([several.uploads, [*several.uploads[:-1], several.upload(["a", "c"])]])
    with refusal("changed-meanwhile", error=ReportsError):
        write_batch(
            several.folder,
            several.task,
            1,
            lambda: next(readings),
            several.shuffler,
            partner=several.analyzer.fingerprint,
            processes=1,
        )
    assert not list(several.folder.glob("*batch-*"))


def test_too_few_users_a_repeated_upload_and_pieces_of_uploads_are_refused(several: Deployment) -> None:
    with refusal("too-few-users", error=ReportsError):
        several.write([])
    with refusal("duplicate-report", error=ReportsError):
        several.write([*several.uploads, several.uploads[0]])
    with refusal("wrong-length", error=ReportsError):
        several.write([several.uploads[0][:-SEALED_BYTES]])
    assert several.shuffler.bound("shuffler", several.task.id, 1) is None


def altered(several: Deployment, written: WrittenBatch, copied: Callable[[NDArray[np.uint8]], None]) -> bytes:
    rows = np.frombuffer(several.body(written), dtype=np.uint8).reshape(-1, SEALED_BYTES).copy()
    copied(rows)
    return rows.tobytes()


def test_a_batch_with_an_encapsulated_key_twice_is_refused(
    several: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin does not look, and counts a report of one user twice."""
    written = several.write()
    size = written.header.by_position[0]

    def copy_one(rows: NDArray[np.uint8]) -> None:
        opened = Opener(several.keys, processes=1).open_many(rows[:size], seal_info(several.task.id, 1), 0)
        cells = opened.encoded.view(">u4").ravel()
        rows[np.flatnonzero(cells == BLANK)[0]] = rows[np.flatnonzero(cells == 0)[0]]

    body = altered(several, written, copy_one)
    digest = hashlib.sha256(written.header.encode() + body).digest()
    with refusal("duplicate-report", "twice", error=ReportsError):
        several.count(written, body, digest)
    monkeypatch.setattr(BatchCounter, "_copied", False)
    noise = several.draw(several.analyzer, "analyzer", digest) + several.draw(
        several.shuffler, "shuffler", set_digest(lambda: several.uploads, several.task, 1)[0]
    )
    assert (several.count(written, body, digest).table - noise).tolist() == [TRUE[4][0] + 1, *TRUE[4][1:]]


def test_a_batch_that_is_not_what_was_announced_has_no_table(several: Deployment) -> None:
    written = several.write()

    def swap(rows: NDArray[np.uint8]) -> None:
        rows[[0, 1]] = rows[[1, 0]]

    with refusal("wrong-batch", error=ReportsError):
        several.count(written, altered(several, written, swap))
    with refusal("wrong-batch", error=ReportsError):
        several.count(written, several.body(written)[:-SEALED_BYTES])


def test_a_report_moved_to_another_position_counts_nowhere_and_nobody_is_told(several: Deployment) -> None:
    """A user can send what they like: reports for another position, for another cell, and garbage."""
    other = Upload.seal(several.task, ss.Randomizer(several.task.plan).randomize([["a", "b"]]), 1).sealed
    rows = np.frombuffer(other, dtype=np.uint8).reshape(4, SEALED_BYTES)
    key, info = several.task.public_key(1), seal_info(several.task.id, 1)
    outside = seal_many(np.array([[0, 0, 0, 0]], dtype=np.uint8), key, info, 1)  # cell 0, at position 1
    bad = rows[1].tobytes() + outside.tobytes() + secrets.token_bytes(2 * SEALED_BYTES)
    uploads = [*several.uploads, bad]
    written = several.write(uploads)
    counts = several.count(written)
    noise = several.draw(several.analyzer, "analyzer", written.digest)
    noise = noise + several.draw(several.shuffler, "shuffler", set_digest(lambda: uploads, several.task, 1)[0])
    assert (counts.table - noise).tolist() == TRUE[4]
    assert (counts.rejected, counts.blanks, counts.users, counts.missing()) == (0, 0, 6, None)


def test_headers_are_read_back_and_impossible_ones_refused(deployment: Deployment) -> None:
    task, header = deployment.task, deployment.write().header
    assert BatchHeader.decode(header.encode(), task) == header
    assert len(header.encode()) == BatchHeader.bytes_of(task)
    for problem, wrong in (
        ("wrong-batch", replace(header, users=0)),
        ("wrong-batch", replace(header, users=1000)),  # too few reports of them
        ("wrong-batch", replace(header, by_position=(4, *header.by_position[1:]))),
        ("wrong-batch", replace(header, by_position=(10**6, *header.by_position[1:]))),
        ("wrong-batch", replace(header, task_id="00" * 32)),
        ("wrong-round", replace(header, round_number=2)),
        ("wrong-length", replace(header, by_position=(*header.by_position, 5))),
    ):
        with refusal(problem, error=ReportsError):
            BatchHeader.decode(wrong.encode(), task)


def test_a_batch_without_padding_is_refused(several: Deployment) -> None:
    header = several.write().header
    short = replace(header, by_position=tuple(size - 1 for size in header.by_position))
    with refusal("wrong-batch", error=ReportsError):
        BatchHeader.decode(short.encode(), several.task)


def test_plans_with_users_noise_have_no_such_batch(several: Deployment) -> None:
    plan = ss.plan(users=1000, domain=ONE_EACH, epsilon=1.0, delta=1e-6, noise_by="users")
    task = replace(several.task, plan=plan)
    with refusal("impossible-combination", error=ParameterError):
        BatchHeader.bytes_of(task)


# ---- the order -------------------------------------------------------------------------------------------------------

KEYS = 6000
TWO_USERS = np.random.default_rng(5).integers(256, size=(3, 2, SEALED_BYTES), dtype=np.uint8)
Tags = Callable[[bytes, NDArray[np.uint8], NDArray[np.uint32]], NDArray[np.uint64]]


def order_law(tags: Tags) -> float:
    """p-value of: under fresh keys three users come in each of 6 x 6 orders in two positions equally often."""
    place = {order: number for number, order in enumerate(itertools.permutations(range(3)))}
    found = np.zeros((6, 6))
    sealed, positions = TWO_USERS.transpose(1, 0, 2).reshape(6, -1), np.repeat(np.arange(2, dtype=np.uint32), 3)
    for _ in range(KEYS):
        drawn = tags(secrets.token_bytes(32), sealed, positions)
        orders = [place[tuple(np.lexsort(part.T[::-1]).tolist())] for part in (drawn[:3], drawn[3:])]
        found[orders[0], orders[1]] += 1
    return chi_square(found, np.full((6, 6), 1 / 36))


def test_the_order_is_uniform_and_another_one_in_each_position() -> None:
    """Chi-square over 36 pairs of orders, false alarm 1e-6."""
    assert order_law(order_tags) > FALSE_ALARM


def test_one_permutation_over_all_positions_and_an_order_without_a_key_would_be_noticed() -> None:
    def of_users(key: bytes, sealed: NDArray[np.uint8], positions: NDArray[np.uint32]) -> NDArray[np.uint64]:
        return np.tile(order_tags(key, sealed[:3], positions[:3]), (2, 1))

    def without_key(_: bytes, sealed: NDArray[np.uint8], positions: NDArray[np.uint32]) -> NDArray[np.uint64]:
        return order_tags(bytes(32), sealed, positions)

    for wrong in (of_users, without_key):
        assert order_law(wrong) < FALSE_ALARM


# ---- sabotage --------------------------------------------------------------------------------------------------------


def test_noise_that_is_drawn_again_after_a_crash_never_leaves(
    several: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shuffler that forgets its draw makes another batch of the same set; the list beside its key refuses it."""
    monkeypatch.setattr(DrawKeys, "noise_source", lambda _: SecureSource())
    several.write().path.unlink()
    with refusal("released-before", error=ReportsError):
        several.write()


def test_seals_that_are_made_again_never_leave(several: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed afresh, dummy reports are those that differ between two batches of the same set."""
    monkeypatch.setattr(DrawKeys, "seal_source", lambda _: SecureSource())
    several.write().path.unlink()
    with refusal("released-before", error=ReportsError):
        several.write()


def difference_of_two_sets(several: Deployment) -> list[int]:
    """What two batches show together, if somebody takes away the list: the second has one user more, who holds a."""
    tables = []
    for uploads in (several.uploads, [*several.uploads, several.upload(["a"])]):
        key, used = several.shuffler.path, Path(f"{several.shuffler.path}.used")
        used.unlink()
        noise_keys._ledger(key).create({"key": several.shuffler.fingerprint})
        several.shuffler = NoiseKey(key)
        written = several.write(uploads)
        body = several.sections(written)
        written.path.unlink()
        info = seal_info(several.task.id, 1)
        opened = [Opener(several.keys, processes=1).open_many(part, info, place) for place, part in enumerate(body)]
        tables.append([int(np.count_nonzero(each.encoded.view(">u4") != BLANK)) for each in opened])
    return [after - before for before, after in zip(*tables, strict=True)]


def test_the_noise_of_another_set_is_another_and_the_same_would_show_the_difference(
    several: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chance that four draws of one set are those of another, and so a false alarm: below 1e-4 for each key.

    Five keys are tried, so that a false alarm takes less than 1e-20.
    """
    honest: Any = noise_keys.draw_keys
    found = []
    for number in range(5):
        several.shuffler = NoiseKey(NoiseKey.write(several.folder / f"other-{number}")[0])
        found.append(difference_of_two_sets(several))
    assert any(each != [1, 0, 0, 0] for each in found)
    monkeypatch.setattr(noise_keys, "draw_keys", lambda *given: honest(*given[:4], b""))
    for _ in range(2):
        assert difference_of_two_sets(several) == [1, 0, 0, 0]
