from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from starlette.responses import JSONResponse
from tests.service.servers import Deployment
from tests.service.shuffler.shuffler_model import RELEASE_AT, REPORTS, ROUNDS, SMALLEST, NothingEarly, Shared

from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.http import app
from shufflesum.service.shuffler import release
from shufflesum.wire import Task


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[type[Shared]]:
    Shared.deployment = Deployment.small(tmp_path, users=SMALLEST, reports=REPORTS, rounds=ROUNDS)
    yield Shared
    Shared.sabotage, Shared.waits = None, (0.0, 0.1)


def explore(examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(NothingEarly, settings=chosen)


def test_nothing_shows_before_a_round_is_full(shared: type[Shared]) -> None:
    explore(examples=6, steps=30)


@pytest.mark.slow
def test_nothing_shows_before_a_round_is_full_in_long_explorations(shared: type[Shared]) -> None:
    shared.waits = (0.0, 0.05, 0.1, 0.2, 0.5)
    explore(examples=60, steps=60)


# Servers that cheat, each in one way.


def one_too_few() -> None:
    Task.smallest_batch = property(lambda self: self.plan.users - 1)  # type: ignore[assignment, method-assign]


def one_report_twice() -> None:
    honest = release.permuted

    def cheat(*arguments: object, **rest: object) -> Iterator[bytes]:
        pieces = b"".join(honest(*arguments, **rest))  # type: ignore[arg-type]
        yield pieces[:SEALED_BYTES] + pieces[:-SEALED_BYTES]

    release.permuted = cheat  # type: ignore[assignment]


def the_round_tells_more() -> None:
    def cheat(found: msgspec.Struct, status: int = 200) -> JSONResponse:
        return JSONResponse(msgspec.to_builtins(found) | {"users": 1}, status)

    app.json_response = cheat


@pytest.mark.parametrize(
    ("sabotage", "steps"),
    [
        (one_too_few, ["upload"] * (SMALLEST - 1) + ["ask_for_release"]),
        (one_report_twice, ["upload"] * RELEASE_AT),
        (the_round_tells_more, ["ask_for_the_round"]),
    ],
)
def test_a_shuffler_that_cheats_is_found_out(
    shared: type[Shared], sabotage: Callable[[], None], steps: list[str]
) -> None:
    follow(steps)
    shared.sabotage = staticmethod(sabotage)
    with pytest.raises(AssertionError):
        follow(steps)


def follow(steps: list[str]) -> None:
    machine = NothingEarly()
    with machine.stack:
        machine.begin()
        for step in steps:
            getattr(machine, step)()
        machine.metrics_tell_counts_and_nothing_else()
        machine.only_full_rounds_reach_the_analyzer()
        machine.batches_are_whole_and_leave_once()
