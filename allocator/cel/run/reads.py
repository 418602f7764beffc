"""What an expression reads of a device, found from its tree."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from allocator.cel.run.paths import domain_path, is_device
from allocator.cel.syntax.tree import Call, Comprehension, Ident, Node, Select, Variable
from allocator.cel.syntax.tree import Literal as Constant


class Read(NamedTuple):
    """Something an expression reads.

    Attributes:
        kind: `attribute` and `capacity` have a domain and a name, the others neither.
    """

    kind: Literal["attribute", "capacity", "driver", "allowMultipleAllocations"]
    domain: str = ""
    name: str = ""


def reads_of(root: Node) -> frozenset[Read] | None:
    """All reads, or None if the expression uses the device in a way that hides them."""
    finder = _Finder()
    return frozenset(finder.found) if finder.visit(root) else None


def names_in_objects(reads: Iterable[Read], kind: str, driver: str) -> tuple[str, ...]:
    """How the attributes or capacities that are read may be written in a device of a driver.

    The domain may be left out where it is the driver's; a read without domain is of a name without one.
    """
    names: dict[str, None] = {}
    for read in sorted(each for each in reads if each.kind == kind):
        names[f"{read.domain}/{read.name}"] = None
        if read.domain in (driver, ""):
            names[read.name] = None
    return tuple(names)


class _Finder:
    """Collects reads.

    Attributes:
        aliases: variables of `cel.bind` that stand for one domain's attributes or capacity.
    """

    def __init__(self) -> None:
        self.found: set[Read] = set()
        self.aliases: dict[int, tuple[str, str]] = {}
        self.seen: set[int] = set()

    def visit(self, root: Node) -> bool:
        """Whether everything read under the node is known."""
        stack = [root]
        while stack:
            node = stack.pop()
            if id(node) in self.seen:
                continue
            self.seen.add(id(node))
            if self.is_read(node):
                continue
            if isinstance(node, Ident) and (is_device(node) or self.alias(node) is not None):
                return False
            if isinstance(node, Comprehension) and node.macro == "bind" and self.bind(node):
                stack.append(node.result)
                continue
            stack.extend(node.children())
        return True

    def alias(self, node: Node) -> tuple[str, str] | None:
        """The domain that a variable stands for."""
        if isinstance(node, Ident) and isinstance(node.binding, Variable):
            return self.aliases.get(id(node.binding))
        return None

    def bind(self, node: Comprehension) -> bool:
        """Note a variable for a domain."""
        path = domain_path(node.init)
        if path is None or node.variables is None:
            return False
        self.aliases[id(node.variables[0])] = path
        return True

    def domain(self, node: Node) -> tuple[str, str] | None:
        """(`attributes` or `capacity`, domain) that a node evaluates to."""
        return self.alias(node) or domain_path(node)

    def is_read(self, node: Node) -> bool:
        """Note the read that a node is, if it is one."""
        if isinstance(node, Select):
            if is_device(node.operand):
                if node.field == "driver":
                    self.found.add(Read("driver"))
                elif node.field == "allowMultipleAllocations":
                    self.found.add(Read("allowMultipleAllocations"))
                else:
                    return False
                return True
            return self.note(node.operand, node.field)
        if isinstance(node, Call) and len(node.args) == 2 and node.target is None:
            first, second = node.args
            if node.function in ("_[_]", "_[?_]", "_?._") and isinstance(second, Constant):
                return self.note(first, second.value)
            if node.function == "@in" and isinstance(first, Constant):
                return self.note(second, first.value)
        return False

    def note(self, operand: Node, name: object) -> bool:
        """Note a read of one name of a domain."""
        path = self.domain(operand)
        if path is None or not isinstance(name, str):
            return False
        self.found.add(Read("attribute" if path[0] == "attributes" else "capacity", path[1], name))
        return True
