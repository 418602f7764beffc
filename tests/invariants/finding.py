"""What is wrong."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something that must not be.

    Attributes:
        rule: which invariant, as in the judge's table.
        subject: about what.
        text: what is wrong with it.
        at: seconds, when; not compared.
        revision: of the write that made it wrong.
    """

    rule: str
    subject: str
    text: str
    at: float = field(default=0.0, compare=False)
    revision: int = field(default=0, compare=False)

    def __str__(self) -> str:
        where = f"revision {self.revision}, {self.at:.3f} s"
        return f"{self.rule} {self.subject}: {self.text} ({where})"
