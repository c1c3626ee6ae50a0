"""Each path through the randomizer is looked at by itself: what is spoilt on one alone is caught there.

One row at a time without compiling is what a light client does. Here the other paths are honest, and it shares its part
of the time with the compiled one, as it does by default. Confidence is 1 - 1e-6: the honest are accused less than once
in a million audits.
"""

from __future__ import annotations

import itertools
import time
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.audit.audited_plans import planned
from tests.audit.reference_clients import with_noise
from tests.slow_params import slow_but_for

import shufflesum as ss
from shufflesum.audit import AuditResult, audit
from shufflesum.audit.findings import judged, less_noise_shown, users_to_show
from shufflesum.audit.paths import LIGHT, MANY_ROWS, ONE_PROCESS, ONE_ROW, Paths
from shufflesum.mechanisms.auditing import Attack
from shufflesum.protocol import Tally
from shufflesum.randomness import SecureSource
from shufflesum.reports import Counts
from shufflesum.testing import SeededSource

pytestmark = pytest.mark.usefixtures("findings_only")

NAMES = ("randomized-response", "labels", "noisy-counts", "ball, narrow")


@pytest.fixture(autouse=True)
def processor_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are the processor's, so that the default time is as long where others use the machine, too.

    Read at every 32nd call: it is asked for every single row, and costs as much as drawing one.
    """
    calls, seconds = itertools.count(), time.process_time()

    def monotonic() -> float:
        nonlocal seconds
        if next(calls) % 32 == 0:
            seconds = time.process_time()
        return seconds

    monkeypatch.setattr("shufflesum.audit.attacks.time", SimpleNamespace(monotonic=monotonic))


@cache
def attack_of(plan: ss.Plan) -> Attack:
    return plan.mechanism.attack(
        plan.encoding, plan.domain, plan.guarantee, lambda row: np.zeros(plan.cells, dtype=np.int64)
    )


def light(plan: ss.Plan, part: float = 1.0, **options: Any) -> ss.Randomizer:
    """The light client, with so much of its noise."""
    randomizer = ss.Randomizer(plan, compiled=False, **options)
    if part < 1.0:
        randomizer._encoder = with_noise(plan, part).encoder(plan.encoding, SecureSource())
    return randomizer


PATIENT = 3.0  # times as long, so that no test is a matter of how busy the machine is, but the one of the default time


def but_for(*names: str) -> list[Any]:
    """Only these in the ordinary run."""
    return slow_but_for(NAMES, names)


def audited(plan: ss.Plan, device: Any, seconds: float, samples: int = 1_500_000) -> AuditResult:
    """As by default, but for the attacks on epsilon, and fewer of what many rows in one call show."""
    one_row = {ONE_ROW: ss.Randomizer(plan).randomize, LIGHT: device}
    return audit(plan, one_row=one_row, samples=samples, trials=0, seconds=seconds)


def caught_there(result: AuditResult) -> bool:
    return bool(result.findings) and all(finding.startswith(f"{LIGHT}: ") for finding in result.findings)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_tenth_less_noise_one_row_at_a_time_is_caught_in_the_default_time(name: str) -> None:
    plan = planned(name)
    assert caught_there(audited(plan, light(plan, 0.9).randomize, seconds=20.0))


@pytest.mark.long
def test_a_tenth_less_noise_one_row_at_a_time_is_caught() -> None:
    plan = planned("randomized-response")
    assert caught_there(audited(plan, light(plan, 0.9).randomize, seconds=20.0 * PATIENT))


@pytest.mark.long
@pytest.mark.parametrize("name", but_for("randomized-response"))
def test_the_same_seed_after_a_fork_one_row_at_a_time_is_caught(name: str) -> None:
    plan = planned(name)
    result = audited(plan, light(plan, source=SeededSource(5)).randomize, seconds=8.0 * PATIENT, samples=400_000)
    assert caught_there(result)
    assert all("by the same user both times" in finding for finding in result.findings)


@pytest.mark.long
@pytest.mark.parametrize("name", but_for("labels"))
def test_something_held_without_noise_one_row_at_a_time_is_caught(name: str) -> None:
    """A label, value or vector that no crowd holds."""
    plan = planned(name)
    honest, silent = light(plan), light(plan, 0.0)
    attack = attack_of(plan)
    rows = [row for _, row in attack.variants[1:]]
    (bare, *_) = [row for row in rows if not any(np.array_equal(row, held) for held in attack.crowds)]

    def device(rows: Any) -> ss.Reports:
        return (silent if np.array_equal(rows[0], bare) else honest).randomize(rows)

    result = audited(plan, device, seconds=12.0 * PATIENT, samples=400_000)
    assert caught_there(result)
    assert any("hold variant" in finding for finding in result.findings), result.findings


class _Spoilt(Tally):
    def __init__(self, plan: ss.Plan, part: float = 0.9, **options: Any) -> None:
        super().__init__(plan, **options)
        self._tally = with_noise(plan, part).tally(plan.encoding_of(self._domain), SecureSource())


class _SameSeed(Tally):
    def __init__(self, plan: ss.Plan, **options: Any) -> None:
        super().__init__(plan, source=SeededSource(5), **options)


@pytest.mark.long
@pytest.mark.parametrize("tally", [_Spoilt, _SameSeed])
@pytest.mark.parametrize("name", but_for("randomized-response", "labels"))
def test_what_one_process_counts_is_looked_at_by_itself(
    name: str, tally: type[Tally], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(name)
    monkeypatch.setattr("shufflesum.audit.attacks.Tally", tally)
    result = audit(plan, one_row={}, samples=1_500_000, trials=0, seconds=20.0 * PATIENT)
    assert result.findings
    assert all(finding.startswith(f"{ONE_PROCESS}: ") for finding in result.findings)


@pytest.mark.long
@pytest.mark.parametrize("name", but_for("ball, narrow"))
def test_one_seed_for_all_batches_is_caught_whichever_it_is(name: str) -> None:
    """A few batches are enough, in no time at all: neither luck nor the clock decides."""
    plan = planned(name)
    for seed in range(5):

        def count(rows: Any, seed: int = seed) -> Counts:
            tally = Tally(plan, source=SeededSource(seed))
            tally.add(rows)
            return tally.counts()

        paths = Paths(plan, attack_of(plan))
        paths.whole_batches(count, 1, lambda _: True)
        found, _ = judged(list(paths.sums.counts().items()), 1e-6)
        assert any("equally often in two neighbouring batches" in finding for finding in found), seed


@pytest.mark.long
def test_the_report_says_who_was_drawn_along_each_path_and_what_would_have_shown() -> None:
    plan = planned("randomized-response")
    result = audit(plan, samples=1_000_000, trials=0, seconds=20.0 * PATIENT)
    assert result.passed, result.findings
    assert [drawn.path for drawn in result.paths] == [MANY_ROWS, ONE_PROCESS, ONE_ROW, LIGHT]
    attack = attack_of(plan)
    for drawn in result.paths:
        assert drawn.held == len(attack.crowds) + len(attack.variants)
        assert drawn.less_noise is not None
        assert drawn.less_noise < 0.1
    many, _, _, one = result.paths
    assert one.users < 0.2 * many.users


def test_a_wide_plan_says_how_few_users_it_had_time_for() -> None:
    plan = planned("ball, wide")
    result = audit(plan, one_row={"a device": light(plan).randomize}, samples=100_000, trials=0, seconds=2.0)
    (drawn,) = (drawn for drawn in result.paths if drawn.path == "a device")
    attack = attack_of(plan)
    assert 2 * len(attack.crowds) <= drawn.users < 300
    assert len(attack.crowds) <= drawn.held < len(attack.crowds) + len(attack.variants)
    assert drawn.less_noise is None or drawn.less_noise > 0.1
    assert result.passed, result.findings


@pytest.mark.parametrize("name", NAMES)
def test_less_noise_shows_among_as_many_users_as_are_said_to_be_enough(name: str) -> None:
    attack = attack_of(planned(name))
    places = attack.cell_groups(0)[0]
    enough = users_to_show(places, attack.silent, 0.1)
    shown = less_noise_shown(places, attack.silent, int(enough) + 1)
    assert shown == pytest.approx(0.1, rel=0.01)
    assert less_noise_shown(places, attack.silent, 4 * int(enough)) == pytest.approx(0.05, rel=0.1)
    assert less_noise_shown(places, attack.silent, 0) is None
