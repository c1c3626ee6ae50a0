"""How noise enters: a mechanism is a value inside the plan, and answers every question that depends on it.

A small tagged union. `mechanism.py` says what each member answers; each has a folder of its own.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import msgspec

from shufflesum.errors import PlanError
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.mechanisms.noisy_counts import NoisyCounts
from shufflesum.mechanisms.noisy_slots import NoisySlots
from shufflesum.mechanisms.noisy_sums import NoisySums
from shufflesum.mechanisms.noisy_table import NoisyTable
from shufflesum.mechanisms.one_bit import OneBit
from shufflesum.mechanisms.partition_selection import PartitionSelection
from shufflesum.mechanisms.randomized_response import RandomizedResponse

__all__ = [
    "MECHANISMS",
    "NoisyCounts",
    "NoisySlots",
    "NoisySums",
    "NoisyTable",
    "OneBit",
    "PartitionSelection",
    "RandomizedResponse",
    "mechanism_from_json",
    "mechanism_to_json",
    "register",
]

MECHANISMS: dict[str, type[Mechanism]] = {}
"""Every mechanism, by its tag in plan files; planners try them in this order."""


def register(mechanism: type[Mechanism]) -> type[Mechanism]:
    """Add a mechanism: plans, files, servers and audits then take it like any other."""
    MECHANISMS[mechanism.kind] = mechanism
    return mechanism


for _mechanism in (NoisySums, NoisyTable, NoisyCounts, NoisySlots, RandomizedResponse, OneBit, PartitionSelection):
    register(_mechanism)


def mechanism_to_json(mechanism: Mechanism) -> dict[str, Any]:
    """The mechanism's kind and parameters as plain values."""
    return {
        "kind": mechanism.kind,
        **{name: msgspec.to_builtins(getattr(mechanism, name)) for name in _names(type(mechanism))},
    }


def mechanism_from_json(value: object) -> Mechanism:
    """Undo `mechanism_to_json`; raises `PlanError` for anything else."""
    match value:
        case {"kind": str(kind), **parameters} if kind in MECHANISMS:
            names = _names(MECHANISMS[kind])
            if set(parameters) != set(names):
                raise PlanError(
                    "malformed", f"the mechanism {kind!r} has {', '.join(names)}, not {', '.join(map(str, parameters))}"
                )
            try:
                mechanism = msgspec.convert(parameters, MECHANISMS[kind])
            except msgspec.ValidationError as error:
                raise PlanError("malformed", f"the plan's mechanism is not valid: {error}") from error
            if json.loads(json.dumps(mechanism_to_json(mechanism))) != json.loads(
                json.dumps(value)
            ):  # parts of parameters that nobody reads
                raise PlanError("malformed", f"the plan's mechanism {kind!r} has parts that mean nothing")
            return mechanism
    known = ", ".join(f'{{"kind": "{kind}", ...}}' for kind in MECHANISMS)
    raise PlanError("malformed", f"a mechanism must be {known}, not {str(value)[:80]}")


def _names(kind: type[Mechanism]) -> list[str]:
    return [field.name for field in fields(kind)]  # type: ignore[arg-type]  # each member is a dataclass
