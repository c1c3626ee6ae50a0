"""A note that a finished run of the randomizer leaves beside its output: the same command again has nothing to do.

Drawing a user's reports twice for one round costs the guarantee twice, so a scheduler that tries again must not get
others. The note stays with whoever ran the step: names, sizes and times of the users' files are not the shuffler's
business, and the folder itself goes there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shufflesum._documents import decode_checked, encode_checked
from shufflesum._machine import replace_file
from shufflesum.batch.files.dataset import Dataset, open_dataset
from shufflesum.batch.identity import Identity
from shufflesum.errors import FileError, ReportsError
from shufflesum.tables import local_path

__all__ = ["finished_reports", "note_finished", "note_path", "partial_path"]

_FORMAT = "shufflesum-finished-1"


def note_path(output: Path) -> Path:
    """Where the note about an output is."""
    return output.with_name(f".{output.name}.finished")


def partial_path(output: Path) -> Path:
    """Where an output is made."""
    return output.with_name(f".{output.name}.partial")


def note_finished(output: Path, work: Mapping[str, Any], identity: Identity) -> None:
    """Say what the output comes from; to be called before it appears, so that there is none without a note."""
    document = {"work": work, "identity": identity.to_json()}
    replace_file(note_path(output), encode_checked(_FORMAT, document), 0o600)


def finished_reports(
    output: str | os.PathLike[str], work: Mapping[str, Any], identity: Identity, *, restart: bool = False
) -> Dataset | None:
    """The reports that a run of the same work has written here, whole and unchanged; None where none has.

    Where they were there and are gone, they may have gone to the shuffler: refused, unless `restart` says that they
    did not, and others may be drawn.
    """
    output = local_path(output)
    if (earlier := _same_work(output, work, identity)) is None:
        return None
    if os.path.lexists(output):
        dataset = open_dataset(output, stage="reports")
        return dataset if dataset.identity == earlier and dataset.whole else None
    if restart:
        return None
    raise ReportsError(
        "randomized-before",
        f"{output}: these users were randomized here before, for the same round, and the folder is gone; drawn again, "
        "their reports would cost the guarantee twice. If nobody has the first ones, say --restart to draw others",
    )


def _same_work(output: Path, work: Mapping[str, Any], identity: Identity) -> Identity | None:
    """Whose reports the note is about, where it is about the same work."""
    if partial_path(output).exists():  # stopped just before the end
        return None
    try:
        document = decode_checked(note_path(output).read_bytes(), _FORMAT)
        earlier = Identity.from_json(document["identity"])
        same = document["work"] == json.loads(json.dumps(work))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(
            "damaged",
            f"{note_path(output)}: the note about an earlier run cannot be read ({error}); take a copy from before, or "
            "remove it if nobody has the reports of that run",
        ) from error
    ours = replace(earlier, contribution_ids=identity.contribution_ids)
    return earlier if same and ours == identity else None
