"""Upstream's base costs.

Source: cel-go common/cost.go, k8s.io/apiserver/pkg/cel/library/cost.go.
"""

from typing import Final

LIST, MAP, STRUCT = 10, 30, 40
TRAVERSAL: Final = 0.1
REGEX: Final = 0.25
AUTHORIZATION: Final = 350_000
REQUIREMENTS: Final = 0.5  # of a label or field selector, for each of its characters
