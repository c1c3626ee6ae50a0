"""docs/deploy.md names the problems that exist; its commands are looked at with those of all pages."""

from __future__ import annotations

import re
from pathlib import Path

from shufflesum.service.http.messages import PROBLEMS

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()


def test_every_problem_is_listed_under_its_kind_of_retry() -> None:
    section = PAGE.split("## Problems")[1].split("##")[0]
    rows = [row for row in section.splitlines() if row.startswith("| `")]
    listed = {name: row.split("`")[1] for row in rows for name in re.findall(r"`([a-z-]+)`", row.split("|")[2])}
    assert listed == {problem.name: problem.retry for problem in PROBLEMS.values()}
