"""The coefficients of a span, of which the entries of its estimate are sums."""

from __future__ import annotations

from dataclasses import dataclass

from shufflesum.domain import Box
from shufflesum.estimate.base import Floats, tail_of
from shufflesum.mechanisms import Means, Target

__all__ = ["Coefficients"]


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """Means of the users' coefficients, in the order of the span's kept vectors, each with error bars of its own."""

    box: Box
    means: Means
    kept: tuple[int, ...]
    """The places of the vectors they belong to, among those that were given."""

    def __repr__(self) -> str:
        """Say how many; the figures are its attributes."""
        return f"Coefficients({len(self.kept)} of vectors {self.kept})"

    @property
    def mean(self) -> Floats:
        """Unbiased estimates."""
        return self.box.lower + self.box.width * self.means.mean

    @property
    def standard_error(self) -> Floats:
        """The standard errors, for the mean of these users."""
        return self.standard_error_of("users")

    def standard_error_of(self, target: Target) -> Floats:
        """The standard errors for either target."""
        errors: Floats = self.box.width * self.means.variance(target) ** 0.5
        return errors

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[Floats, Floats]:
        """Ends that hold each coefficient, or with `simultaneous` all of them, with at least this probability."""
        low, high = self.means.interval(tail_of(level, len(self.kept) if simultaneous else 1), target)
        return self.box.lower + self.box.width * low, self.box.lower + self.box.width * high
