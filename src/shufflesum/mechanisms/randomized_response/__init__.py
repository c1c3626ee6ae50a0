"""The paper's mechanism: sampled coordinates, each replaced by a uniform value with some probability.

Algorithm 1 of the paper, the randomizer, is `privatize` in `randomize`, and Algorithm 2, the sampling of coordinates,
`RandomizedResponseEncoder` beside it. Algorithm 3, the analyzer, is `RandomizedResponseMeans` in `decode`, with the
error that is expected. `mechanism` has the parameters and finds the best ones; `attack` is for audits.
"""

from shufflesum.mechanisms.randomized_response.mechanism import RandomizedResponse

__all__ = ["RandomizedResponse"]
