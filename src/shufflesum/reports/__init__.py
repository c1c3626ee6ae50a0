"""What travels and how it is counted: reports as single cells, and the table of counts; nothing of any mechanism."""

from shufflesum.reports.counts import Counts, UnverifiedCounts
from shufflesum.reports.reports import Reports

__all__ = ["Counts", "Reports", "UnverifiedCounts"]
