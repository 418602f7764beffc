"""Functions that ask the API server's authorizer.

They are declared for every expression, and a selector has no authorizer: whatever they are called on is a wrong value.

Source: k8s.io/apiserver/pkg/cel/library/authz.go.
"""

from collections.abc import Callable
from typing import Any, Final

from allocator.cel.values.names import no_such_overload

NAMES: Final = (
    "path", "group", "serviceAccount", "resource", "subresource", "namespace", "name", "fieldSelector", "labelSelector",
    "check", "error", "errored", "allowed", "reason",
)  # fmt: skip


def _refusing(name: str) -> Callable[..., object]:
    def method(*args: Any) -> object:
        raise no_such_overload(name, *args)

    return method


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {name: _refusing(name) for name in NAMES}
