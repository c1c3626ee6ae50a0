"""What the accountant of any mechanism needs, and nothing of any mechanism.

`laws`: windows of binomial-like laws. `mixture`: hockey-stick sums over pairs of cells. `losses`: pairs of worlds on
a grid of privacy losses. `convolution`: their products. `composition`: bounds of a composition, read at any epsilon or
delta. `gaussian`: the profile of a Gaussian pair. `filters`: what a plan costs in a budget. `export`: the same for
`dp_accounting`. Every error of truncation, grids and floating point goes against us.
"""
