"""JSON documents that are read back: each key once, and figures that say what they should."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import msgspec

__all__ = ["OtherFormatError", "agree", "decode_once"]

_File = TypeVar("_File")


class OtherFormatError(ValueError):
    """A document of another kind, or of another version."""


class _Format(msgspec.Struct):
    format: str = ""


def decode_once(text: str | bytes, kind: type[_File], format: str) -> _File:
    """Decode a JSON document of this format; one of another format is an `OtherFormatError`.

    A key that is there twice is a ValueError, since two readers may take different values of it.
    """
    found = msgspec.json.decode(text, type=_Format).format
    if found != format:
        raise OtherFormatError(f"its format is {found[:80]!r}, but this version reads {format!r}: make it anew")
    decoded = msgspec.json.decode(text, type=kind)
    json.loads(text, object_pairs_hook=_without_repeats)
    return decoded


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:80]!r} is there twice")
        found[name] = value
    return found


def agree(told: Any, true: Any, scale: float = 0.0) -> bool:
    """Equal, but for the last digits of figures, which may differ between machines.

    Predictions are sums and differences of parts, so the largest figure in their table sets the scale.
    """
    if isinstance(told, dict) and isinstance(true, dict):
        scale = max((abs(value) for value in true.values() if isinstance(value, float)), default=0.0)
        return told.keys() == true.keys() and all(agree(told[name], true[name], scale) for name in told)
    if isinstance(told, float) and isinstance(true, float):
        return math.isclose(told, true, rel_tol=1e-6, abs_tol=1e-9 * scale)
    return type(told) is type(true) and bool(told == true)
