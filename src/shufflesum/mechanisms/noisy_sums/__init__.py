"""The mechanism `noisy-sums`: values as integers, summed exactly, and noise drawn once for each coordinate.

`mechanism` has the parameters, finds the least noise and reads noisy sums; `randomize` adds users up and draws.
"""

from shufflesum.mechanisms.noisy_sums.mechanism import NoisySums

__all__ = ["NoisySums"]
