"""Nouns and sentences about `L2Ball`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from shufflesum._format import margin, plain, upwards
from shufflesum.domains.l2_ball.domain import L2Ball
from shufflesum.domains.wording import Wording, arrays_of, root_mean_square

if TYPE_CHECKING:
    from shufflesum.plans import Plan


class L2BallWording(Wording[L2Ball]):
    """What is said of arrays with a bounded norm."""

    public: ClassVar[str] = "Clipping norm, centre"
    clipped: ClassVar[str] = "rows longer than the clipping norm were scaled down to it"

    def collected(self) -> str:
        """Mean and sum, and the norm."""
        ball = self.domain
        measured = "" if ball.center is None else ", measured from a public centre"
        norm = f"of a Euclidean norm of at most {upwards(ball.clipping_norm, 6)}{measured}"
        return f"the mean and sum of {arrays_of(ball.shape, ball.dimension)}, {norm}"

    def margins(self, plan: Plan) -> dict[str, str]:
        """Of an entry."""
        return {"each entry of the mean": margin(root_mean_square(plan))}

    def error_details(self, plan: Plan) -> list[str]:
        """Of the whole vector."""
        return [f"norm of the whole error: {plain(math.sqrt(plan.expected_error.total))} (root mean square)"]

    def moved(self, plan: Plan) -> str:
        """An entry."""
        return "an entry of the mean"

    def assumptions(self) -> list[str]:
        """Rounding itself protects: a device that rounds to the nearest bit has no privacy at all."""
        return [
            "The coin that rounds is the privacy: devices must draw it freshly and secretly, for each bit anew. A coin "
            "that is fixed, shared or left out voids the guarantee."
        ]
