"""Secure bits, and exact draws from them: what needs entropy is kept apart from what can be computed by hand."""

from shufflesum.randomness.source import RandomSource, SecureSource, Words, words

__all__ = ["RandomSource", "SecureSource", "Words", "words"]
