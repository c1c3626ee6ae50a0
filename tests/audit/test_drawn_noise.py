"""The audit of noise that one process or servers draw: right roles pass, and every sabotaged one is found."""

from typing import Any

import numpy as np
import pytest

import shufflesum as ss
from shufflesum import protocol
from shufflesum.audit import audit
from shufflesum.cells import BLANK
from shufflesum.mechanisms import NoisyTable
from shufflesum.plans import Plan
from shufflesum.randomness import RandomSource, table_draws

CHOICES = ss.MultiChoice(20, max_choices=3)
DRAW = "shufflesum.mechanisms.noisy_table.mechanism.NoisyTable.draw"


def planned(noise_by: Any, domain: Any = CHOICES) -> Plan:
    return ss.plan(users=1000, domain=domain, epsilon=1.0, delta=1e-6, noise_by=noise_by)


@pytest.mark.long
@pytest.mark.parametrize("noise_by", ["curator", "shuffler", "servers"])
@pytest.mark.parametrize(
    "domain",
    [
        CHOICES,
        ss.Categories(3),
        ss.Arrays(4, (0, 1)),
        ss.GroupBy(["a", "b"], ss.Arrays(2, (0, 1))),
        ss.OpenVocabulary(64, 8),
    ],
    ids=lambda domain: type(domain).__name__,
)
@pytest.mark.filterwarnings("ignore::shufflesum.ShufflesumWarning")
def test_what_follows_the_plan_passes(noise_by: Any, domain: Any) -> None:
    result = audit(planned(noise_by, domain), trials=200, seconds=4)
    assert result.passed, result.verdict
    assert result.epsilon_lower <= 1.0


def scaled(times: float) -> Any:
    def draw(self: NoisyTable, encoding: Any, source: RandomSource) -> Any:
        noise = self.noise[0]
        less = ss.NoiseDistribution(noise.shape, noise.scale * times, noise.half_length)
        return table_draws(source, less.thresholds, self.cells(encoding))

    return draw


def constant(self: NoisyTable, encoding: Any, source: RandomSource) -> Any:
    return np.full(self.cells(encoding), self.noise[0].half_length)


def uniform(self: NoisyTable, encoding: Any, source: RandomSource) -> Any:
    words = np.empty(self.cells(encoding), dtype=np.uint32)
    source.fill(words)
    return (words % (2 * self.noise[0].half_length + 1)).astype(np.int64)


def repeated() -> Any:
    true = NoisyTable.draw
    known: list[Any] = []

    def draw(self: NoisyTable, encoding: Any, source: RandomSource) -> Any:
        known.append(known[-1] if len(known) % 2 else true(self, encoding, source))
        return known[-1].copy()

    return draw


@pytest.mark.parametrize("noise_by", ["curator", "shuffler", "servers"])
@pytest.mark.parametrize("draw", [constant, scaled(0.5), uniform, repeated()], ids=["none", "half", "other", "again"])
def test_missing_halved_other_and_repeated_noise_is_found(
    noise_by: Any, draw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(noise_by)
    plan.verify()
    monkeypatch.setattr(DRAW, draw)
    result = audit(plan, trials=200, seconds=60)
    assert result.findings, noise_by


def test_without_padding_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    true = protocol.added_reports
    monkeypatch.setattr(protocol, "added_reports", lambda plan, draw: [one[one != BLANK] for one in true(plan, draw)])
    assert any("number of reports" in found for found in audit(planned("shuffler"), trials=20).findings)


def test_one_permutation_over_all_positions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    true, known = protocol._shuffle, {}

    def same(items: Any, source: RandomSource) -> None:
        if len(items) not in known:
            known[len(items)] = np.arange(len(items), dtype=np.uint32)
            true(known[len(items)], source)
        items[:] = items[known[len(items)]]

    monkeypatch.setattr(protocol, "_shuffle", same)
    assert any("orders" in found for found in audit(planned("shuffler"), trials=200).findings)
