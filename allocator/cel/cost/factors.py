"""Upstream's base costs.

Source: cel-go common/cost.go.
"""

from typing import Final

LIST, MAP = 10, 30
TRAVERSAL: Final = 0.1
REGEX: Final = 0.25
