"""Questions, what was answered to them, and which nodes are worth looking at."""

from scheduler.engine.engine import Decision, Engine

__all__ = ["Decision", "Engine"]
