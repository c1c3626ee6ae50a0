"""The one line that each needs."""

from __future__ import annotations

from tests.extension.angles import Angles
from tests.extension.coin import FairCoin

from shufflesum import domains, mechanisms


def register_all() -> None:
    domains.register(Angles)
    mechanisms.register(FairCoin)
