"""JSON documents that are read back: each key once, figures that say what they should, no byte changed unnoticed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shufflesum.errors import FileError, Problem

_File = TypeVar("_File")
_CHECKSUM = 64 + len('"}\n')


class OtherFormatError(ValueError):
    """A document of another kind, or of another version."""


def problem_of(error: Exception, otherwise: Problem = "damaged") -> Problem:
    """What is wrong with a document that could not be decoded."""
    return "format-mismatch" if isinstance(error, OtherFormatError) else otherwise


class _Format(msgspec.Struct):
    format: str = ""


def decode_once(text: str | bytes, kind: type[_File], format: str) -> _File:
    """Decode a JSON document of this format; one of another format is an `OtherFormatError`.

    A key that is there twice is a ValueError, since two readers may take different values of it.
    """
    found = msgspec.json.decode(text, type=_Format).format
    if found != format:
        raise OtherFormatError(_formats(found, format))
    decoded = msgspec.json.decode(text, type=kind)
    json.loads(text, object_pairs_hook=_without_repeats)
    return decoded


def _formats(found: object, format: str) -> str:
    return f"its format is {str(found)[:80]!r}, but this version reads {format!r}"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:80]!r} is there twice")
        found[name] = value
    return found


def agree(stated: Any, true: Any, scale: float = 0.0) -> bool:
    """Equal, but for the last digits of figures, which may differ between machines.

    Predictions are sums and differences of parts, so the largest figure in their table sets the scale.
    """
    if isinstance(stated, dict) and isinstance(true, dict):
        scale = max((abs(value) for value in true.values() if isinstance(value, float)), default=0.0)
        return stated.keys() == true.keys() and all(agree(stated[name], true[name], scale) for name in stated)
    if isinstance(stated, float) and isinstance(true, float):
        return math.isclose(stated, true, rel_tol=1e-6, abs_tol=1e-9 * scale)
    return type(stated) is type(true) and bool(stated == true)


def read_file(path: str | Path, what: str) -> bytes:
    """All bytes of a file; `what` it is, for the refusal."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError("unreadable", f"cannot read {what} {path}: {error.strerror or error}") from error


def encode_checked(format: str, content: Mapping[str, Any]) -> str:
    """JSON that begins with its format and ends with the SHA-256 of all bytes before that.

    It is there against damage, by whatever cause; whoever changes a file on purpose can compute it again.
    """
    text = json.dumps({"format": format, **content}, separators=(",", ":"), allow_nan=False)
    body = text.removesuffix("}") + ',"checksum":"'
    return body + _end_of(body.encode())


def decode_checked(data: bytes, format: str) -> dict[str, Any]:
    """The content of `encode_checked`; a ValueError for any other byte, an `OtherFormatError` for another format."""
    body, end = data[:-_CHECKSUM], data[-_CHECKSUM:]
    whole = end == _end_of(body).encode()
    try:
        document = json.loads(data)
        found = document.pop("format")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no JSON object with a format, or was changed or damaged: {error}") from error
    if found != format:
        raise OtherFormatError(_formats(found, format))
    if not whole:
        raise ValueError("its checksum does not fit: it was changed or damaged")
    del document["checksum"]
    return dict(document)


def _end_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest() + '"}\n'
