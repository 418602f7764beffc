"""Makes types equal by binding type parameters, with free parameters for the elements of empty literals.

Source: cel-go checker/types.go.
"""

from typing import Final

from allocator.cel import types
from allocator.cel.check.overloads import Overload
from allocator.cel.types import Type, Wrapper, is_dyn, is_dyn_or_error

_NULLABLE: Final = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_FIXED: Final = frozenset(
    {"bool", "bytes", "double", "int", "string", "uint", "duration", "timestamp", "struct"}
)


class Unification:
    """What type parameters stand for so far.

    Attributes:
        bound: type parameter name -> what it stands for.
        free: how many free parameters there are.
    """

    def __init__(self) -> None:
        self.bound: dict[str, Type] = {}
        self.free = 0

    def fresh(self) -> Type:
        """A new free type variable."""
        self.free += 1
        return types.param(f"_var{self.free}")

    def instantiate(self, overload: Overload) -> tuple[list[Type], Type]:
        """An overload's types with fresh variables for its parameters."""
        if not overload.params:
            return list(overload.args), overload.result
        fresh = {name: self.fresh() for name in sorted(overload.params)}
        return [_replace(arg, fresh) for arg in overload.args], _replace(overload.result, fresh)

    def join(self, previous: Type | None, current: Type) -> Type:
        """The common type of two elements of a literal; dyn if there is none, which the validator reports."""
        if previous is None:
            return current
        if self.assignable(previous, current):
            return _most_general(previous, current)
        return types.DYN

    def assignable(self, left: Type, right: Type) -> bool:
        """Whether the types unify; what was learnt is kept only if they do."""
        if left == right and not left.params and left.kind != "param":
            return True
        saved = self.bound.copy()
        if self.unify(left, right):
            return True
        self.bound = saved
        return False

    def all_assignable(self, left: list[Type], right: list[Type]) -> bool:
        """The same for argument lists of equal length."""
        saved: dict[str, Type] | None = None
        for one, other in zip(left, right, strict=True):
            if one == other and not one.params and one.kind != "param":
                continue
            if (
                one.kind in _FIXED and other.kind in _FIXED
            ):  # most mismatches: nothing to save for them
                self.bound = self.bound if saved is None else saved
                return False
            if saved is None:
                saved = self.bound.copy()
            if not self.unify(one, other):
                self.bound = saved
                return False
        return True

    def unify(self, left: Type, right: Type) -> bool:  # noqa: PLR0911  # upstream's order of rules, one return each
        """Make two types equal by binding parameters; bindings are left behind on failure."""
        if right.kind == "param":
            valid, has_substitute = self.substitution(left, right)
            if valid:
                return True
            if has_substitute:
                return False
        if left.kind == "param":
            return self.substitution(right, left)[0]
        if is_dyn_or_error(left) or is_dyn_or_error(right):
            return True
        if left.kind == "null":
            return right.kind == "null" or _takes_null(right)
        if right.kind == "null":
            return _takes_null(left)
        if left.kind in _FIXED:
            return left == right
        if left.kind == "type":
            return right.kind == "type"
        if (
            left.kind != right.kind
            or left.name != right.name
            or len(left.params) != len(right.params)
        ):
            return False
        return all(
            self.unify(one, other) for one, other in zip(left.params, right.params, strict=True)
        )

    def substitution(self, left: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether `left` may stand for the parameter, and whether the parameter stood for something before."""
        if left == parameter:
            return True, True
        known = self.bound.get(parameter.name)
        if known is not None:
            if left == known:
                return True, True
            if self.unify(left, known):
                general = _most_general(left, known)
                if self.free_of(parameter, general):
                    self.bound[parameter.name] = general
                return True, True
            return False, True
        if self.free_of(parameter, left):
            self.bound[parameter.name] = left
            return True, False
        return False, False

    def free_of(self, parameter: Type, within: Type) -> bool:
        """The occurs check: the parameter is no part of the type."""
        if parameter == within:
            return False
        if within.kind == "param":
            known = self.bound.get(within.name)
            return known is None or self.free_of(parameter, known)
        return all(self.free_of(parameter, inner) for inner in within.params)

    def substitute(self, type_: Type, *, to_dyn: bool = False) -> Type:
        """Replace parameters by what they stand for; free ones by dyn if asked."""
        if type_.kind == "param":
            known = self.bound.get(type_.name)
            if known is not None:
                return self.substitute(known, to_dyn=to_dyn)
            return types.DYN if to_dyn else type_
        if not type_.params:
            return type_
        return type_._replace(
            params=tuple(self.substitute(inner, to_dyn=to_dyn) for inner in type_.params)
        )


def _takes_null(type_: Type) -> bool:
    return type_.kind in _NULLABLE or isinstance(type_, Wrapper)


def _replace(type_: Type, fresh: dict[str, Type]) -> Type:
    if type_.kind == "param":
        return fresh[type_.name]
    if not type_.params:
        return type_
    return type_._replace(params=tuple(_replace(inner, fresh) for inner in type_.params))


def _most_general(left: Type, right: Type) -> Type:
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    """Whether `left` equals `right` or differs from it only by being dyn somewhere."""
    if is_dyn(left) or left.kind == "param":
        return True
    if is_dyn(right) or right.kind == "param":
        return False
    if left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.name != right.name or len(left.params) != len(right.params):
        return False
    return all(
        _less_specific(one, other) for one, other in zip(left.params, right.params, strict=True)
    )
