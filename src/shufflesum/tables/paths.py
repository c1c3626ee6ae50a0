"""Where files are: a path on this machine, or an address in a store that PyArrow, or else fsspec, can read."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from shufflesum.errors import FileError, MissingExtraError, Problem, ShufflesumError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_COLLAPSED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # what pathlib makes of an address


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a file at an address, as `Path.stat` calls it."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, order=True, slots=True)
class Address:
    """A file or folder at an address such as s3://bucket/users, with as much of a path's manners as reading needs.

    It is only ever read: nothing here could make a folder appear whole or not at all.
    """

    text: str

    def __str__(self) -> str:
        """As messages show it: without what may be a secret."""
        parts = urlsplit(self._split[0])
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def name(self) -> str:
        """The last part."""
        return PurePosixPath(self._split[0]).name

    @property
    def suffix(self) -> str:
        """The end of the name."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its end."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> Address:
        """The folder that it is in."""
        base, options = self._split
        return Address(base.rstrip("/").rpartition("/")[0] + options)

    def __truediv__(self, name: str) -> Address:
        base, options = self._split
        return Address(f"{base.rstrip('/')}/{name}{options}")

    @property
    def _split(self) -> tuple[str, str]:
        """The address, and its options for the store, such as ?endpoint_override=127.0.0.1:9000."""
        base, mark, options = self.text.partition("?")
        return base, mark + options

    def resolve(self) -> Address:
        """Itself."""
        return self

    def absolute(self) -> Address:
        """Itself."""
        return self

    def exists(self) -> bool:
        """Whether anything is there."""
        return self._is("File", "Directory")

    def is_file(self) -> bool:
        """Whether a file is there."""
        return self._is("File")

    def is_dir(self) -> bool:
        """Whether a folder is there, or what passes for one in a store."""
        return self._is("Directory")

    def _is(self, *kinds: str) -> bool:
        return self._info().type.name in kinds

    def _info(self) -> Any:
        with self._reading() as (files, path):
            return files.get_file_info(path)

    def stat(self) -> Status:
        """Its size and when it was written."""
        info = self._info()
        return Status(info.size or 0, info.mtime_ns or 0)

    def iterdir(self) -> Iterator[Address]:
        """What is in the folder."""
        from pyarrow import fs

        with self._reading() as (files, path):
            found = files.get_file_info(fs.FileSelector(path))
        return (self / info.base_name for info in found)

    def native(self) -> Any:
        """An open file of Arrow's, in which any place can be read."""
        with self._reading() as (files, path):
            return files.open_input_file(path)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """An open file of bytes."""
        assert mode == "rb", mode
        return io.BufferedReader(self.native(), 1 << 20)

    def read_bytes(self) -> bytes:
        """All of a file."""
        with self.open() as file:
            return file.read()

    @contextmanager
    def _reading(self) -> Iterator[tuple[Any, str]]:
        """The store and the path in it; what a store says when it cannot be read is said of the address."""
        try:
            yield _found(self.text)
        except ShufflesumError:
            raise
        except Exception as error:  # a store may fail in any way, and fsspec's have errors of their own
            raise FileError(
                "unreachable",
                f"{self}: cannot be read: {' '.join(str(error).split())[:300] or type(error).__name__}; check the "
                "address, the network and the credentials, which the store's own libraries look for",
            ) from error


PathOrUrl = Path | Address
_Place = TypeVar("_Place", Path, Address, PathOrUrl)


def place(path: str | os.PathLike[str] | Address) -> PathOrUrl:
    """A path, or the address that a text is: file:///tmp/users is a path, s3://bucket/users is not."""
    if isinstance(path, Address):
        return path
    text = os.fspath(path)
    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    return Address(text) if _ADDRESS.match(text) else Path(path)


def visible(folder: _Place) -> list[_Place]:
    """What is in a folder, by name; what is hidden or starts with _ does not count."""
    found = (entry for entry in folder.iterdir() if not entry.name.startswith(("_", ".")))
    return sorted(found, key=lambda entry: entry.name)


@contextmanager
def reading(path: PathOrUrl) -> Iterator[None]:
    """Say what the system has against reading a place; our own errors stay as they are."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            "unreadable", f"{path}: cannot be read: {error.strerror or error}; check its permissions"
        ) from error


def unread(path: PathOrUrl) -> Problem:
    """The problem with a place that cannot be read: one on this machine, or one at an address."""
    return "unreadable" if isinstance(path, Path) else "unreachable"


def local_path(path: str | os.PathLike[str]) -> Path:
    """A path to write to; an address is refused as such."""
    if _COLLAPSED.match(text := os.fspath(path)):
        whole = text if "://" in text else text.replace(":/", "://", 1)  # a path has lost a stroke
        raise FileError(
            "unwritable",
            f"{place(whole)}: is an address, and nothing is written there: only on a disk does a file or folder appear "
            "whole or not at all. Write to this machine, then copy what is finished, of a folder its _shufflesum.json "
            "last",
        )
    return Path(path)


@lru_cache(maxsize=64)
def _connected(root: str) -> tuple[Any, str]:
    """The store of an address, and how a path in it begins."""
    from pyarrow import fs

    try:
        files, path = fs.FileSystem.from_uri(root)
        return files, str(path)
    except ValueError as error:  # pa.ArrowInvalid: not one of Arrow's
        try:
            import fsspec
        except ImportError:
            raise MissingExtraError(
                "missing-extra",
                f"{root}: PyArrow has no such store ({error}); others are read with fsspec and the package that it "
                "names for it: pip install fsspec",
            ) from None
        files, path = fsspec.core.url_to_fs(root)
        return fs.PyFileSystem(fs.FSSpecHandler(files)), path


def _found(text: str) -> tuple[Any, str]:
    base, _, options = text.partition("?")
    parts = urlsplit(base)
    root = f"{parts.scheme}://{parts.netloc}{'/' if not parts.netloc else ''}"
    files, begin = _connected(root + (f"?{options}" if options else ""))
    return files, begin.rstrip("/") + parts.path if parts.netloc else parts.path
