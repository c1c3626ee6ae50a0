"""Everything about the domain `L2Ball`."""

from shufflesum.domains.l2_ball.domain import L2Ball

__all__ = ["L2Ball"]
