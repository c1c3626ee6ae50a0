"""Vectors in a Euclidean ball, sent as random bits: the coin that rounds is what protects. Proofs:
docs/privacy-ball.md.

`accountant` is the front, with adjacent data sets from below; `domination` has the law of the other users' ones, a
Gaussian pair above every coordinate's, and Renyi moments.
"""
