"""List and watch, kept in step with the API server."""

from scheduler.reflectors.barrier import ClaimBarrier
from scheduler.reflectors.reflector import NoMetrics, ReflectorMetrics
from scheduler.reflectors.reflectors import Reflectors

__all__ = ["ClaimBarrier", "NoMetrics", "ReflectorMetrics", "Reflectors"]
