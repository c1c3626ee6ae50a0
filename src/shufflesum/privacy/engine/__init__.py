"""What the accountant of any mechanism needs, and nothing of any mechanism.

`laws`: windows of binomial-like laws, and hockey-stick sums over pairs of cells. `pld`: privacy loss distributions,
their products and their export to `dp_accounting`. `composition`: bounds of a composition, read at any epsilon or
delta. `gaussian`: the privacy profile of Gaussian noise, and what a trusted curator needs of it. `filters`: privacy
filters, which say what a plan costs in a budget. Rounding errors, truncation and grids can only make bounds wider.
"""
