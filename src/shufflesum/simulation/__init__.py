"""Public data through a plan, before anything is collected: the error to expect, and whether it comes out so."""

from __future__ import annotations

from shufflesum.simulation.laws import LABEL_LAWS, LAWS
from shufflesum.simulation.tries import Simulation, simulate, simulate_batches
from shufflesum.simulation.words import found

__all__ = ["LABEL_LAWS", "LAWS", "Simulation", "found", "simulate", "simulate_batches"]
