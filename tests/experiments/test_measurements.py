from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.refusals import refusal

from experiments.data import Heartbeats
from experiments.measurements import FILE_NAME, Measurements
from experiments.trials import Errors, Trial
from shufflesum.errors import FileError
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.randomized_response.mechanism import on_grid

TRIAL = Trial(5000, 20, RandomizedResponse(1, 3, on_grid(0.2), "uniform"))


@pytest.mark.parametrize("damage", [b"", b'{"format": "shufflesum', b"\xff\xfe", b"[]", b"{}"])
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, crowd: Heartbeats, damage: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(damage)
    with refusal("damaged", error=FileError):
        Measurements.open(tmp_path, crowd, "paper", 0)
    assert path.read_bytes() == damage


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, crowd: Heartbeats) -> None:
    measurements = Measurements.open(tmp_path, crowd, "paper", 0)
    measurements.put(TRIAL, 0, Errors(1.0, 2.0))
    measurements.save()
    text = measurements.path.read_bytes().rstrip()
    for end in range(0, len(text), 7):
        measurements.path.write_bytes(text[:end])
        with refusal("damaged", error=FileError):
            Measurements.open(tmp_path, crowd, "paper", 0)


def test_measurements_of_other_data_encoding_or_seed_are_kept_and_refused(tmp_path: Path, crowd: Heartbeats) -> None:
    measurements = Measurements.open(tmp_path, crowd, "paper", 0)
    measurements.save()
    kept = measurements.path.read_bytes()
    beats = crowd.beats.copy()
    beats[0, 0] = 1 - beats[0, 0]
    with refusal("measurements-mismatch", error=FileError):
        Measurements.open(tmp_path, replace(crowd, beats=beats), "paper", 0)
    with refusal("measurements-mismatch", error=FileError):
        Measurements.open(tmp_path, replace(crowd, labels=None), "paper", 0)
    with refusal("measurements-mismatch", error=FileError):
        Measurements.open(tmp_path, crowd, "authors", 0)
    with refusal("measurements-mismatch", error=FileError):
        Measurements.open(tmp_path, crowd, "paper", 1)
    assert measurements.path.read_bytes() == kept


def test_a_folder_with_other_files_is_refused_but_not_for_what_a_killed_save_leaves(
    tmp_path: Path, crowd: Heartbeats
) -> None:
    (tmp_path / ".measurements.1234.json").write_text('{"form')
    Measurements.open(tmp_path, crowd, "paper", 0)
    (tmp_path / "report.html").write_text("somebody's")
    with refusal("exists", "measurements.json", error=FileError):
        Measurements.open(tmp_path, crowd, "paper", 0)
    assert (tmp_path / "report.html").read_text() == "somebody's"


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path: Path, crowd: Heartbeats) -> None:
    (tmp_path / "file").touch()
    with refusal("unwritable", error=FileError):
        Measurements.open(tmp_path / "file", crowd, "paper", 0)
    (tmp_path / FILE_NAME).mkdir()
    with refusal("unwritable", error=FileError):
        Measurements.open(tmp_path, crowd, "paper", 0)


def test_a_full_disk_keeps_what_was_saved(tmp_path: Path, crowd: Heartbeats, monkeypatch: pytest.MonkeyPatch) -> None:
    measurements = Measurements.open(tmp_path, crowd, "paper", 0)
    measurements.save()
    kept = measurements.path.read_bytes()

    def full(path: Path, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    measurements._saved = math.inf  # not yet time to save
    measurements.put(TRIAL, 0, Errors(1.0, 2.0))
    with refusal("unwritable", error=FileError):
        measurements.save()
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert measurements.path.read_bytes() == kept
