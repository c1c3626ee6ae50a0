"""Randomized response: t of d coordinates are reported, each replaced by a uniform value at random.

`accountant` is the front. Behind it: `schemes` (many reports, in independent blocks or in subsets that overlap, and how
little noise is enough), `blanket` (one report: the privacy blanket), `direct` (bounds from the counts themselves: two
values, and concrete adjacent data sets), `published` (the formulas of the paper).
"""
