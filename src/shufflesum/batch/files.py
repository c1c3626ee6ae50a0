"""Reports in files: one file, folders of files that belong together, and outputs in the making.

What was written into a folder stands in its manifest, so that a part of it cannot pass for the whole. An output folder
appears whole or not at all, and its making can be interrupted and taken up again.

A finished run of the randomizer leaves a note beside its output: the same command again has nothing to do. Drawing a
user's reports twice for one round costs the guarantee twice, so a scheduler that tries again must not get others. The
note stays with whoever ran the step: names, sizes and times of the users' files are not the shuffler's business, and
the folder itself goes there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

from shufflesum._checks import check_choice
from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._machine import Workers, cores, is_interruption, replace_file, sync, try_lock, writing
from shufflesum.batch.identity import Identity, ReportKind, Stage
from shufflesum.batch.once import refuse_same_files, refuse_same_parts
from shufflesum.domains.frames import require_arrow
from shufflesum.errors import FileError, ReportsError
from shufflesum.tables.paths import Address, PathOrUrl, local_path, place, reading, unread, visible
from shufflesum.tables.sources import describe, stream

Format = Literal["parquet", "arrow"]

PART_KEY = "shufflesum.part"
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ReportFile:
    """One file of reports; `groups` (row groups or record batches) can be read independently.

    `part` is the name it was written under, whatever it is called now; files that Spark wrote have none.
    """

    path: PathOrUrl
    rows: int
    bytes: int
    groups: int
    contribution_ids: tuple[str, ...]
    part: str | None


def report_paths(path: PathOrUrl) -> list[PathOrUrl]:
    """The report files of a folder, by name, or the one file; what is hidden or starts with _ does not count."""
    suffixes = tuple(f".{kind}" for kind in get_args(Format))
    with reading(path):
        if not path.exists():
            raise FileError(unread(path), f"{path}: does not exist; give a folder of report files, or one such file")
        found = visible(path) if path.is_dir() else [path]
        for file in found:
            if file.suffix not in suffixes or not file.is_file():
                raise FileError(
                    "unknown-file-type",
                    f"{file}: is no file of reports; a folder of reports holds {' and '.join(suffixes)} files",
                )
    if not found:
        raise FileError(
            "no-rows", f"{path}: is a folder without report files; give the output of shufflesum randomize or shuffle"
        )
    return found


def open_report_file(path: PathOrUrl) -> tuple[ReportFile, Identity]:
    """What a file's footer says, checked."""
    schema, rows, groups = describe(path)
    with reading(path):
        size = path.stat().st_size
    identity = Identity.from_arrow(schema, str(path))
    part = (schema.metadata or {}).get(PART_KEY.encode())
    name = None if part is None else part.decode(errors="replace")
    return ReportFile(path, rows, size, groups, identity.contribution_ids, name), identity


def read_records(file: ReportFile, rows_at_once: int, groups: Iterable[int] | None = None) -> Iterator[Any]:
    """The file's reports as record batches of at most `rows_at_once`; `groups` chooses some of its groups by number."""
    # Parquet as a stream: a file of one huge row group would otherwise be held whole.
    parquet: dict[str, Any] = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": _READ_BYTES}
    return stream(file.path, rows_at_once, groups=groups, threads=False, **parquet)


def write_part(folder: Path, name: str, records: Iterable[Any], identity: Identity, format: Format = "parquet") -> int:
    """Write record batches as one file, `name` with the format's suffix; it appears whole or not at all.

    Returns its rows. The columns must have the types of the identity's schema; its metadata is put in here.
    Parquet files say nothing about their rows but the rows: row groups of a fixed size and no statistics.
    """
    check_choice("format", format, get_args(Format))
    final = folder / f"{name}.{format}"
    temporary = folder / f".{final.name}"
    rows = 0
    try:
        with writing(final, "make room on the disk and run the same again"):
            # With its name inside, no two parts have the same bytes by chance: whoever meets the same bytes met a copy.
            schema = identity.arrow_schema()
            schema = schema.with_metadata({**schema.metadata, PART_KEY: name})
            with _writer(temporary, schema, format, identity.kind) as write:
                for batch in records:
                    rows += len(batch)
                    write(batch)
            sync(temporary)
            os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def parquet_settings(kind: ReportKind) -> dict[str, Any]:
    """How Parquet files of reports are written, as arguments for PyArrow's writer."""
    return {
        "use_dictionary": False,
        "column_encoding": kind.encoding,
        "compression": "none",
        "write_statistics": False,
        "write_page_checksum": True,
    }


@contextmanager
def _writer(path: Path, schema: Any, format: Format, kind: ReportKind) -> Iterator[Any]:
    """A function that takes record batches, and cuts them into groups of a fixed number of rows."""
    import pyarrow as pa
    from pyarrow import parquet

    waiting: list[Any] = []
    group_rows = kind.group_rows
    with (
        parquet.ParquetWriter(path, schema, **parquet_settings(kind))
        if format == "parquet"
        else pa.ipc.new_file(str(path), schema)
    ) as file:

        def put(*, last: bool) -> None:
            table = pa.Table.from_batches(waiting, schema)
            whole = len(table) if last else len(table) - len(table) % group_rows
            for start in range(0, whole, group_rows):
                group = table.slice(start, min(group_rows, whole - start)).combine_chunks()
                file.write_table(group, group_rows)
            waiting[:] = table.slice(whole).to_batches()

        def write(records: Any) -> None:
            waiting.append(pa.RecordBatch.from_arrays([records.column(kind.column)], schema=schema))
            if sum(map(len, waiting)) >= group_rows:
                put(last=False)

        yield write
        put(last=True)


MANIFEST = "_shufflesum.json"
_MANIFEST_FORMAT = "shufflesum-folder-2"
_MOST_BYTES = 1 << 28


def write_manifest(folder: Path, identity: Identity) -> None:
    """Say what is in a folder of reports, once all its files are there: from now on exactly that must be."""
    files = [open_report_file(path) for path in report_paths(folder)]
    document = {
        "identity": json.loads(identity.to_json()),
        "files": [{"name": file.path.name, "rows": file.rows, "bytes": file.bytes} for file, _ in files],
    }
    with writing(folder / MANIFEST, "check the disk"):
        replace_file(folder / MANIFEST, encode_checked(_MANIFEST_FORMAT, document))


def check_manifest(path: PathOrUrl, files: Iterable[ReportFile], identity: Identity) -> int | None:
    """How many reports were written beside these, them included, by the manifest; None where none is about them.

    A folder must hold exactly what its manifest says, and a single file must be as it was listed.
    """
    folder = path if path.is_dir() else path.parent
    if not (folder / MANIFEST).exists():
        return None
    listed, run = _read(folder / MANIFEST)
    found = {file.path.name: (file.rows, file.bytes) for file in files}
    if not path.is_dir() and path.name not in listed:
        return None
    for name in sorted(listed.keys() - found.keys()) if path.is_dir() else ():
        raise ReportsError(
            "changed-afterwards", f"{folder}: {name} is missing; {MANIFEST} lists it: copy the folder again, whole"
        )
    for name in sorted(found.keys() - listed.keys()):
        raise ReportsError(
            "changed-afterwards", f"{folder}: {name} is not in {MANIFEST}, so it does not belong here; move it away"
        )
    for name, (rows, size) in found.items():
        if (rows, size) != listed[name]:
            raise ReportsError(
                "changed-afterwards",
                f"{folder}: {name} has {rows} rows in {size} bytes, but {listed[name][0]} in {listed[name][1]} were "
                "written; copy the folder again, whole",
            )
    if identity != run:
        raise ReportsError(
            "changed-afterwards",
            f"{folder}: the files are of another run than {MANIFEST} says; copy the folder again, whole",
        )
    return sum(rows for rows, _ in listed.values())


def _read(path: PathOrUrl) -> tuple[dict[str, tuple[int, int]], Identity]:
    """Rows and bytes of each file, and of whose run they are."""
    try:
        with path.open("rb") as file:
            document = decode_checked(file.read(_MOST_BYTES), _MANIFEST_FORMAT)
        listed = {entry["name"]: (int(entry["rows"]), int(entry["bytes"])) for entry in document["files"]}
        return listed, Identity.from_json(json.dumps(document["identity"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(
            problem_of(error),
            f"{path}: the list of what was written cannot be read ({error}); copy the folder again, or write it anew",
        ) from error


_WRONG_STAGE: dict[Stage, str] = {
    "shuffled": "these reports were not shuffled; their order may tell whose they are: run shufflesum shuffle first",
    "reports": "these reports are shuffled already; give the output of shufflesum randomize",
}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A folder of report files, or one such file, that belong together.

    `written` is how many reports their run wrote, them included, where a manifest says so.
    """

    path: PathOrUrl
    files: tuple[ReportFile, ...]
    identity: Identity
    written: int | None = None

    @property
    def rows(self) -> int:
        """How many reports there are (reports, not users)."""
        return sum(file.rows for file in self.files)

    @property
    def whole(self) -> bool:
        """Whether it is known to be all that was written."""
        return (self.identity.written or self.written) == self.rows


def open_dataset(path: str | os.PathLike[str] | Address, *, stage: Stage) -> Dataset:
    """Open a folder of report files, or one file, at the stage expected; of most files only the footers are read.

    Everything visible in the folder must be a readable file of the same plan and stage, and nothing there twice. Where
    a manifest says what was written, exactly that must be there; at an address there must be one, for nothing else
    says of a folder in a store that it is whole.
    """
    require_arrow("files of reports need PyArrow")
    path = place(path)
    opened = {file: open_report_file(file) for file in report_paths(path)}
    for name, (_, identity) in opened.items():
        if identity.stage != stage:
            raise ReportsError("wrong-stage", f"{name}: {_WRONG_STAGE[stage]}")
    try:
        identity = reduce(Identity.merge, (identity for _, identity in opened.values()))
    except ReportsError as error:
        raise ReportsError(error.problem, f"{path}: {error}") from error
    files = tuple(file for file, _ in opened.values())
    dataset = Dataset(path, files, identity, check_manifest(path, files, identity))
    if isinstance(path, Address) and dataset.written is None:
        raise ReportsError(
            "not-whole",
            f"{path}: has no {MANIFEST} that is about it, so that nobody can tell whether all of it is there; copy the "
            f"folder again as it was written, {MANIFEST} last",
        )
    _refuse_repeats(files)
    if dataset.rows == 0:
        raise ReportsError("no-rows", f"{path}: its files hold no reports; nothing can be done with them")
    return dataset


def join_datasets(datasets: Sequence[Dataset]) -> Dataset:
    """Several folders, each checked by itself, as one; it goes by the path of the first."""
    first, *others = datasets
    identity = first.identity
    for other in others:
        try:
            identity = identity.merge(other.identity)
        except ReportsError as error:
            raise ReportsError(error.problem, f"{first.path} and {other.path}: {error}") from error
    files = tuple(file for dataset in datasets for file in dataset.files)
    _refuse_repeats(files)
    written = [dataset.written for dataset in datasets if dataset.written is not None]
    return Dataset(first.path, files, identity, sum(written) if len(written) == len(datasets) else None)


def file_digests(dataset: Dataset, workers: int | None = None) -> dict[PathOrUrl, str]:
    """The SHA-256 of each file with reports in it."""
    paths = [file.path for file in dataset.files if file.rows]
    with Workers([None] * (workers or cores())) as pool:
        return dict(zip(paths, pool.map(lambda _, path: _digest(path), paths), strict=True))


def _digest(path: PathOrUrl) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_repeats(files: Iterable[ReportFile]) -> None:
    """No report twice; of files without any, as Spark writes them, several may be equal."""
    filled = [file for file in files if file.rows]
    refuse_same_parts((file.contribution_ids, file.part, file.path) for file in filled if file.part is not None)
    refuse_same_files(file.path for file in filled)


_NOTE_FORMAT = "shufflesum-note-1"


def _write_note(path: Path, work: Mapping[str, Any], identity: Identity) -> None:
    """Say what is done, and for whose reports; the checksum is against damage."""
    replace_file(path, encode_checked(_NOTE_FORMAT, {"work": work, "identity": identity.to_json()}), 0o600)


def _read_note(path: Path, advice: str) -> tuple[Any, Identity] | None:
    """What a note says; None where there is none."""
    try:
        document = decode_checked(path.read_bytes(), _NOTE_FORMAT)
        return document["work"], Identity.from_json(document["identity"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(
            "damaged", f"{path}: the note about an earlier run cannot be read ({error}); {advice}"
        ) from error


def note_path(output: Path) -> Path:
    """Where the note about an output is."""
    return output.with_name(f".{output.name}.finished")


def partial_path(output: Path) -> Path:
    """Where an output is made."""
    return output.with_name(f".{output.name}.partial")


def finished_reports(
    output: str | os.PathLike[str], work: Mapping[str, Any], identity: Identity, *, restart: bool = False
) -> Dataset | None:
    """The reports that a run of the same work has written here, whole and unchanged; None where none has.

    Where they were there and are gone, they may have gone to the shuffler: refused, unless `restart` says that they
    did not, and others may be drawn.
    """
    output = local_path(output)
    if (earlier := _same_work(output, work, identity)) is None:
        return None
    if os.path.lexists(output):
        dataset = open_dataset(output, stage="reports")
        return dataset if dataset.identity == earlier and dataset.whole else None
    if restart:
        return None
    raise ReportsError(
        "randomized-before",
        f"{output}: these users were randomized here before, for the same round, and the folder is gone; drawn again, "
        "their reports would cost the guarantee twice. If nobody has the first ones, say restart=True to draw others",
    )


def _same_work(output: Path, work: Mapping[str, Any], identity: Identity) -> Identity | None:
    """Whose reports the note is about, where it is about the same work."""
    if partial_path(output).exists():  # stopped just before the end
        return None
    note = _read_note(note_path(output), "take a copy from before, or remove it if nobody has the reports of that run")
    if note is None:
        return None
    done, earlier = note
    ours = replace(earlier, contribution_ids=identity.contribution_ids)
    return earlier if done == json.loads(json.dumps(work)) and ours == identity else None


_WORK = "_work.json"


class StagedFolder:
    """The hidden folder `.NAME.partial` beside an output folder, moved to its place when the block ends well.

    `work` says what is being done. Parts that an interrupted run of the same work left are kept, and so is its
    identity; other work is refused unless `restart` throws it away. An interruption (a signal, a full disk, a crash)
    leaves the folder for the next run; any other error removes it. Two runs cannot work in it at once. `noted` leaves
    a note beside the output, by which `finished_reports` knows the same work again. Where there is something of an
    earlier run, `begin` is called with the name of this one before that is thrown away or gone on with; what it raises
    leaves all as it was.

    Reports in the order they came are for the shuffler alone: only folders of shuffled ones can be read by others, as
    far as the umask lets them.
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        work: Mapping[str, Any],
        identity: Identity,
        *,
        restart: bool = False,
        noted: bool = False,
        begin: Callable[[str], None] | None = None,
    ) -> None:
        self.output = local_path(output)
        self.identity = identity
        self.path = partial_path(self.output)
        self._work = json.loads(json.dumps(work))
        self._restart = restart
        self._noted = noted
        self._begin = begin
        self._lock = -1

    @property
    def parts(self) -> dict[str, int]:
        """The rows of each finished part, by name without suffix; what is no part of this work is taken away."""
        found = {}
        for path in sorted(self.path.iterdir()):
            if path.name.startswith((".", "_")) or not path.is_file():
                continue
            try:
                file, identity = open_report_file(path)
            except (FileError, ReportsError):  # a crash of the machine may leave anything
                identity = None
            if identity == self.identity:
                found[path.stem] = file.rows
            else:
                path.unlink()
        return found

    def __enter__(self) -> StagedFolder:
        """Make the folder, or take up an interrupted one."""
        if os.path.lexists(self.output):
            raise FileError(
                "exists", f"{self.output}: exists, and is never replaced; choose another output folder, or move it away"
            )
        try:
            with writing(self.output, "choose an output in a folder that exists and that you may write to"):
                self._take_lock()
                self._take_up()
        except BaseException:
            self._release()
            raise
        return self

    def _take_lock(self) -> None:
        self.path.mkdir(mode=0o700, exist_ok=True)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        if not try_lock(self._lock, self.path) or os.path.lexists(self.output):
            raise FileError(
                "in-use", f"{self.output}: another run is writing it; wait for that, or choose another output folder"
            )
        if os.fstat(self._lock).st_uid != os.geteuid():
            raise FileError(
                "unwritable", f"{self.path}: belongs to another user; remove it, or choose another output folder"
            )
        os.fchmod(self._lock, 0o700)

    def _take_up(self) -> None:
        advice = "say restart=True to throw away what was done"
        saved = None if self._restart else _read_note(self.path / _WORK, advice)
        if saved is not None:
            work, identity = saved
            # Its random ids are the earlier run's to keep; all else must be what is asked for now.
            now = self.identity
            same = replace(identity, contribution_ids=now.contribution_ids, shuffle_id=now.shuffle_id)
            if (work, same) != (self._work, now):
                raise FileError(
                    "resume-mismatch",
                    f"{self.output}: an interrupted run left {self.path.name}, with other input or options; "
                    "repeat that command to finish it, or say restart=True to throw away what it did",
                )
            self.identity = identity
        if self._begin is not None and any(self.path.iterdir()):
            self._begin(*self.identity.contribution_ids)
        if saved is not None:
            return
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        _write_note(self.path / _WORK, self._work, self.identity)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move the folder to its place; or keep it for another try, or remove it."""
        try:
            if error is None:
                self._finish()
            elif not is_interruption(error):
                shutil.rmtree(self.path, ignore_errors=True)
        finally:
            self._release()

    def _finish(self) -> None:
        write_manifest(self.path, self.identity)
        if os.path.lexists(self.output):  # a rename would replace an empty folder
            raise FileError(
                "exists",
                f"{self.output}: was made by somebody else in the meantime; move it away and run the same again",
            )
        with writing(self.output, "check the disk"):
            for entry in self.path.iterdir():
                if entry.name.startswith((".", "_")) and entry.name not in (MANIFEST, _WORK):
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            mode = _usual_mode(self.path) if self.identity.stage == "shuffled" else 0o700
            (self.path / _WORK).unlink()
            os.fchmod(self._lock, mode)
            if self._noted:  # before the output appears, so that there is none without a note
                _write_note(note_path(self.output), self._work, self.identity)
            sync(self.path)
            os.rename(self.path, self.output)
            sync(self.output.absolute().parent)

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _usual_mode(folder: Path) -> int:
    """The permissions a new folder gets here."""
    probe = folder / ".mode"
    probe.mkdir()
    mode = probe.stat().st_mode & 0o777
    probe.rmdir()
    return mode


def describe_inputs(paths: Sequence[PathOrUrl]) -> list[list[Any]]:
    """Names, sizes and times of change of input files, for `work`: a changed input is other work."""
    try:
        found = [(path.absolute(), path.stat()) for path in paths]
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError("unreadable", f"{error.filename}: cannot be read: {error.strerror or error}") from error
    return [[str(path), status.st_size, status.st_mtime_ns] for path, status in found]
