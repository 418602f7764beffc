"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE.

`repeatable` (unless told otherwise) is quick and repeats itself exactly, so that a red run is red again; `dev` looks elsewhere each time; `ci` looks
further; `soak` is for a long night.
"""

import os

from hypothesis import HealthCheck, settings

_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _COMMON, max_examples=60, derandomize=True)
settings.register_profile("dev", _COMMON, max_examples=60)
settings.register_profile("ci", _COMMON, max_examples=150, derandomize=True, print_blob=True)
settings.register_profile("soak", _COMMON, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
