"""Noisy counts: counts of cells with binomial noise of their own.

`accountant` is the front, with the room that dummy reports need; `counts` has the privacy of one noisy count, of
several that move the same way, of pairs that move against each other, and of blocks that each move as they like.
"""
