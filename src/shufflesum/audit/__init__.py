"""Attacks on the running randomizer, and what their outcomes prove."""

from shufflesum.audit.attacks import AuditResult, BatchAttack, ReportAttack, audit
from shufflesum.audit.findings import Tested
from shufflesum.audit.paths import Drawn, Randomize

__all__ = ["AuditResult", "BatchAttack", "Drawn", "Randomize", "ReportAttack", "Tested", "audit"]
