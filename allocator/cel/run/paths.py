"""The ways into the device that nearly all selectors take, found in the tree."""

from allocator.cel import types
from allocator.cel.syntax.tree import Call, Ident, Literal, Node, Select


def is_device(node: Node) -> bool:
    """Whether a node is the device itself."""
    return isinstance(node, Ident) and node.binding is None and node.type == types.DEVICE


def domain_path(node: Node) -> tuple[str, str] | None:
    """(`attributes` or `capacity`, domain) of `device.attributes["domain"]` or `device.attributes.domain`."""
    if isinstance(node, Call) and node.function == "_[_]":
        outer, key = node.args
        domain = key.value if isinstance(key, Literal) else None
    elif isinstance(node, Select) and not node.test:
        outer, domain = node.operand, node.field
    else:
        return None
    if domain.__class__ is not str or not isinstance(outer, Select) or outer.test:
        return None
    if outer.field not in ("attributes", "capacity") or not is_device(outer.operand):
        return None
    return outer.field, str(domain)
