"""Questions, what was answered to them, and which nodes are worth looking at."""

from scheduler.engine.engine import Engine

__all__ = ["Engine"]
