"""A plan altered in memory is refused by everybody who acts under it, not only by whoever loads it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import plans
from shufflesum.audit import audit
from shufflesum.domains import Domain
from shufflesum.domains.bounds import Bounds
from shufflesum.domains.labels import Labels
from shufflesum.domains.structure import Dense
from shufflesum.encodings import MultiHot, OneHot
from shufflesum.errors import MissingExtraError, ParameterError, PlanError
from shufflesum.keys import generate_private_key
from shufflesum.privacy import Guarantee, NoisySlotsAccountant
from shufflesum.protocol import Tally, UnverifiedRandomizer
from shufflesum.release import release
from shufflesum.reports import Counts, UnverifiedCounts
from shufflesum.rounds import RoundCounter
from shufflesum.statement import statement
from shufflesum.testing import no_guarantee
from shufflesum.wire import Task

PLAN = ss.plan(users=1000, domain=ss.Categories(3), epsilon=1.0, delta=1e-6, mechanism="noisy-counts")
KEY = generate_private_key().public_key().public_bytes_raw()


class _Believed:
    """An accountant that confirms whatever is claimed."""

    local_epsilon = None

    def check_claim(self, guarantee: Guarantee) -> None:
        pass


class _Boastful(ss.NoisySlots):
    def accountant(self, encoding: OneHot, guarantee: Guarantee) -> NoisySlotsAccountant:
        return _Believed()  # type: ignore[return-value]


class _Renamed(ss.Plan):
    id = PLAN.id


class _Generous(Guarantee):
    honest_users = 10**6


class _Fewer(ss.Categories):
    pass


def _written(target: object, name: str, value: object) -> None:
    object.__setattr__(target, name, value)


def _few_users() -> ss.Plan:
    return replace(PLAN, guarantee=replace(PLAN.guarantee, users=2))


def _small_epsilon() -> ss.Plan:
    return replace(PLAN, guarantee=replace(PLAN.guarantee, epsilon=0.001))


def _less_noise() -> ss.Plan:
    return replace(PLAN, mechanism=ss.NoisySlots(1, 2.0**-10))


def _own_mechanism() -> ss.Plan:
    return ss.Plan(PLAN.domain, _Boastful(1, 2.0**-10), Guarantee(0.001, 1e-6, 2))


def _own_accountant() -> ss.Plan:
    plan = replace(PLAN, mechanism=ss.NoisySlots(1, 2.0**-10))
    _written(plan.mechanism, "accountant", lambda *_: _Believed())
    return plan


def _own_plan() -> ss.Plan:
    return _Renamed(PLAN.domain, PLAN.mechanism, replace(PLAN.guarantee, users=2))


def _own_guarantee() -> ss.Plan:
    return replace(PLAN, guarantee=_Generous(1.0, 1e-6, 2))


def _own_domain() -> ss.Plan:
    return replace(PLAN, domain=_Fewer(3))


def _exchanged_guarantee() -> ss.Plan:
    plan = copy.deepcopy(PLAN)
    assert plan.id
    _written(plan, "guarantee", replace(plan.guarantee, users=2))
    return plan


def _users_written_over() -> ss.Plan:
    plan = copy.deepcopy(PLAN)
    _written(plan.guarantee, "users", 2)
    return plan


def _epsilon_that_is_no_number() -> ss.Plan:
    plan = copy.deepcopy(PLAN)
    _written(plan.guarantee, "epsilon", float("nan"))
    return plan


def _id_of_another() -> ss.Plan:
    plan = _few_users()
    vars(plan)["id"] = PLAN.id
    return plan


def _fewer_reports() -> ss.Plan:
    plan = copy.deepcopy(PLAN)
    vars(plan)["reports"] = 1
    return plan


def _own_verify() -> ss.Plan:
    plan = _few_users()
    vars(plan)["verify"] = lambda: None
    return plan


def _forged_encoding() -> ss.Plan:
    plan = copy.deepcopy(PLAN)
    vars(plan)["encoding"] = OneHot(1)
    return plan


class _LessNoise(float):
    def __mul__(self, other: float) -> float:
        return 0.0


class _NeverTooMany(int):
    def __gt__(self, other: int) -> bool:
        return False


def _noise_that_multiplies_otherwise() -> ss.Plan:
    plan = copy.deepcopy(PLAN)
    _written(plan.mechanism, "chance", _LessNoise(plan.mechanism.chance))  # type: ignore[attr-defined]
    return plan


def _users_that_compare_otherwise() -> ss.Plan:
    plan = copy.deepcopy(PLAN)
    _written(plan.guarantee, "users", _NeverTooMany(plan.users))
    return plan


class _Longer(Labels):
    def __len__(self) -> int:
        return 300


def _labels_that_count_otherwise() -> ss.Plan:
    plan = copy.deepcopy(PLAN)
    _written(plan.domain, "labels", _Longer(3))
    return plan


ALTERED: list[Callable[[], ss.Plan]] = [
    _few_users,
    _small_epsilon,
    _less_noise,
    _own_mechanism,
    _own_accountant,
    _own_plan,
    _own_guarantee,
    _own_domain,
    _exchanged_guarantee,
    _users_written_over,
    _epsilon_that_is_no_number,
    _id_of_another,
    _fewer_reports,
    _own_verify,
    _forged_encoding,
    _noise_that_multiplies_otherwise,
    _users_that_compare_otherwise,
    _labels_that_count_otherwise,
]


def _gate(plan: ss.Plan, _: Path) -> None:
    counts = Counts(PLAN)
    counts.blanks = 10**6
    counts.plan = plan
    release(counts, without_guarantee=True)


def _task(plan: ss.Plan) -> Task:
    expires = datetime(2099, 1, 1, tzinfo=UTC)
    return Task(name="altered", plan=plan, analyzer_key=KEY, shuffler="https://example.org", expires=expires)


def _task_altered_later(plan: ss.Plan, _: Path) -> None:
    task = _task(PLAN)
    _written(task, "plan", plan)
    task.verify()


def _rounds_later(plan: ss.Plan, folder: Path) -> None:
    used = RoundCounter(folder / "rounds.db", PLAN)
    used.plan = plan
    used.begin()


ROLES: dict[str, Callable[[ss.Plan, Path], object]] = {
    "randomizer": lambda plan, _: ss.Randomizer(plan),
    "tally": lambda plan, _: Tally(plan),
    "analyzer": lambda plan, _: ss.Analyzer(plan),
    "counts": lambda plan, _: Counts(plan),
    "gate": _gate,
    "aggregate": lambda plan, _: ss.aggregate([0, 1] * 1000, plan=plan),
    "rounds": lambda plan, folder: RoundCounter(folder / "rounds.db", plan),
    "rounds, later": _rounds_later,
    "budget, fixed": lambda plan, _: ss.Budget(8.0, 1e-4, plans=[plan]),
    "budget, fits": lambda plan, _: ss.Budget(8.0, 1e-4).fits(plan),
    "budget, begin": lambda plan, _: ss.Budget(8.0, 1e-4).begin(plan),
    "budget, enter": lambda plan, _: ss.Budget(8.0, 1e-4).enter(plan, "here"),
    "task": lambda plan, _: _task(plan),
    "task, later": _task_altered_later,
    "statement": lambda plan, _: statement(plan),
    "audit": lambda plan, _: audit(plan),
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("altered", ALTERED)
def test_a_plan_altered_in_memory_is_refused(altered: Callable[[], ss.Plan], role: str, tmp_path: Path) -> None:
    with refusal(("changed-afterwards", "claim-not-confirmed", "wrong-type"), error=(PlanError, ParameterError)):
        ROLES[role](altered(), tmp_path)
    assert not list(tmp_path.glob("*.json"))


class _Wider(ss.Arrays):
    @property
    def dimension(self) -> int:
        return 30


class _MoreEntries(Dense):
    @property
    def dimension(self) -> int:
        return 30


class _OtherBounds(Bounds):
    pass


def _few_choices() -> MultiHot:
    return MultiHot(4, max_true=1)


DEEP: dict[str, tuple[Domain, Callable[[ss.Plan], None]]] = {
    "values of groups": (
        ss.GroupBy(["a", "b"], 2),
        lambda plan: _written(plan.domain, "values", _Wider(2)),
    ),
    "structure of values of groups": (
        ss.GroupBy(["a", "b"], 2),
        lambda plan: _written(plan.domain.numbers, "structure", _MoreEntries((2,))),
    ),
    "bounds": (ss.Arrays(2), lambda plan: _written(plan.domain, "bounds", _OtherBounds(0.0, 1.0))),
    "one end of bounds": (ss.Arrays(2, (0.0, 1.0)), lambda plan: _written(plan.domain.numbers.bounds, "lower", -5.0)),
    "a list in place of a tuple": (ss.Arrays(2), lambda plan: _written(plan.mechanism, "trials", [1, 1])),
    "places of labels": (
        ss.Categories(["a", "b"]),
        lambda plan: plan.domain.labels._places.update(b=0),  # type: ignore[attr-defined]
    ),
    "sensitivity": (
        ss.MultiChoice(["a", "b", "c", "d"], max_choices=2),
        lambda plan: vars(plan).update(encoding=_few_choices()),
    ),
    "a remembered error": (ss.Arrays(2), lambda plan: vars(plan).update(curator_error=0.0)),
    "center": (ss.L2Ball(64, 1.0, center=np.ones(64)), lambda plan: _written(plan.domain, "center", np.zeros(64))),
    "method of an encoding": (
        ss.L2Ball(64, 1.0),
        lambda plan: _written(plan.encoding, "draw_signs", lambda: np.ones(64, np.int8)),
    ),
}


@pytest.mark.parametrize("what", DEEP)
def test_parts_of_parts_are_looked_at_though_an_equal_plan_was_verified(what: str) -> None:
    domain, alter = DEEP[what]
    plan = ss.plan(users=1000, domain=domain, epsilon=1.0, delta=1e-6)
    plan.encoding, plan.times_curator, plan.curator_error, str(plan)
    for same in (plan, copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        Counts(same)
    alter(plan)
    with refusal("changed-afterwards", error=PlanError):
        Counts(plan)


def test_bounds_written_in_place_make_another_plan() -> None:
    plan = ss.plan(users=1000, domain=ss.Arrays(2, ([0, 0], [1, 2])), epsilon=1.0, delta=1e-6)
    Counts(plan)
    upper = plan.domain.numbers.bounds.upper_values
    upper.setflags(write=True)
    upper[0] = 100.0
    with refusal("changed-afterwards", error=PlanError):
        Counts(plan)


def test_numpys_numbers_and_texts_become_pythons() -> None:
    few: Any = np.int64(8)
    half: Any = np.float32(0.5)
    text: Any = np.str_("a")
    listed: Any = np.array(["a", "b", "c", "d", "e", "f", "g", "h"])
    for domain in (
        ss.Arrays(few, (half, few), columns=listed),
        ss.Categories(listed, column=text),
        ss.L2Ball({text: 8 * few}, half),
        ss.OpenVocabulary(few, few, column=text, round_number=few // 8),
    ):
        Counts(ss.plan(users=1000 * few, domain=domain, epsilon=half, delta=half / 2**20))


@pytest.mark.parametrize("role", [role for role in ROLES if role not in ("audit", "gate")])
def test_the_plan_as_it_was_made_is_taken(role: str, tmp_path: Path) -> None:
    ROLES[role](PLAN, tmp_path)


def test_a_guarantee_is_computed_once_however_many_act_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Guarantee] = []
    true = NoisySlotsAccountant.check_claim

    def counted(accountant: NoisySlotsAccountant, guarantee: Guarantee) -> None:
        computed.append(guarantee)
        true(accountant, guarantee)

    monkeypatch.setattr(NoisySlotsAccountant, "check_claim", counted)
    monkeypatch.setattr(plans, "_verified", set())
    for plan in (PLAN, copy.deepcopy(PLAN), ss.Plan.from_json(PLAN.to_json())):
        ss.Randomizer(plan), Tally(plan), ss.Analyzer(plan)
    assert computed == [PLAN.guarantee]
    for _ in range(2):  # a refusal is not remembered as anything else
        with refusal("claim-not-confirmed", error=PlanError):
            ss.Randomizer(_few_users())
    assert len(computed) == 3


def test_a_test_plan_claims_nothing_and_is_taken() -> None:
    plan = ss.Plan(PLAN.domain, ss.NoisySlots(1, 0.0), no_guarantee(2))
    reports = ss.Randomizer(plan).randomize([0, 1])
    assert ss.Analyzer(plan).analyze(reports).plan.accountant == "none"


def test_where_nothing_can_be_computed_only_what_believes_on_purpose_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise MissingExtraError("missing-extra", "no numba")

    monkeypatch.setattr(NoisySlotsAccountant, "check_claim", missing)
    monkeypatch.setattr(plans, "_verified", set())
    for role in (ss.Randomizer, ss.Analyzer, Counts):
        with refusal("missing-extra", "verify=False", error=MissingExtraError):
            role(PLAN)
    reports = UnverifiedRandomizer(PLAN).randomize([0, 1])
    counts = UnverifiedCounts(PLAN)
    counts.add(reports)
    assert counts.users == 2
    with refusal("missing-extra", error=MissingExtraError):
        release(counts)


@pytest.mark.parametrize("altered", [_own_mechanism, _own_plan, _exchanged_guarantee, _id_of_another, _own_domain])
def test_whoever_believes_a_guarantee_believes_no_forgery(altered: Callable[[], ss.Plan]) -> None:
    for role in (UnverifiedRandomizer, UnverifiedCounts):
        with refusal(("changed-afterwards", "wrong-type"), error=(PlanError, ParameterError)):
            role(altered())
