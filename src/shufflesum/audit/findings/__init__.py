"""What reports must look like, one small statistic each: counts of independent events whose chances the plan gives."""

from shufflesum.audit.findings.forks import Copies, in_forks
from shufflesum.audit.findings.judged import Judged, Tested, judged
from shufflesum.audit.findings.rare import Rare, rare_event
from shufflesum.audit.findings.reach import less_noise_shown, users_to_show
from shufflesum.audit.findings.sums import Sums
from shufflesum.audit.findings.watch import Watch

__all__ = [
    "Copies",
    "Judged",
    "Rare",
    "Sums",
    "Tested",
    "Watch",
    "in_forks",
    "judged",
    "less_noise_shown",
    "rare_event",
    "users_to_show",
]
