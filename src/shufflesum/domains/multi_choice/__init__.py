"""Everything about the domain `MultiChoice`."""

from shufflesum.domains.multi_choice.domain import MultiChoice

__all__ = ["MultiChoice"]
