"""The allocator's errors.

AllocatorError
├─ QuantityError           a text is no Kubernetes quantity
└─ CelError                a CEL expression cannot be used
   ├─ CelCompileError      it does not parse or type-check
   └─ CelRuntimeError      it failed on one device, or cost too much

Errors stop inside the allocator: `allocate` answers with values (`allocator.outcome`), never with an exception for
anything a cluster object can cause.
"""


class AllocatorError(Exception):
    """Base of all errors of this package."""


class QuantityError(AllocatorError, ValueError):
    """A text is not a Kubernetes quantity."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(text, problem)
        self.text = text
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.text[:80]!r} is not a quantity: {self.problem}"


class CelError(AllocatorError):
    """A CEL expression cannot be used; `message` is upstream's text where users see it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class CelCompileError(CelError):
    """The expression does not parse or does not type-check in the stored environment."""


class CelRuntimeError(CelError):
    """The expression failed on one device, exceeded the cost limit or its deadline."""
