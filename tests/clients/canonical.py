"""Canonical JSON and the ids over it, from docs/wire.md alone: nothing of ours is imported."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

FLOATS = {
    *("bounds", "bins", "vectors", "center", "clipping_norm", "noise_probability", "probabilities", "chance"),
    *("amplitude", "tau", "noise", "epsilon", "delta", "honest_fraction"),
}
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def float_text(value: float) -> str:
    digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()[1:]
    assert isinstance(exponent, int)
    sign, text = "-" if value < 0 else "", "".join(map(str, digits))
    first = len(text) - 1 + exponent
    if value == 0:
        return "0.0"
    if not -4 <= first < 16:
        rest = f".{text[1:]}" if len(text) > 1 else ""
        return f"{sign}{text[0]}{rest}e{'-' if first < 0 else '+'}{abs(first):02d}"
    if first < 0:
        return f"{sign}0.{'0' * (-first - 1)}{text}"
    text = text.ljust(first + 1, "0")
    return f"{sign}{text[: first + 1]}.{text[first + 1 :] or '0'}"


def text_json(text: str) -> str:
    written = ""
    for character in text:
        if character in ESCAPES:
            written += ESCAPES[character]
        elif " " <= character <= "~":
            written += character
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            written += "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return f'"{written}"'


def canonical(value: Any, floating: bool = False) -> str:
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return text_json(value)
        case int() | float():
            return float_text(value) if floating else str(int(value))
        case list():
            return f"[{','.join(canonical(each, floating) for each in value)}]"
    fields = (
        f"{text_json(name)}:{canonical(value[name], name != 'half_length' and (floating or name in FLOATS))}"
        for name in sorted(value)
    )
    return f"{{{','.join(fields)}}}"


def sha256(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()
