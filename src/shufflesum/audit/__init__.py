"""Attacks on the running randomizer, and what their outcomes prove."""

from shufflesum.audit.attacks import AuditResult, BatchAttack, Randomize, ReportAttack, audit

__all__ = ["AuditResult", "BatchAttack", "Randomize", "ReportAttack", "audit"]
