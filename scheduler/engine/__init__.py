"""Questions, what was answered to them, and which nodes are worth looking at."""

from scheduler.engine.attempt import Attempt, LongSearch
from scheduler.engine.engine import Engine
from scheduler.framework.plan import Plan

__all__ = ["Attempt", "Engine", "LongSearch", "Plan"]
