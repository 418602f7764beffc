"""Builds the collaborators of a process, in one place, and runs them from start to clean end."""

from scheduler.bootstrap.process import run_extender, run_standalone

__all__ = ["run_extender", "run_standalone"]
