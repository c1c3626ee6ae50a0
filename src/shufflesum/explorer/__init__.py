"""A local page that answers what a collection would cost: every figure comes from the planner."""

from __future__ import annotations

from shufflesum.explorer.app import Pictures, explorer_app
from shufflesum.explorer.explorer import Explorer

__all__ = ["Explorer", "Pictures", "explorer_app"]
