"""A local page that answers what a collection would cost: every figure comes from the planner."""

from __future__ import annotations

from shufflesum.explorer.app import explorer_app
from shufflesum.explorer.explorer import Explorer
from shufflesum.explorer.pictures import Pictures

__all__ = ["Explorer", "Pictures", "explorer_app"]
