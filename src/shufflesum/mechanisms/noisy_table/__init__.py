"""Noise that servers, or one process, draw once for each cell of a table of counts."""

from shufflesum.mechanisms.noisy_table.mechanism import NoisyTable

__all__ = ["NoisyTable"]
