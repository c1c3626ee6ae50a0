"""Labels that nobody listed: found, counted, and listed where enough users hold them."""

from shufflesum.domains.unlisted_labels.domain import UnlistedLabels

__all__ = ["UnlistedLabels"]
