from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from shufflesum.errors import FileError
from shufflesum.experiments.data import Heartbeats
from shufflesum.experiments.results import FILE_NAME, Results, Store
from shufflesum.experiments.trials import Errors, Trial

TRIALS = [Trial(5000, 20, 3, t, 0.2) for t in (1, 2, 3)]


def results(folder: Path, crowd: Heartbeats, repeats: int = 4) -> Results:
    return Results(crowd, Store.open(folder, crowd, "paper", 0), repeats, 0, workers=2)


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, crowd: Heartbeats) -> None:
    class Stop(Exception):
        pass

    done = 0

    def stop_after_five() -> None:
        nonlocal done
        done += 1
        if done == 5:
            raise Stop

    first = results(tmp_path, crowd)
    with pytest.raises(Stop):
        first.run(TRIALS, stop_after_five)
    second = results(tmp_path, crowd)
    missing = second.missing(TRIALS)
    assert len(missing) == 12 - 5
    steps: list[int] = []
    second.run(TRIALS, lambda: steps.append(1))
    assert len(steps) == 7
    whole = results(tmp_path / "whole", crowd)
    whole.run(TRIALS, lambda: None)
    for trial in TRIALS:
        assert second.summary(trial).mean_error == whole.summary(trial).mean_error


def test_more_repeats_keep_the_earlier_ones(tmp_path: Path, crowd: Heartbeats) -> None:
    results(tmp_path, crowd, repeats=2).run(TRIALS, lambda: None)
    assert len(results(tmp_path, crowd, repeats=5).missing(TRIALS)) == 9
    assert results(tmp_path, crowd, repeats=1).missing(TRIALS) == []


def test_a_trial_named_twice_is_measured_once(tmp_path: Path, crowd: Heartbeats) -> None:
    assert len(results(tmp_path, crowd).missing([*TRIALS, *TRIALS])) == 12


@pytest.mark.parametrize("damage", [b"", b'{"format": "shufflesum', b"\xff\xfe", b"[]", b"{}"])
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, crowd: Heartbeats, damage: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(damage)
    with pytest.raises(FileError, match=r"damaged or was cut short.*another folder with -o"):
        Store.open(tmp_path, crowd, "paper", 0)
    assert path.read_bytes() == damage


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, crowd: Heartbeats) -> None:
    store = Store.open(tmp_path, crowd, "paper", 0)
    store.put(TRIALS[0], 0, Errors(1.0, 2.0))
    store.save()
    text = store.path.read_bytes().rstrip()
    for end in range(0, len(text), 7):
        store.path.write_bytes(text[:end])
        with pytest.raises(FileError, match="cut short"):
            Store.open(tmp_path, crowd, "paper", 0)


def test_results_of_other_data_encoding_or_seed_are_kept_and_refused(tmp_path: Path, crowd: Heartbeats) -> None:
    store = Store.open(tmp_path, crowd, "paper", 0)
    store.save()
    kept = store.path.read_bytes()
    beats = crowd.beats.copy()
    beats[0, 0] = 1 - beats[0, 0]
    with pytest.raises(FileError, match="another data"):
        Store.open(tmp_path, replace(crowd, beats=beats), "paper", 0)
    with pytest.raises(FileError, match="another data"):
        Store.open(tmp_path, replace(crowd, labels=None), "paper", 0)
    with pytest.raises(FileError, match="another encoding"):
        Store.open(tmp_path, crowd, "authors", 0)
    with pytest.raises(FileError, match="another seed"):
        Store.open(tmp_path, crowd, "paper", 1)
    assert store.path.read_bytes() == kept


def test_a_folder_with_other_files_is_refused_but_not_for_what_a_killed_save_leaves(
    tmp_path: Path, crowd: Heartbeats
) -> None:
    (tmp_path / ".measurements.1234.json").write_text('{"form')
    Store.open(tmp_path, crowd, "paper", 0)
    (tmp_path / "report.html").write_text("somebody's")
    with pytest.raises(FileError, match=r"not empty and holds no measurements\.json"):
        Store.open(tmp_path, crowd, "paper", 0)
    assert (tmp_path / "report.html").read_text() == "somebody's"


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path: Path, crowd: Heartbeats) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be used for results"):
        Store.open(tmp_path / "file", crowd, "paper", 0)
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(FileError, match="cannot be used for results"):
        Store.open(tmp_path, crowd, "paper", 0)


def test_a_single_run_has_no_standard_error(tmp_path: Path, crowd: Heartbeats) -> None:
    one = results(tmp_path, crowd, repeats=1)
    one.run(TRIALS[:1], lambda: None)
    assert one.summary(TRIALS[0]).standard_error is None


def test_a_full_disk_keeps_what_was_saved(tmp_path: Path, crowd: Heartbeats, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(tmp_path, crowd, "paper", 0)
    store.save()
    kept = store.path.read_bytes()

    def full(path: Path, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    store._saved = math.inf  # not yet time to save
    store.put(TRIALS[0], 0, Errors(1.0, 2.0))
    with pytest.raises(FileError, match="No space left on device; earlier results were kept"):
        store.save()
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert store.path.read_bytes() == kept
