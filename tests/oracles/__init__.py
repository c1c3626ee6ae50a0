"""Slow, obvious computations that judge the fast code."""
