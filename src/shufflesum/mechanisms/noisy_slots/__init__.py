"""Mechanism `noisy-counts` for single labels: every user's own cell, and a few slots that are noise or blank."""

from shufflesum.mechanisms.noisy_slots.mechanism import NoisySlots

__all__ = ["NoisySlots"]
