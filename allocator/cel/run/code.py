"""What the compiler makes of a node: closures over the variables of one evaluation.

`Env` is a list: the device's attributes, capacity, driver, allowMultipleAllocations, the device as a map, the meter,
then one slot for each variable that a macro introduces.
"""

from collections.abc import Callable
from typing import Any, Final

Env = list[Any]
Run = Callable[[Env], Any]

ATTRIBUTES, CAPACITY, DRIVER, MULTIPLE, DEVICE, METER, FIRST_SLOT = range(7)

PLAIN: Final = 0  # a value that was computed
ATTRIBUTE: Final = 1  # a variable with selections; reading it costs 1 where it stands for itself
CONDITIONAL: Final = 2  # `c ? a : b`, which passes selections on to both branches


class Code:
    """A compiled node.

    Attributes:
        run: evaluates it.
        inner: the same without the cost of reading the variable, for use as part of a longer selection.
        kind: PLAIN, ATTRIBUTE or CONDITIONAL.
        is_constant: whether upstream folds it when it plans; `value` is then its value.
    """

    __slots__ = ("inner", "is_constant", "kind", "run", "value")

    def __init__(self, run: Run, *, inner: Run | None = None, kind: int = PLAIN) -> None:
        self.run = run
        self.inner = inner or run
        self.kind = kind
        self.is_constant = False
        self.value: Any = None


def constant(value: Any) -> Code:
    """A folded value."""
    code = Code(lambda _env: value)
    code.is_constant = True
    code.value = value
    return code
