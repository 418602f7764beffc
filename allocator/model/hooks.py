"""msgspec hooks for the types JSON does not have: quantities as text or number."""

from typing import Any

from allocator.errors import QuantityError
from allocator.quantity import Quantity


def dec_hook(type_: type, obj: Any) -> Any:
    """Decode a Quantity from text or integer.

    A JSON float has already lost digits, and true/false are no numbers: both are refused.

    Raises:
        ValueError: the value is no quantity (msgspec adds the JSON path).
        NotImplementedError: another type.
    """
    if type_ is Quantity:
        if isinstance(obj, str):
            return Quantity.parse(obj)
        if isinstance(obj, int) and not isinstance(obj, bool):
            return Quantity.parse(str(obj))
        if isinstance(obj, float):
            raise QuantityError(repr(obj), "a fraction must be written as text")
        raise QuantityError(repr(obj), "it is neither text nor a whole number")
    raise NotImplementedError(type_.__name__)


def enc_hook(obj: Any) -> Any:
    """Encode a Quantity as its canonical text.

    Raises:
        NotImplementedError: another type.
    """
    if isinstance(obj, Quantity):
        return str(obj)
    raise NotImplementedError(type(obj).__name__)
