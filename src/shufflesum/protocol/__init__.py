"""The three roles, the same for every mechanism: randomizer, shuffler and analyzer (Algorithms 1 to 3 of the paper)."""

from shufflesum.protocol.analyzer import Analyzer
from shufflesum.protocol.randomizer import Randomizer, UnverifiedRandomizer
from shufflesum.protocol.shuffler import permutation, shuffle
from shufflesum.protocol.tally import Tally

__all__ = ["Analyzer", "Randomizer", "Tally", "UnverifiedRandomizer", "permutation", "shuffle"]
