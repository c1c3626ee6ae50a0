"""The planner: from users, shape and privacy to a certified plan, or from an error to what it needs."""

from shufflesum.planning.ball import box_is_better
from shufflesum.planning.for_error import plan_for_error
from shufflesum.planning.planner import PlanChoices, Shape, alternatives, plan, published_plan

__all__ = ["PlanChoices", "Shape", "alternatives", "box_is_better", "plan", "plan_for_error", "published_plan"]
