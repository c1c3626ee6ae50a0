"""Imported once by the process that others are forked from, so that none has to import or load compiled code."""

from __future__ import annotations

import httpx  # noqa: F401
import numpy as np

import shufflesum.service.shuffler.server  # noqa: F401
from shufflesum import Randomizer, shuffle
from shufflesum.service.shuffler.release import permuted
from shufflesum.testing import unprotected_plan
from shufflesum.wire import SEALED_BYTES

shuffle(Randomizer(unprotected_plan(users=1, shape=2, reports=2, levels=2), clip=True).randomize(np.zeros((1, 2))))
list(permuted([bytes(2 * SEALED_BYTES)], 2))
