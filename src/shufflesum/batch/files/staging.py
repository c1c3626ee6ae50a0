"""An output folder that appears whole or not at all, and whose making can be interrupted and taken up again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from shufflesum._documents import decode_checked, encode_checked
from shufflesum._machine import replace_file, sync, try_lock
from shufflesum.batch.disk import is_interruption, writing
from shufflesum.batch.files.finished import note_finished, partial_path
from shufflesum.batch.files.manifest import MANIFEST, write_manifest
from shufflesum.batch.files.report_file import open_report_file
from shufflesum.batch.identity import Identity
from shufflesum.errors import FileError, ReportsError
from shufflesum.tables import Place, local_path

__all__ = ["StagedFolder", "describe_inputs"]

_WORK = "_work.json"
_FORMAT = "shufflesum-work-2"


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
            self._take_lock()
            self._take_up()
        except OSError as error:
            self._release()
            if isinstance(error, FileError):
                raise
            raise FileError(
                "unwritable",
                f"{self.output}: cannot be written: {error.strerror or error}; choose an output in a folder that "
                "exists and that you may write to",
            ) from error
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
        saved = None if self._restart else self._saved()
        if saved is not None:
            work, identity = saved
            # Its random ids are the earlier run's to keep; all else must be what is asked for now.
            now = self.identity
            same = replace(identity, contribution_ids=now.contribution_ids, shuffle_id=now.shuffle_id)
            if (work, same) != (self._work, now):
                raise FileError(
                    "other-work",
                    f"{self.output}: an interrupted run left {self.path.name}, with other input or options; "
                    "repeat that command to finish it, or say --restart to throw away what it did",
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
        note = {"work": self._work, "identity": self.identity.to_json()}
        replace_file(self.path / _WORK, encode_checked(_FORMAT, note))

    def _saved(self) -> tuple[Any, Identity] | None:
        """What the interrupted run was doing; None where it did not come so far as to say it."""
        path = self.path / _WORK
        if not path.exists():
            return None
        try:
            document = decode_checked(path.read_bytes(), _FORMAT)
            return document["work"], Identity.from_json(document["identity"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FileError(
                "damaged", f"{path}: cannot be understood ({error}); say --restart to throw away what was done"
            ) from error

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
            if self._noted:
                note_finished(self.output, self._work, self.identity)
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


def describe_inputs(paths: Sequence[Place]) -> list[list[Any]]:
    """Names, sizes and times of change of input files, for `work`: a changed input is other work."""
    try:
        found = [(path.absolute(), path.stat()) for path in paths]
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError("unreadable", f"{error.filename}: cannot be read: {error.strerror or error}") from error
    return [[str(path), status.st_size, status.st_mtime_ns] for path, status in found]
