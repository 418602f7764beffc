"""How a command fails: one clear line, and an exit code."""

DONE = 0
FOUND_SOMETHING = 1
BAD_USAGE = 2


class CliError(Exception):
    """A command cannot go on.

    Attributes:
        message: one line for stderr.
        exit_code: of the process.
    """

    def __init__(self, message: str, exit_code: int = BAD_USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message
