"""The paper's mechanism: sampled coordinates, each replaced by a uniform value with some probability."""

from shufflesum.mechanisms.randomized_response.mechanism import RandomizedResponse

__all__ = ["RandomizedResponse"]
