"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE: `dev` is quick, `ci` repeats itself exactly, `soak` is for a long night."""

import os

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=60, **_COMMON)
settings.register_profile("ci", max_examples=150, derandomize=True, print_blob=True, **_COMMON)
settings.register_profile("soak", max_examples=5_000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
