"""The planner: from users, domain and privacy to a certified plan, or from an error to what it needs."""

from shufflesum.planning.for_error import plan_for_error
from shufflesum.planning.planner import DomainLike, PlanOptions, Shape, alternatives, domain_of, plan, published_plan

__all__ = [
    "DomainLike",
    "PlanOptions",
    "Shape",
    "alternatives",
    "domain_of",
    "plan",
    "plan_for_error",
    "published_plan",
]
