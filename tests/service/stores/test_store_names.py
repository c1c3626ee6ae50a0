"""A store keeps a name of its own, and says it before anything is done with it: who adds up can refuse another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.refusals import refusal
from tests.service.stores.store_urls import PathOrUrl, fill, new_task

from shufflesum.errors import PrivacyError
from shufflesum.service.stores.database import WrongStoreError
from shufflesum.service.stores.store import Store, open_store


def opened(place: PathOrUrl, names: list[str]) -> Store:
    store = open_store(place.address, place.task, names.append)
    store.rounds()  # PostgreSQL is not asked before
    return store


def test_a_store_keeps_the_name_it_was_made_with(store: Store, place: PathOrUrl) -> None:
    fill(store, place.task)
    store.close()
    names = list[str]()
    for _ in range(2):
        opened(place, names).close()
    assert len(names) == 2
    assert len(set(names)) == 1
    assert len(names[0]) == 32


def test_a_server_that_waits_says_the_name_once_it_has_the_store(store: Store, place: PathOrUrl) -> None:
    fill(store, place.task)
    names = list[str]()
    second = open_store(place.address, place.task, names.append)
    with refusal("in-use"):
        second.rounds()
    assert names == []
    store.close()
    second.check()
    assert len(names) == 1
    second.close()


def test_a_store_that_is_refused_takes_nothing_until_it_is_not(store: Store, place: PathOrUrl) -> None:
    store.close()
    refusing = True

    def begin(_: str) -> None:
        if refusing:
            raise PrivacyError("budget-spent", "this budget: spent")

    for _ in range(2):  # it lets go of the store
        with refusal("budget-spent", error=WrongStoreError):
            open_store(place.address, place.task, begin).rounds()
    refusing = False
    allowed = open_store(place.address, place.task, begin)
    fill(allowed, place.task)
    allowed.close()


@pytest.mark.parametrize("moved", [True, False])
def test_a_moved_store_keeps_its_name_and_a_fresh_one_has_another(tmp_path: Path, moved: bool) -> None:
    task, names = new_task(tmp_path), list[str]()
    open_store(f"sqlite:{tmp_path / 'store.db'}", task, names.append).close()
    if moved:
        shutil.move(tmp_path / "store.db", tmp_path / "other.db")
    open_store(f"sqlite:{tmp_path / 'other.db'}", task, names.append).close()
    assert (names[0] == names[1]) == moved
