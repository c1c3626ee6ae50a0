"""The paper's experiments, repeated, and what changes with a certified guarantee (docs/reproduction.md)."""
