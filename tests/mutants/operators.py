"""Small changes of a program, each of which some test should notice."""

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple


class Mutant(NamedTuple):
    """Text of one file between two offsets, and what takes its place.

    Attributes:
        file: path from the root of the project.
        line: where it begins.
        start: offset in the text.
        end: offset behind it.
        new: the other text.
        what: for people.
    """

    file: str
    line: int
    start: int
    end: int
    new: str
    what: str

    def applied(self, text: str) -> str:
        """The file with the change."""
        return text[: self.start] + self.new + text[self.end :]


_COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_SILENT: Final = ("_log", "logging", "super")
_DEFECTS: Final = ("AssertionError", "TypeError", "NotImplementedError")


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Every change there is for one file, in the order of the text."""
    tree = ast.parse(text)
    found = _Finder(file, text)
    found.visit(tree)
    return sorted(found.mutants, key=lambda each: (each.start, each.end, each.new))


class _Finder(ast.NodeVisitor):
    """Collects mutants; leaves out what no test can or need notice: annotations, protocols, log lines, defects."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._bytes = [line.encode() for line in text.splitlines(keepends=True)]
        self.mutants: list[Mutant] = []

    def _offset(self, line: int, column: int) -> int:
        """`ast` counts columns in bytes."""
        return self._lines[line - 1] + len(self._bytes[line - 1][:column].decode())

    def _add(self, node: ast.expr | ast.stmt, new: str, what: str) -> None:
        start = self._offset(node.lineno, node.col_offset)
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
        self.mutants.append(Mutant(self._file, node.lineno, start, end, new, what))

    def _source(self, node: ast.expr | ast.stmt) -> str:
        return ast.get_source_segment(self._text, node) or ""

    # --- what is left out ----------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """A protocol has no behaviour."""
        if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            for statement in node.body:
                if not isinstance(statement, ast.AnnAssign):
                    self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The value, not the type. A bare number that is `Final` is a tuning knob: another one is as right."""
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """The body and the defaults, not the types."""
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """As `visit_FunctionDef`."""
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_Raise(self, node: ast.Raise) -> None:
        """A refusal that does not come; one that only a defect can bring is left out."""
        if not any(name in self._source(node) for name in _DEFECTS):
            self._add(node, "pass", f"no `{_short(self._source(node))}`")
            self.generic_visit(node)

    # --- what is changed ------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call that is not made."""
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(value, ast.Call):
            return
        source = self._source(node)
        if source.startswith(_SILENT):
            return
        self._add(node, "pass", f"no `{_short(source)}`")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """An attribute or entry that is not set."""
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add(node, "pass", f"no `{_short(self._source(node))}`")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """A sum that is not added to."""
        self._add(node, "pass", f"no `{_short(self._source(node))}`")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        """An entry that stays."""
        self._add(node, "pass", f"no `{_short(self._source(node))}`")

    def visit_Continue(self, node: ast.Continue) -> None:
        """What comes after it is done as well."""
        self._add(node, "pass", "no `continue`")

    def visit_Break(self, node: ast.Break) -> None:
        """The loop goes on."""
        self._add(node, "pass", "no `break`")

    def visit_Compare(self, node: ast.Compare) -> None:
        """The limit moves by one, or the answer turns round."""
        if len(node.ops) == 1:
            left, right = self._source(node.left), self._source(node.comparators[0])
            sign = _COMPARISONS[type(node.ops[0])]
            self._add(node, f"{left} {sign} {right}", f"`{left} {sign} {right}`")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """One part of a condition that does not count."""
        word = "and" if isinstance(node.op, ast.And) else "or"
        for number, left_out in enumerate(node.values):
            kept = [self._source(each) for at, each in enumerate(node.values) if at != number]
            self._add(
                node,
                "(" + f" {word} ".join(kept) + ")",
                f"without `{word} {_short(self._source(left_out))}`",
            )
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """The opposite."""
        if isinstance(node.op, ast.Not):
            self._add(
                node,
                f"bool({self._source(node.operand)})",
                f"not `{_short(self._source(node))}` but the opposite",
            )
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Always the first."""
        self._add(
            node, f"({self._source(node.body)})", f"always `{_short(self._source(node.body))}`"
        )
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Another number, the other truth."""
        if isinstance(node.value, bool):
            self._add(node, str(not node.value), f"`{not node.value}` for `{node.value}`")
        elif isinstance(node.value, int):
            self._add(node, str(node.value + 1), f"{node.value + 1} for {node.value}")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are compared elsewhere."""


def _short(source: str) -> str:
    line = " ".join(source.split())
    return line if len(line) < 60 else line[:57] + "..."


def compiling(mutants: list[Mutant], text: str) -> Iterator[Mutant]:
    """Those that are still a program: leaving out the only name of a walrus, say, is not."""
    for each in mutants:
        try:
            compile(each.applied(text), each.file, "exec")
        except SyntaxError:
            continue
        yield each
