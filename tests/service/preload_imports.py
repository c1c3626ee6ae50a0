"""Imported once by the process that others are forked from, so that none has to import or load compiled code."""

from __future__ import annotations

import httpx  # noqa: F401
import numpy as np
import psycopg  # noqa: F401
import uvicorn  # noqa: F401

import shufflesum.cli
import shufflesum.service.analyzer.server
import shufflesum.service.shuffler.server
import shufflesum.service.stores.postgres
import shufflesum.service.stores.sqlite  # noqa: F401
from shufflesum import Analyzer, Randomizer, shuffle
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.shuffler.release import permuted
from shufflesum.testing import unprotected_plan

_PLAN = unprotected_plan(users=1, shape=2, coordinates=2, levels=2)
Analyzer(_PLAN).analyze(shuffle(Randomizer(_PLAN, clip=True).randomize(np.zeros((1, 2)))))
list(permuted([bytes(2 * SEALED_BYTES)], 2))
