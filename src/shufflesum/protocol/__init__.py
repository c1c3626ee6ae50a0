"""The paper's three algorithms: randomizer, shuffler, and the table of counts the analyzer works on."""

from shufflesum.protocol.counts import Counts
from shufflesum.protocol.randomizer import Randomizer
from shufflesum.protocol.randomness import RandomSource, SecureSource
from shufflesum.protocol.reports import Reports
from shufflesum.protocol.shuffler import permutation, shuffle

__all__ = ["Counts", "RandomSource", "Randomizer", "Reports", "SecureSource", "permutation", "shuffle"]
