"""Mechanism `add` for single labels: every user's own cell, and a few slots that are noise or blank."""

from shufflesum.mechanisms.add_slots.mechanism import AddSlots

__all__ = ["AddSlots"]
