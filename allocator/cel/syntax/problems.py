"""What is wrong with a text, and where."""


class SyntaxProblem(Exception):  # noqa: N818  # becomes a CelCompileError with the source line at the door
    """The text is no CEL expression."""

    def __init__(self, pos: int, message: str) -> None:
        super().__init__(message)
        self.pos = pos
        self.message = message


def describe(text: str, pos: int, message: str) -> str:
    """Format an error as upstream does: place, message, the source line and a pointer."""
    if pos < 0:
        return f"ERROR: <input>:-1:0: {message}"
    before = text[:pos]
    line = before.count("\n")
    column = pos - (before.rfind("\n") + 1)
    source = text.split("\n")[line] if line <= text.count("\n") else ""
    return f"ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {source}\n | {'.' * column}^"
